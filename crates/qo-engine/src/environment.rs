//! Settings from environment variables.
//!
//! The variables are passed as a map, so that tests can pass their own. An empty value counts as unset. An invalid value is an
//! error that names the variable, the value and the allowed values: a typo must not silently become the default.

use std::collections::BTreeMap;

use qo_store::client::PAGE_LIMIT_MAX;
use thiserror::Error;

/// An environment variable with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{variable} is {value:?}: use {allowed}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The variable.
    pub variable: &'static str,
    /// Its value, truncated if it is long.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

/// The value of a variable, if it is set and not empty.
pub fn value<'a>(vars: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    vars.get(name)
        .map(|value| value.trim())
        .filter(|value| !value.is_empty())
}

/// Parses a whole number from `min` to `max`.
pub fn number(
    vars: &BTreeMap<String, String>,
    name: &'static str,
    min: u64,
    max: u64,
) -> Result<Option<u64>, ConfigError> {
    let Some(text) = value(vars, name) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
        _ => Err(error(
            name,
            text,
            &format!("a whole number from {min} to {max}"),
        )),
    }
}

/// Parses the page size of a listing.
pub fn page_size(
    vars: &BTreeMap<String, String>,
    name: &'static str,
) -> Result<Option<usize>, ConfigError> {
    let size = number(vars, name, 1, PAGE_LIMIT_MAX as u64)?;
    Ok(size.map(|size| usize::try_from(size).unwrap_or(PAGE_LIMIT_MAX)))
}

/// Parses a switch: 1 or true, 0 or false.
pub fn flag(
    vars: &BTreeMap<String, String>,
    name: &'static str,
) -> Result<Option<bool>, ConfigError> {
    match value(vars, name) {
        None => Ok(None),
        Some("1" | "true") => Ok(Some(true)),
        Some("0" | "false") => Ok(Some(false)),
        Some(text) => Err(error(name, text, "1 or true, 0 or false")),
    }
}

/// The error for an invalid value.
pub fn error(variable: &'static str, value: &str, allowed: &str) -> ConfigError {
    ConfigError {
        variable,
        value: value.chars().take(64).collect(),
        allowed: allowed.to_owned(),
    }
}
