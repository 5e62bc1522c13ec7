//! The settings file `qo.toml`: finding, reading and validating it.
//!
//! Error messages never repeat a value from the file, because a URL in it may contain credentials.

use std::path::{Path, PathBuf};

use super::encryption::{self, SectionKeys};
use super::nearest::nearest;
use crate::environment::Environment;
use crate::failure::Failure;

/// The name of the file.
pub const FILE_NAME: &str = "qo.toml";
/// Maximum size of the file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The top-level keys.
const TOP_KEYS: [&str; 7] = [
    "store",
    "profile",
    "profiles",
    "schedules",
    "worker",
    encryption::FILE_KEY,
    encryption::COMMAND_KEY,
];
/// The keys of a profile.
const PROFILE_KEYS: [&str; 4] = [
    "store",
    "worker",
    encryption::FILE_KEY,
    encryption::COMMAND_KEY,
];

/// A settings file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SettingsFile {
    /// Path of the file.
    pub path: PathBuf,
    /// The store URL, used if no profile is selected or the selected one has none.
    pub store: Option<String>,
    /// The default profile.
    pub profile: Option<String>,
    /// The profiles.
    pub profiles: Vec<(String, Profile)>,
    /// The `[worker]` section, parsed by the worker command.
    pub worker: toml::Table,
    /// The source of encryption keys.
    pub encryption: SectionKeys,
    /// The `[schedules]` section, parsed by the worker command.
    pub schedules: toml::Table,
}

/// A named set of settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// The store URL.
    pub store: Option<String>,
    /// Overrides of the file's `[worker]` section.
    pub worker: toml::Table,
    /// The source of encryption keys.
    pub encryption: SectionKeys,
}

impl SettingsFile {
    /// The profile of this name.
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        let mut profiles = self.profiles.iter();
        profiles
            .find(|(own, _)| own == name)
            .map(|(_, profile)| profile)
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |reason: String| {
            Failure::bad_input(format!("cannot read {}: {reason}", path.display()))
        };
        let size = std::fs::metadata(path)
            .map_err(|error| failed(error.to_string()))?
            .len();
        if size > FILE_BYTES_MAX {
            return Err(failed(format!(
                "the file has {size} bytes; the maximum is {FILE_BYTES_MAX}"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(path, &text)
    }

    /// Parses the contents of a file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let table: toml::Table = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                1 + text.get(..span.start).unwrap_or(text).matches('\n').count()
            });
            Failure::bad_input(format!(
                "{} is not valid TOML: line {line}: {}",
                path.display(),
                error.message()
            ))
        })?;
        let location = ConfigSection { path, name: "" };
        location.check_keys(&table, &TOP_KEYS)?;
        let mut profiles = Vec::new();
        for (name, value) in location.table(&table, "profiles")? {
            let section = format!("profiles.{name}");
            let location = ConfigSection {
                path,
                name: &section,
            };
            let Some(profile) = value.as_table() else {
                return Err(location.wrong_type("", "a table", &value));
            };
            location.check_keys(profile, &PROFILE_KEYS)?;
            profiles.push((
                name,
                Profile {
                    store: location.text(profile, "store")?,
                    worker: location.table(profile, "worker")?,
                    encryption: location.encryption(profile)?,
                },
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            store: location.text(&table, "store")?,
            profile: location.text(&table, "profile")?,
            profiles,
            worker: location.table(&table, "worker")?,
            encryption: location.encryption(&table)?,
            schedules: location.table(&table, "schedules")?,
        })
    }
}

/// A section of a settings file, for error messages.
#[derive(Debug, Clone, Copy)]
pub struct ConfigSection<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// Name of the section, such as `worker.exec`; empty at the top level.
    pub name: &'a str,
}

