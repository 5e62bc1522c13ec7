//! Environment variables and the current directory, as a value that tests can replace.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use qo::OpenOptions;
use qo_store::runtime::Runtime;

/// Environment variables and the current directory.
#[derive(Clone, Default)]
pub struct Environment {
    /// The variables, without those that are not UTF-8.
    pub variables: BTreeMap<String, String>,
    /// The base of relative paths and the start of the search for `qo.toml`.
    pub directory: PathBuf,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            variables,
            directory: std::env::current_dir().unwrap_or_default(),
        }
    }

    /// A variable that is set and not empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The options for opening a store with these variables.
    pub fn open_options(&self, runtime: Arc<dyn Runtime>) -> OpenOptions {
        self.variables
            .iter()
            .fold(OpenOptions::new(runtime), |options, (name, value)| {
                options.with_var(name, value)
            })
    }

    /// The user's cache directory, which contains the subdirectory `qo`.
    pub fn cache_directory(&self) -> Option<PathBuf> {
        let xdg = self.var("XDG_CACHE_HOME").map(PathBuf::from);
        xdg.filter(|path| path.is_absolute())
            .or_else(|| Some(PathBuf::from(self.var("HOME")?).join(".cache")))
    }

    /// The user's configuration directory, which contains the subdirectory `qo`.
    pub fn config_directory(&self) -> Option<PathBuf> {
        // The XDG base directory specification says that relative paths must be ignored.
        let xdg = self.var("XDG_CONFIG_HOME").map(PathBuf::from);
        xdg.filter(|path| path.is_absolute()).or_else(|| {
            if cfg!(windows) {
                self.var("APPDATA").map(PathBuf::from)
            } else {
                Some(PathBuf::from(self.var("HOME")?).join(".config"))
            }
        })
    }
}

impl std::fmt::Debug for Environment {
    /// Prints the names of the variables only: some values are credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.keys().collect::<Vec<_>>())
            .field("directory", &self.directory)
            .finish()
    }
}
