//! Where the encryption keys come from. Keys themselves are never on the command line or in the settings file.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Origin, Setting};
use crate::args::GlobalArgs;
use crate::environment::Environment;
use crate::failure::Failure;

/// The names of the keys in the settings file.
pub const FILE_KEY: &str = "encryption_key_file";
/// The other one.
pub const COMMAND_KEY: &str = "encryption_key_command";
/// The variables.
const VARIABLES: [&str; 3] = [
    "QO_ENCRYPTION_KEYS",
    "QO_ENCRYPTION_KEY_FILE",
    "QO_ENCRYPTION_KEY_COMMAND",
];

/// A source of encryption keys.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The keys themselves, from a variable.
    Text(String),
    /// A file with keys.
    File(PathBuf),
    /// A command that prints keys, for instance one that asks a key management service.
    Command(String),
}

impl fmt::Display for KeySource {
    /// Never shows a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("keys in the environment"),
            Self::File(path) => write!(f, "key file {}", path.display()),
            Self::Command(_) => f.write_str("key command"),
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySource({self})")
    }
}

/// The source that one section of a settings file names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SectionKeys {
    /// A file, relative to the settings file.
    pub file: Option<String>,
    /// A command.
    pub command: Option<String>,
}

impl SectionKeys {
    fn source(&self, settings: &Path) -> Result<Option<KeySource>, Failure> {
        match (&self.file, &self.command) {
            (None, None) => Ok(None),
            (Some(file), None) => {
                let directory = settings.parent().unwrap_or(Path::new(""));
                Ok(Some(KeySource::File(directory.join(file))))
            }
            (None, Some(command)) => Ok(Some(KeySource::Command(command.clone()))),
            (Some(_), Some(_)) => Err(Failure::bad_input(format!(
                "{} has both {FILE_KEY} and {COMMAND_KEY}; remove one",
                settings.display()
            ))),
        }
    }
}

/// The source in a section of the settings file, with its place.
pub(super) struct Section<'a> {
    pub(super) keys: &'a SectionKeys,
    pub(super) path: &'a Path,
    pub(super) origin: Origin,
}

/// The source in effect: a flag, a variable, or the first of the sections that names one.
pub(super) fn resolve<'a>(
    args: &GlobalArgs,
    environment: &Environment,
    sections: impl IntoIterator<Item = Section<'a>>,
) -> Result<Option<Setting<KeySource>>, Failure> {
    let flags = [
        args.encryption_key_file.as_ref().map(|path| Setting {
            value: KeySource::File(environment.directory.join(path)),
            origin: Origin::Flag("--encryption-key-file"),
        }),
        args.encryption_key_command.as_ref().map(|command| Setting {
            value: KeySource::Command(command.clone()),
            origin: Origin::Flag("--encryption-key-command"),
        }),
    ];
    if let Some(flag) = flags.into_iter().flatten().next() {
        return Ok(Some(flag));
    }
    let mut set = VARIABLES
        .into_iter()
        .filter_map(|name| Some((name, environment.var(name)?)));
    if let Some((name, value)) = set.next() {
        if let Some((other, _)) = set.next() {
            return Err(Failure::bad_input(format!(
                "{name} and {other} are both set; unset one"
            )));
        }
        return Ok(Some(Setting {
            value: match name {
                "QO_ENCRYPTION_KEYS" => KeySource::Text(value.to_owned()),
                "QO_ENCRYPTION_KEY_FILE" => KeySource::File(environment.directory.join(value)),
                _ => KeySource::Command(value.to_owned()),
            },
            origin: Origin::Variable(name),
        }));
    }
    for section in sections {
        if let Some(value) = section.keys.source(section.path)? {
            return Ok(Some(Setting {
                value,
                origin: section.origin,
            }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let variables = variables.iter();
        Environment {
            variables: variables
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            directory: PathBuf::from("/here"),
        }
    }

    #[test]
    fn flags_override_variables_override_sections() {
        let keys = SectionKeys {
            file: Some("keys".to_owned()),
            command: None,
        };
        let section = || Section {
            keys: &keys,
            path: Path::new("/etc/qo.toml"),
            origin: Origin::File("/etc/qo.toml".into()),
        };
        let none = environment(&[]);
        let found = resolve(&GlobalArgs::default(), &none, [section()]).unwrap();
        assert_eq!(found.unwrap().value, KeySource::File("/etc/keys".into()));
        let set = environment(&[("QO_ENCRYPTION_KEY_FILE", "mine")]);
        let found = resolve(&GlobalArgs::default(), &set, [section()]).unwrap();
        assert_eq!(found.unwrap().value, KeySource::File("/here/mine".into()));
        let args = GlobalArgs {
            encryption_key_command: Some("kms".to_owned()),
            ..GlobalArgs::default()
        };
        let found = resolve(&args, &set, [section()]).unwrap().unwrap();
        assert_eq!(found.value, KeySource::Command("kms".to_owned()));
        assert_eq!(found.origin, Origin::Flag("--encryption-key-command"));
        assert_eq!(resolve(&GlobalArgs::default(), &none, []), Ok(None));
    }

    #[test]
    fn two_sources_of_one_rank_are_refused_and_no_key_is_shown() {
        let set = environment(&[
            ("QO_ENCRYPTION_KEYS", "a:s3cr3t"),
            ("QO_ENCRYPTION_KEY_FILE", "mine"),
        ]);
        let failure = resolve(&GlobalArgs::default(), &set, []).unwrap_err();
        assert!(failure.message.contains("both set"), "{failure}");
        let set = environment(&[("QO_ENCRYPTION_KEYS", "a:s3cr3t")]);
        let found = resolve(&GlobalArgs::default(), &set, []).unwrap().unwrap();
        assert!(!format!("{found:?} {}", found.value).contains("s3cr3t"));
        let both = SectionKeys {
            file: Some("keys".to_owned()),
            command: Some("kms".to_owned()),
        };
        assert!(both.source(Path::new("qo.toml")).is_err());
    }
}
