//! What surrounds a run of the command: variables and the current directory, as values, so that a test gives its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use qo::OpenOptions;
use qo_store::runtime::Runtime;

/// Variables and the current directory.
#[derive(Clone, Default)]
pub struct Environment {
    /// The variables. Those that are not text are left out.
    pub variables: BTreeMap<String, String>,
    /// Where relative paths begin, and where the search for `qo.toml` does.
    pub directory: PathBuf,
}

impl Environment {
    /// That of this process.
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

    /// The surroundings in which a store is opened.
    pub fn open_options(&self, runtime: Arc<dyn Runtime>) -> OpenOptions {
        self.variables
            .iter()
            .fold(OpenOptions::new(runtime), |options, (name, value)| {
                options.with_var(name, value)
            })
    }

    /// The user's directory for settings, whose subdirectory `qo` is ours.
    pub fn config_directory(&self) -> Option<PathBuf> {
        // The specification of the XDG directories says to ignore a relative path.
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
    /// Names the variables and keeps their values to itself: some are credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.keys().collect::<Vec<_>>())
            .field("directory", &self.directory)
            .finish()
    }
}
