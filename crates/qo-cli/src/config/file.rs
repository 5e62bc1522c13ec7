//! The settings file `qo.toml`: finding it, reading it, and saying precisely what is wrong with it.
//!
//! No message repeats a value of the file: a URL that was pasted into it can hold a credential.

use std::path::{Path, PathBuf};

use super::near;
use crate::environment::Environment;
use crate::failure::Failure;

/// The name of the file.
pub const FILE_NAME: &str = "qo.toml";
/// A larger file is none of ours.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The keys at the top of the file.
const TOP_KEYS: [&str; 4] = ["store", "profile", "profiles", "worker"];
/// The keys of a profile.
const PROFILE_KEYS: [&str; 2] = ["store", "worker"];

/// What a settings file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SettingsFile {
    /// Which file.
    pub path: PathBuf,
    /// The store's URL, if no profile is chosen or the chosen one has none.
    pub store: Option<String>,
    /// The profile that is chosen if nothing else chooses one.
    pub profile: Option<String>,
    /// Named settings.
    pub profiles: Vec<(String, Profile)>,
    /// How workers work; read by the worker command.
    pub worker: toml::Table,
}

/// Named settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// The store's URL.
    pub store: Option<String>,
    /// What differs from the file's own `[worker]`.
    pub worker: toml::Table,
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
                "it has {size} bytes, and a settings file has at most {FILE_BYTES_MAX}"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(path, &text)
    }

    /// Reads the text of a file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let table: toml::Table = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                1 + text.get(..span.start).unwrap_or(text).matches('\n').count()
            });
            Failure::bad_input(format!(
                "{} is not TOML: line {line}: {}",
                path.display(),
                error.message()
            ))
        })?;
        let place = Place { path, section: "" };
        place.check_keys(&table, &TOP_KEYS)?;
        let mut profiles = Vec::new();
        for (name, value) in place.table(&table, "profiles")? {
            let section = format!("profiles.{name}");
            let place = Place {
                path,
                section: &section,
            };
            let Some(profile) = value.as_table() else {
                return Err(place.wrong_type("", "a table", &value));
            };
            place.check_keys(profile, &PROFILE_KEYS)?;
            profiles.push((
                name,
                Profile {
                    store: place.text(profile, "store")?,
                    worker: place.table(profile, "worker")?,
                },
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            store: place.text(&table, "store")?,
            profile: place.text(&table, "profile")?,
            profiles,
            worker: place.table(&table, "worker")?,
        })
    }
}

/// A section of a settings file, for what there is to say about it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Which file.
    pub path: &'a Path,
    /// Which section, such as `worker.exec`; empty at the top.
    pub section: &'a str,
}

impl Place<'_> {
    fn name(&self, key: &str) -> String {
        match (self.section, key) {
            ("", key) => key.to_owned(),
            (section, "") => section.to_owned(),
            (section, key) => format!("{section}.{key}"),
        }
    }

    /// Refuses a key that is not among the known ones, by name and with what may have been meant.
    pub fn check_keys(&self, table: &toml::Table, known: &[&str]) -> Result<(), Failure> {
        let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let failure = Failure::bad_input(format!(
            "unknown key {:?} in {}",
            self.name(unknown),
            self.path.display()
        ));
        let lower = unknown.to_ascii_lowercase();
        let is_secret = ["secret", "password", "token", "access_key", "credential"]
            .iter()
            .any(|word| lower.contains(word));
        Err(if is_secret {
            failure.hint("credentials do not belong into this file: use the environment, or a profile of the AWS tools with ?profile= in the store URL")
        } else {
            failure.hint(match near::nearest(unknown, known) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("known here: {}", known.join(", ")),
            })
        })
    }

    /// A text.
    pub fn text(&self, table: &toml::Table, key: &str) -> Result<Option<String>, Failure> {
        match table.get(key) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong_type(key, "a text in quotes", other)),
        }
    }

    /// A table; an empty one, if there is none.
    pub fn table(&self, table: &toml::Table, key: &str) -> Result<toml::Table, Failure> {
        match table.get(key) {
            None => Ok(toml::Table::new()),
            Some(toml::Value::Table(table)) => Ok(table.clone()),
            Some(other) => Err(self.wrong_type(key, "a table", other)),
        }
    }

    /// Refuses a value of the wrong type.
    pub fn wrong_type(&self, key: &str, wanted: &str, found: &toml::Value) -> Failure {
        Failure::bad_input(format!(
            "{:?} in {} is of type {}: make it {wanted}",
            self.name(key),
            self.path.display(),
            found.type_str()
        ))
    }
}

/// The file that is used when none is named: in the current directory or the nearest one above it, else the user's own.
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
    fn everything_can_be_said() {
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
    fn an_unknown_key_is_named_with_its_file_and_what_may_have_been_meant() {
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
        assert_eq!(failure.hint.unwrap(), "known here: store, worker");
        let failure = parse("aws_secret_access_key = 'hidden'").unwrap_err();
        assert!(!failure.message.contains("hidden"));
        assert!(failure.hint.unwrap().contains("credentials do not belong"));
    }

    #[test]
    fn what_is_not_toml_is_named_by_its_line_and_never_repeated() {
        let failure = parse("store = 'memory:'\nworker = s3cr3t").unwrap_err();
        assert!(failure.message.contains("line 2"), "{failure}");
        assert!(!failure.message.contains("s3cr3t"), "{failure}");
        let failure = parse("store = 7").unwrap_err();
        assert!(failure.message.contains("integer") && failure.message.contains("a text"));
        let failure = parse("profiles.prod = 's'").unwrap_err();
        assert!(failure.message.contains("profiles.prod"), "{failure}");
    }
}
