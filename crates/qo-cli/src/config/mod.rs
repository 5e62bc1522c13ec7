//! Which store is meant, and where that was said.
//!
//! From the strongest to the weakest: a flag, the environment, the chosen profile of the settings file, the settings file itself, the
//! default. One rule for everything, so that nobody has to look it up.

pub mod file;
pub mod near;

use std::fmt;
use std::path::{Path, PathBuf};

pub use self::file::{Place, SettingsFile};

use crate::args::GlobalArgs;
use crate::environment::Environment;
use crate::failure::Failure;

/// Where a setting was found.
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
    /// Nowhere: the default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "the flag {name}"),
            Self::Variable(name) => write!(f, "the environment variable {name}"),
            Self::Profile { name, path } => {
                write!(f, "the profile {name} in {}", path.display())
            }
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A setting, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// Its value.
    pub value: T,
    /// Where it was found.
    pub origin: Origin,
}

/// What holds for this run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The store's URL; nothing, where the default is meant.
    pub store: Setting<Option<String>>,
    /// The chosen profile.
    pub profile: Option<Setting<String>>,
    /// The settings file, if there is one.
    pub file: Option<SettingsFile>,
    /// Where the file was named; the default, if it was found by itself.
    pub file_origin: Origin,
    /// The profile's `[worker]` section over the file's own.
    pub worker: toml::Table,
    /// What somebody should know about the choice.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Puts together what flags, environment and file say.
    pub fn resolve(args: &GlobalArgs, environment: &Environment) -> Result<Self, Failure> {
        let (file, file_origin) = settings_file(args, environment)?;
        let mut settings = Self {
            store: Setting {
                value: None,
                origin: Origin::Default,
            },
            profile: chosen_profile(args, environment, file.as_ref()),
            worker: file
                .as_ref()
                .map(|file| file.worker.clone())
                .unwrap_or_default(),
            file,
            file_origin,
            warnings: Vec::new(),
        };
        let profile = settings.find_profile()?;
        if let Some((_, _, profile)) = &profile {
            for (key, value) in &profile.worker {
                settings.worker.insert(key.clone(), value.clone());
            }
        }
        let profile_store = profile.and_then(|(name, path, profile)| {
            Some(Setting {
                value: Some(beside(&profile.store?, &path)),
                origin: Origin::Profile { name, path },
            })
        });
        let file_store = settings.file.as_ref().and_then(|file| {
            Some(Setting {
                value: Some(beside(file.store.as_ref()?, &file.path)),
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
                "the store comes from {}, which is above {}; unset it, or give --store",
                variable.origin, profile.origin
            ));
        }
        if let Some(store) = flag.or(variable).or(profile_store).or(file_store) {
            settings.store = store;
        }
        Ok(settings)
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
                "{origin} asks for the profile {name:?}, but there is no {} here, above, or in the user's settings",
                file::FILE_NAME
            ))
            .hint(format!("write one with [profiles.{name}] and store = \"…\", or name one with --config")));
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
            "{origin} asks for the profile {name:?}, which {} does not have",
            file.path.display()
        ));
        Err(match near::nearest(name, &known) {
            Some(near) => failure.hint(format!("did you mean {near:?}?")),
            None if known.is_empty() => failure.hint("it has no profiles at all"),
            None => failure.hint(format!("it has {}", known.join(", "))),
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

fn chosen_profile(
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

/// A relative path of an SQLite file in a settings file begins where the settings file is, wherever the command is run.
fn beside(url: &str, file: &Path) -> String {
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

    struct Place(tempfile::TempDir);

    impl Place {
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
    fn flag_above_environment_above_profile_above_file_above_default() {
        let place = Place::with(FILE);
        for (flags, variables, url, origin) in [
            (&[][..], &[][..], "memory:file", "the file"),
            (
                &[("--profile", "dev")],
                &[],
                "memory:dev",
                "the profile dev",
            ),
            (
                &[],
                &[("QO_PROFILE", "dev")],
                "memory:dev",
                "the profile dev",
            ),
            (&[("--profile", "bare")], &[], "memory:file", "the file"),
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
                "the profile dev",
            ),
        ] {
            let settings = place.resolve(flags, variables).unwrap();
            assert_eq!(settings.store.value.as_deref(), Some(url));
            let told = settings.store.origin.to_string();
            assert!(told.contains(origin), "{told}");
        }
        let empty = Place::with("");
        let settings = empty.resolve(&[], &[]).unwrap();
        assert_eq!(settings.store.value, None);
        assert_eq!(settings.store.origin, Origin::Default);
    }

    #[test]
    fn a_profile_that_was_asked_for_and_is_passed_over_is_warned_about() {
        let place = Place::with(FILE);
        let variables = [("QO_STORE", "memory:env")];
        let settings = place.resolve(&[("--profile", "dev")], &variables).unwrap();
        assert!(settings.warnings[0].contains("QO_STORE"), "{settings:?}");
        let settings = place.resolve(&[], &variables).unwrap();
        assert!(settings.warnings.is_empty());
    }

    #[test]
    fn a_profile_overlays_the_workers_settings() {
        let place = Place::with(FILE);
        let settings = place.resolve(&[("--profile", "bare")], &[]).unwrap();
        assert_eq!(settings.worker["concurrency"].as_integer(), Some(3));
        let settings = place.resolve(&[], &[]).unwrap();
        assert_eq!(settings.worker["concurrency"].as_integer(), Some(1));
    }

    #[test]
    fn a_missing_profile_or_file_is_an_error_that_names_what_there_is() {
        let place = Place::with(FILE);
        let failure = place.resolve(&[("--profile", "dve")], &[]).unwrap_err();
        assert_eq!(failure.hint.unwrap(), "did you mean \"dev\"?");
        let failure = place
            .resolve(&[("--config", "other.toml")], &[])
            .unwrap_err();
        assert!(failure.message.contains("other.toml"), "{failure}");
    }

    #[test]
    fn a_relative_database_lies_beside_its_file() {
        let file = Path::new("/etc/app/qo.toml");
        for (url, expected) in [
            ("sqlite:queue.db", "sqlite:/etc/app/queue.db"),
            ("sqlite:data/q.db?x=1", "sqlite:/etc/app/data/q.db?x=1"),
            ("sqlite:/var/q.db", "sqlite:/var/q.db"),
            ("sqlite:~/q.db", "sqlite:~/q.db"),
            ("s3://bucket/sqlite:q", "s3://bucket/sqlite:q"),
        ] {
            assert_eq!(beside(url, file), expected);
        }
    }
}
