//! Options for opening a store: the environment, as a map, and the runtime.
//!
//! Nothing else in this crate reads the process environment. Tests can supply their own, and two stores of one process
//! can use different ones.

use std::collections::BTreeMap;
use std::fmt;
#[cfg(any(feature = "sqlite", feature = "s3", feature = "gcs"))]
use std::path::PathBuf;
use std::sync::Arc;

use crate::runtime::Runtime;
use crate::wrap::RequestCounter;

/// Options for opening a store.
#[derive(Clone)]
pub struct OpenOptions {
    runtime: Arc<dyn Runtime>,
    env: BTreeMap<String, String>,
    counter: Option<RequestCounter>,
}

impl OpenOptions {
    /// Options with an empty environment.
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self {
            runtime,
            env: BTreeMap::new(),
            counter: None,
        }
    }

    /// Options with the environment of this process. Variables that are not UTF-8 are omitted.
    pub fn from_env(runtime: Arc<dyn Runtime>) -> Self {
        Self {
            runtime,
            env: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
            counter: None,
        }
    }

    /// Sets one variable.
    #[must_use]
    pub fn with_var(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Counts all requests to the opened stores.
    #[must_use]
    pub fn counted_by(mut self, counter: RequestCounter) -> Self {
        self.counter = Some(counter);
        self
    }

    /// The request counter, if any.
    pub(super) fn counter(&self) -> Option<&RequestCounter> {
        self.counter.as_ref()
    }

    /// The runtime of the opened stores.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// The value of a variable, or `None` if it is unset or empty. The AWS, Google and Azure tools treat both alike.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Whether a variable is set to `true` or `1`.
    #[cfg(any(feature = "s3", feature = "azure"))]
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.var(name)
            .is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
    }

    /// The non-empty variables whose names start with `prefix`.
    pub fn vars_with_prefix(&self, prefix: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.env
            .iter()
            .filter(move |(name, value)| name.starts_with(prefix) && !value.is_empty())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The user's home directory.
    #[cfg(any(feature = "sqlite", feature = "s3", feature = "gcs"))]
    pub(crate) fn home(&self) -> Option<PathBuf> {
        let name = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
        self.var(name).map(PathBuf::from)
    }

    /// Expands a leading `~/`.
    #[cfg(any(feature = "sqlite", feature = "s3", feature = "gcs"))]
    pub(crate) fn expand_home(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), self.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => path.into(),
        }
    }
}

impl fmt::Debug for OpenOptions {
    /// Prints the names of the variables without their values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
