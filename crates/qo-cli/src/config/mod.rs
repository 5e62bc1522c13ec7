//! The settings in effect and where each comes from.
//!
//! Precedence, highest first: flags, environment variables, the selected profile of the settings file, the settings file itself,
//! defaults. The same order applies to every setting.

pub mod encryption;
pub mod file;
pub mod nearest;
pub mod schedules;

use std::fmt;
use std::path::{Path, PathBuf};

pub use self::encryption::KeySource;
pub use self::file::{ConfigSection, SettingsFile};
pub use self::schedules::schedules;

use crate::args::GlobalArgs;
use crate::environment::Environment;
use crate::failure::Failure;

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Flag(&'static str),
    /// In the environment.
    Variable(&'static str),
    /// In a profile of the settings file.
    Profile {
        /// The profile.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// In the settings file.
    File(PathBuf),
    /// The default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Profile { name, path } => {
                write!(f, "profile {name} in {}", path.display())
            }
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A setting and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// Its value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

/// The settings in effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The store URL; `None` for the default store.
    pub store: Setting<Option<String>>,
    /// The selected profile.
    pub profile: Option<Setting<String>>,
    /// The settings file, if there is one.
    pub file: Option<SettingsFile>,
    /// Where the file's path comes from; [`Origin::Default`] if it was found by searching.
    pub file_origin: Origin,
    /// The file's `[worker]` section with the overrides of the profile.
    pub worker: toml::Table,
    /// Warnings to print.
    pub warnings: Vec<String>,
    /// Where the encryption keys come from, if there are any.
    pub encryption: Option<Setting<KeySource>>,
}

impl Settings {
    /// Combines flags, environment and settings file.
    pub fn resolve(args: &GlobalArgs, environment: &Environment) -> Result<Self, Failure> {
        let (file, file_origin) = settings_file(args, environment)?;
        let mut settings = Self {
            store: Setting {
                value: None,
                origin: Origin::Default,
            },
            profile: selected_profile(args, environment, file.as_ref()),
            worker: file
                .as_ref()
                .map(|file| file.worker.clone())
                .unwrap_or_default(),
            file,
            file_origin,
            warnings: Vec::new(),
            encryption: None,
        };
        let profile = settings.find_profile()?;
        settings.encryption = settings.key_source(args, environment, profile.as_ref())?;
        if let Some((_, _, profile)) = &profile {
            for (key, value) in &profile.worker {
                settings.worker.insert(key.clone(), value.clone());
            }
        }
        let profile_store = profile.and_then(|(name, path, profile)| {
            Some(Setting {
                value: Some(resolve_path(&profile.store?, &path)),
                origin: Origin::Profile { name, path },
            })
        });
        let file_store = settings.file.as_ref().and_then(|file| {
            Some(Setting {
                value: Some(resolve_path(file.store.as_ref()?, &file.path)),
                origin: Origin::File(file.path.clone()),
            })
        });
        let flag = args.store.as_ref().map(|url| Setting {
            value: Some(url.clone()),
            origin: Origin::Flag("--store"),
        });
        let variable = ["QO_STORE", "S3_BUCKET"].into_iter().find_map(|name| {
            let value = environment.var(name)?;
            Some(Setting {
                value: Some(match name {
                    "S3_BUCKET" => format!("s3://{value}"),
                    _ => value.to_owned(),
                }),
                origin: Origin::Variable(name),
            })
        });
        if let (None, Some(variable), Some(profile), Some(_)) =
            (&flag, &variable, &profile_store, &args.profile)
        {
            settings.warnings.push(format!(
                "the store comes from {}, which takes precedence over {}; unset it, or use --store",
                variable.origin, profile.origin
            ));
        }
        if let Some(store) = flag.or(variable).or(profile_store).or(file_store) {
            settings.store = store;
        }
        Ok(settings)
    }

    fn key_source(
        &self,
        args: &GlobalArgs,
        environment: &Environment,
        profile: Option<&(String, PathBuf, file::Profile)>,
    ) -> Result<Option<Setting<KeySource>>, Failure> {
        let in_profile = profile.map(|(name, path, profile)| encryption::Section {
            keys: &profile.encryption,
            path,
            origin: Origin::Profile {
                name: name.clone(),
                path: path.clone(),
            },
        });
        let in_file = self.file.as_ref().map(|file| encryption::Section {
            keys: &file.encryption,
            path: &file.path,
            origin: Origin::File(file.path.clone()),
        });
        encryption::resolve(args, environment, in_profile.into_iter().chain(in_file))
    }

    fn find_profile(&self) -> Result<Option<(String, PathBuf, file::Profile)>, Failure> {
        let Some(Setting {
            value: name,
            origin,
        }) = &self.profile
        else {
            return Ok(None);
        };
        let Some(file) = &self.file else {
            return Err(Failure::bad_input(format!(
                "{origin} selects profile {name:?}, but there is no {} in this directory, its parents or the user's configuration directory",
                file::FILE_NAME
            ))
            .hint(format!("create one with [profiles.{name}] and store = \"...\", or pass one with --config")));
        };
        if let Some(profile) = file.profile(name) {
            return Ok(Some((name.clone(), file.path.clone(), profile.clone())));
        }
        let known: Vec<&str> = file
            .profiles
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let failure = Failure::bad_input(format!(
            "{origin} selects profile {name:?}, but {} does not define it",
            file.path.display()
        ));
        Err(match nearest::nearest(name, &known) {
            Some(suggestion) => failure.hint(format!("did you mean {suggestion:?}?")),
            None if known.is_empty() => failure.hint("the file defines no profiles"),
            None => failure.hint(format!("known profiles: {}", known.join(", "))),
        })
    }
}

fn settings_file(
    args: &GlobalArgs,
    environment: &Environment,
) -> Result<(Option<SettingsFile>, Origin), Failure> {
    let named = match (&args.config, environment.var("QO_CONFIG")) {
        (Some(path), _) => Some((path.clone(), Origin::Flag("--config"))),
        (None, Some(path)) => Some((PathBuf::from(path), Origin::Variable("QO_CONFIG"))),
        (None, None) => None,
    };
    let (path, origin) = match named {
        Some((path, origin)) => (environment.directory.join(path), origin),
        None => match file::find(environment) {
            Some(path) => (path, Origin::Default),
            None => return Ok((None, Origin::Default)),
        },
    };
    Ok((Some(SettingsFile::read(&path)?), origin))
}

fn selected_profile(
    args: &GlobalArgs,
    environment: &Environment,
    file: Option<&SettingsFile>,
) -> Option<Setting<String>> {
    let flag = args.profile.clone().map(|value| Setting {
        value,
        origin: Origin::Flag("--profile"),
    });
    let variable = environment.var("QO_PROFILE").map(|value| Setting {
        value: value.to_owned(),
        origin: Origin::Variable("QO_PROFILE"),
    });
    let in_file = file.and_then(|file| {
        Some(Setting {
            value: file.profile.clone()?,
            origin: Origin::File(file.path.clone()),
        })
    });
    flag.or(variable).or(in_file)
}

/// Resolves a relative path of an SQLite store against the directory of the settings file.
fn resolve_path(url: &str, file: &Path) -> String {
    let Some(path) = url.strip_prefix("sqlite:") else {
        return url.to_owned();
    };
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (path, String::new()),
    };
    if path.is_empty() || path.starts_with(['/', '~', '%']) || Path::new(path).is_absolute() {
        return url.to_owned();
    }
    let directory = file.parent().unwrap_or(Path::new(""));
    format!("sqlite:{}{query}", directory.join(path).display())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestDirectory(tempfile::TempDir);

    impl TestDirectory {
        fn with(text: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("qo.toml"), text).unwrap();
            Self(directory)
        }

        fn resolve(
            &self,
            flags: &[(&str, &str)],
            variables: &[(&str, &str)],
        ) -> Result<Settings, Failure> {
            let flag = |name: &str| {
                let mut flags = flags.iter();
                flags
                    .find(|(own, _)| *own == name)
                    .map(|(_, value)| (*value).to_owned())
            };
            let args = GlobalArgs {
                store: flag("--store"),
                profile: flag("--profile"),
                config: flag("--config").map(PathBuf::from),
                ..GlobalArgs::default()
            };
            let environment = Environment {
                variables: variables
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
                directory: self.0.path().to_owned(),
            };
            Settings::resolve(&args, &environment)
        }
    }

    const FILE: &str = r#"
        store = "memory:file"
        [profiles.dev]
        store = "memory:dev"
        [profiles.bare]
        worker.concurrency = 3
        [worker]
        concurrency = 1
    "#;

    #[test]
    fn flags_override_environment_overrides_profile_overrides_file_overrides_default() {
        let directory = TestDirectory::with(FILE);
        for (flags, variables, url, origin) in [
            (&[][..], &[][..], "memory:file", "file"),
            (&[("--profile", "dev")], &[], "memory:dev", "profile dev"),
            (&[], &[("QO_PROFILE", "dev")], "memory:dev", "profile dev"),
            (&[("--profile", "bare")], &[], "memory:file", "file"),
            (&[], &[("S3_BUCKET", "b")], "s3://b", "S3_BUCKET"),
            (
                &[("--profile", "dev")],
                &[("QO_STORE", "memory:env"), ("S3_BUCKET", "b")],
                "memory:env",
                "QO_STORE",
            ),
            (
                &[("--profile", "dev"), ("--store", "memory:flag")],
                &[("QO_STORE", "memory:env")],
                "memory:flag",
                "--store",
            ),
            (
                &[("--profile", "dev")],
                &[("QO_PROFILE", "missing"), ("QO_STORE", "")],
                "memory:dev",
                "profile dev",
            ),
        ] {
            let settings = directory.resolve(flags, variables).unwrap();
            assert_eq!(settings.store.value.as_deref(), Some(url));
            let shown = settings.store.origin.to_string();
            assert!(shown.contains(origin), "{shown}");
        }
        let empty = TestDirectory::with("");
        let settings = empty.resolve(&[], &[]).unwrap();
        assert_eq!(settings.store.value, None);
        assert_eq!(settings.store.origin, Origin::Default);
    }

    #[test]
    fn a_selected_profile_without_effect_gives_a_warning() {
        let directory = TestDirectory::with(FILE);
        let variables = [("QO_STORE", "memory:env")];
        let settings = directory
            .resolve(&[("--profile", "dev")], &variables)
            .unwrap();
        assert!(settings.warnings[0].contains("QO_STORE"), "{settings:?}");
        let settings = directory.resolve(&[], &variables).unwrap();
        assert!(settings.warnings.is_empty());
    }

    #[test]
    fn a_profile_overrides_worker_settings() {
        let directory = TestDirectory::with(FILE);
        let settings = directory.resolve(&[("--profile", "bare")], &[]).unwrap();
        assert_eq!(settings.worker["concurrency"].as_integer(), Some(3));
        let settings = directory.resolve(&[], &[]).unwrap();
        assert_eq!(settings.worker["concurrency"].as_integer(), Some(1));
    }

    #[test]
    fn a_missing_profile_or_file_is_an_error() {
        let directory = TestDirectory::with(FILE);
        let failure = directory.resolve(&[("--profile", "dve")], &[]).unwrap_err();
        assert_eq!(failure.hint.unwrap(), "did you mean \"dev\"?");
        let failure = directory
            .resolve(&[("--config", "other.toml")], &[])
            .unwrap_err();
        assert!(failure.message.contains("other.toml"), "{failure}");
    }

    #[test]
    fn a_relative_database_path_is_resolved_against_the_file() {
        let file = Path::new("/etc/app/qo.toml");
        for (url, expected) in [
            ("sqlite:queue.db", "sqlite:/etc/app/queue.db"),
            ("sqlite:data/q.db?x=1", "sqlite:/etc/app/data/q.db?x=1"),
            ("sqlite:/var/q.db", "sqlite:/var/q.db"),
            ("sqlite:~/q.db", "sqlite:~/q.db"),
            ("s3://bucket/sqlite:q", "s3://bucket/sqlite:q"),
        ] {
            assert_eq!(resolve_path(url, file), expected);
        }
    }
}
