//! Settings from the environment and from `qo.toml`.

use std::fmt::Display;

use qo::QueueName;

use crate::args::worker::WorkerArgs;
use crate::config::ConfigSection;
use crate::environment::Environment;
use crate::failure::Failure;

/// Sources of settings that no flag gives.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) environment: &'a Environment,
    pub(super) location: ConfigSection<'a>,
    pub(super) section: &'a toml::Table,
}

impl Sources<'_> {
    /// A setting with one value.
    pub(super) fn one<T>(
        self,
        flag: Option<T>,
        variable: &str,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        if flag.is_some() {
            return Ok(flag);
        }
        if let Some(text) = self.environment.var(variable) {
            return parse(text)
                .map(Some)
                .map_err(|problem| invalid(variable, &problem));
        }
        let Some(value) = self.section.get(key) else {
            return Ok(None);
        };
        let text = self.text(key, value)?;
        parse(&text)
            .map(Some)
            .map_err(|problem| self.invalid_key(key, &problem))
    }

    /// A variable.
    pub(super) fn variable<T>(
        self,
        variable: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        let text = self.environment.var(variable);
        text.map(parse)
            .transpose()
            .map_err(|problem| invalid(variable, &problem))
    }

    /// A setting with several values.
    pub(super) fn many<T: Clone>(
        self,
        flags: &[T],
        variable: &str,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Failure> {
        if !flags.is_empty() {
            return Ok(flags.to_vec());
        }
        if let Some(text) = self.environment.var(variable) {
            let words = text
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty());
            return words
                .map(&parse)
                .collect::<Result<_, _>>()
                .map_err(|problem| invalid(variable, &problem));
        }
        let texts = self.strings(key)?;
        texts
            .iter()
            .map(|text| parse(text))
            .collect::<Result<_, _>>()
            .map_err(|problem| self.invalid_key(key, &problem))
    }

    /// The queues to serve: the default queue unless others are named. An empty list means every queue.
    pub(super) fn queues(self, args: &WorkerArgs) -> Result<Vec<QueueName>, Failure> {
        if args.all_queues {
            return Ok(Vec::new());
        }
        let named = self.many(&args.queue, "QO_QUEUES", "queues", parsed)?;
        if !named.is_empty() {
            return Ok(named);
        }
        let all = self.one(None, "QO_ALL_QUEUES", "all_queues", switch)?;
        Ok(match all {
            Some(true) => Vec::new(),
            _ => vec![QueueName::default()],
        })
    }

    /// The headers. They have no environment variable, but can refer to variables.
    pub(super) fn headers(self, flags: &[String]) -> Result<Vec<String>, Failure> {
        if flags.is_empty() {
            self.strings("http_headers")
        } else {
            Ok(flags.to_vec())
        }
    }

    /// The strings of a list; empty if the key is missing.
    pub(super) fn strings(self, key: &str) -> Result<Vec<String>, Failure> {
        match self.section.get(key) {
            None => Ok(Vec::new()),
            Some(toml::Value::Array(values)) => {
                values.iter().map(|value| self.text(key, value)).collect()
            }
            Some(value) => {
                Err(self
                    .location
                    .wrong_type(key, "a list, such as [\"a\", \"b\"]", value))
            }
        }
    }

    /// A value as it would be typed on the command line.
    fn text(self, key: &str, value: &toml::Value) -> Result<String, Failure> {
        match value {
            toml::Value::String(text) => Ok(text.clone()),
            toml::Value::Integer(number) => Ok(number.to_string()),
            toml::Value::Float(number) => Ok(number.to_string()),
            toml::Value::Boolean(value) => Ok(value.to_string()),
            other => Err(self.location.wrong_type(key, "a string or a number", other)),
        }
    }

    fn invalid_key(self, key: &str, problem: &str) -> Failure {
        let ConfigSection { path, name } = self.location;
        let name = format!("\"{name}.{key}\" in {}", path.display());
        invalid(&name, problem)
    }
}

fn invalid(name: &str, problem: &str) -> Failure {
    Failure::bad_input(format!("{name}: {problem}"))
}

/// Parses any type that implements `FromStr`.
pub(super) fn parsed<T: std::str::FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Parses a boolean.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}