impl ConfigSection<'_> {
    fn full_key(&self, key: &str) -> String {
        match (self.name, key) {
            ("", key) => key.to_owned(),
            (section, "") => section.to_owned(),
            (section, key) => format!("{section}.{key}"),
        }
    }

    /// Rejects unknown keys, with a suggestion.
    pub fn check_keys(&self, table: &toml::Table, known: &[&str]) -> Result<(), Failure> {
        let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let failure = Failure::bad_input(format!(
            "unknown key {:?} in {}",
            self.full_key(unknown),
            self.path.display()
        ));
        let lower = unknown.to_ascii_lowercase();
        let is_secret = ["secret", "password", "token", "access_key", "credential"]
            .iter()
            .any(|word| lower.contains(word));
        Err(if is_secret {
            failure.hint("do not put credentials into this file: use environment variables, or an AWS profile with ?profile= in the store URL")
        } else {
            failure.hint(match nearest(unknown, known) {
                Some(suggestion) => format!("did you mean {suggestion:?}?"),
                None => format!("known keys: {}", known.join(", ")),
            })
        })
    }

    /// A string; `None` if the key is missing.
    pub fn text(&self, table: &toml::Table, key: &str) -> Result<Option<String>, Failure> {
        match table.get(key) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong_type(key, "a string in quotes", other)),
        }
    }

    /// The source of encryption keys.
    fn encryption(&self, table: &toml::Table) -> Result<SectionKeys, Failure> {
        Ok(SectionKeys {
            file: self.text(table, encryption::FILE_KEY)?,
            command: self.text(table, encryption::COMMAND_KEY)?,
        })
    }

    /// A table; empty if the key is missing.
    pub fn table(&self, table: &toml::Table, key: &str) -> Result<toml::Table, Failure> {
        match table.get(key) {
            None => Ok(toml::Table::new()),
            Some(toml::Value::Table(table)) => Ok(table.clone()),
            Some(other) => Err(self.wrong_type(key, "a table", other)),
        }
    }

    /// The error for a value of the wrong type.
    pub fn wrong_type(&self, key: &str, expected: &str, value: &toml::Value) -> Failure {
        Failure::bad_input(format!(
            "{:?} in {} has type {}; expected {expected}",
            self.full_key(key),
            self.path.display(),
            value.type_str()
        ))
    }
}

/// The default settings file: in the current directory, the closest parent directory, or the user's configuration directory.
pub fn find(environment: &Environment) -> Option<PathBuf> {
    environment
        .directory
        .ancestors()
        .map(|directory| directory.join(FILE_NAME))
        .chain(
            environment
                .config_directory()
                .map(|directory| directory.join("qo").join(FILE_NAME)),
        )
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SettingsFile, Failure> {
        SettingsFile::parse(Path::new("dir/qo.toml"), text)
    }

    #[test]
    fn all_keys_are_parsed() {
        let file = parse(
            r#"
            store = "sqlite:queue.db"
            profile = "dev"
            [profiles.dev]
            store = "memory:"
            [profiles.prod]
            store = "s3://bucket"
            [profiles.prod.worker]
            concurrency = 64
            [worker]
            concurrency = 4
            "#,
        )
        .unwrap();
        assert_eq!(file.store.as_deref(), Some("sqlite:queue.db"));
        assert_eq!(file.profile.as_deref(), Some("dev"));
        let prod = file.profile("prod").unwrap();
        assert_eq!(prod.store.as_deref(), Some("s3://bucket"));
        assert_eq!(prod.worker["concurrency"].as_integer(), Some(64));
        assert_eq!(file.worker["concurrency"].as_integer(), Some(4));
        assert!(file.profile("test").is_none());
    }

    #[test]
    fn an_unknown_key_is_reported_with_its_file_and_a_suggestion() {
        let failure = parse("stroe = 'memory:'").unwrap_err();
        assert!(
            failure.message.contains("\"stroe\" in dir/qo.toml"),
            "{failure}"
        );
        assert_eq!(failure.hint.unwrap(), "did you mean \"store\"?");
        let failure = parse("[profiles.prod]\nbucket = 'b'").unwrap_err();
        assert!(
            failure.message.contains("\"profiles.prod.bucket\""),
            "{failure}"
        );
        assert!(
            failure
                .hint
                .unwrap()
                .starts_with("known keys: store, worker")
        );
        let failure = parse("aws_secret_access_key = 'hidden'").unwrap_err();
        assert!(!failure.message.contains("hidden"));
        assert!(failure.hint.unwrap().contains("do not put credentials"));
    }

    #[test]
    fn a_syntax_error_names_the_line_and_never_repeats_a_value() {
        let failure = parse("store = 'memory:'\nworker = s3cr3t").unwrap_err();
        assert!(failure.message.contains("line 2"), "{failure}");
        assert!(!failure.message.contains("s3cr3t"), "{failure}");
        let failure = parse("store = 7").unwrap_err();
        assert!(failure.message.contains("integer") && failure.message.contains("a string"));
        let failure = parse("profiles.prod = 's'").unwrap_err();
        assert!(failure.message.contains("profiles.prod"), "{failure}");
    }
}
