//! What opening a store may look at: the environment, as a map, and the runtime.
//!
//! Nothing else in this crate reads the process environment, so that a test gives its own and two stores of one process
//! can differ.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::runtime::Runtime;
use crate::wrap::RequestCounter;

/// The surroundings in which a store is opened.
#[derive(Clone)]
pub struct OpenOptions {
    runtime: Arc<dyn Runtime>,
    env: BTreeMap<String, String>,
    counter: Option<RequestCounter>,
}

impl OpenOptions {
    /// An empty environment.
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self {
            runtime,
            env: BTreeMap::new(),
            counter: None,
        }
    }

    /// The environment of this process. Variables that are not text are left out.
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

    /// Counts the requests to everything that is opened.
    #[must_use]
    pub fn counted_by(mut self, counter: RequestCounter) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Who counts requests, if somebody does.
    pub(super) fn counter(&self) -> Option<&RequestCounter> {
        self.counter.as_ref()
    }

    /// Time and randomness for what is opened.
    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// A variable that is set and not empty: the tools whose variables these are take an empty one for none.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Whether a variable is set to `true` or `1`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.var(name)
            .is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
    }

    /// The variables whose name starts with `prefix`, and that are not empty.
    pub fn vars_with_prefix(&self, prefix: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.env
            .iter()
            .filter(move |(name, value)| name.starts_with(prefix) && !value.is_empty())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The user's home directory.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        let name = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
        self.var(name).map(PathBuf::from)
    }
}

impl fmt::Debug for OpenOptions {
    /// Names the variables and keeps their values to itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
