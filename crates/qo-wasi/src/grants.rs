//! What programs may use beyond their input and output. By default that is nothing.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use crate::network::Network;

/// A directory of the host that programs may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Where it is on the host.
    pub host: PathBuf,
    /// Where programs see it.
    pub guest: String,
    /// Whether programs may write there.
    pub is_read_only: bool,
}

/// A text that does not describe a grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
#[non_exhaustive]
pub struct GrantsError(pub(crate) &'static str);

impl FromStr for Directory {
    type Err = GrantsError;

    /// Parses `HOST::GUEST` or `HOST::GUEST:ro`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: GrantsError =
            GrantsError("expected HOST::GUEST or HOST::GUEST:ro, such as /srv/fonts::/fonts:ro");
        let (host, guest) = text.split_once("::").ok_or(EXPECTED)?;
        let (guest, is_read_only) = match guest.strip_suffix(":ro") {
            Some(guest) => (guest, true),
            None => (guest, false),
        };
        if host.is_empty() || guest.is_empty() || guest.contains([':', '\0']) {
            return Err(EXPECTED);
        }
        Ok(Self {
            host: PathBuf::from(host),
            guest: guest.to_owned(),
            is_read_only,
        })
    }
}

/// What every program of a sandbox may use.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Directories.
    pub directories: Vec<Directory>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// The network.
    pub network: Network,
}

impl fmt::Debug for Grants {
    /// Omits the values of variables, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("Grants")
            .field("directories", &self.directories)
            .field("environment", &names)
            .field("network", &self.network)
            .finish()
    }
}

impl Grants {
    /// Parses an environment variable, `NAME=VALUE`.
    pub fn variable(text: &str) -> Result<(String, String), GrantsError> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() && !text.contains('\0') => {
                Ok((name.to_owned(), value.to_owned()))
            }
            _ => Err(GrantsError("expected NAME=VALUE")),
        }
    }

    pub(crate) fn apply(&self, builder: &mut WasiCtxBuilder) -> Result<(), String> {
        for directory in &self.directories {
            let permissions = if directory.is_read_only {
                FsPerms::ReadOnly
            } else {
                FsPerms::ReadWrite
            };
            builder
                .preopened_dir(&directory.host, &directory.guest, permissions)
                .map_err(|error| {
                    format!(
                        "cannot open the granted directory {}: {error}",
                        directory.host.display()
                    )
                })?;
        }
        builder.envs(&self.environment);
        self.network.apply(builder);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_have_two_paths_and_a_mode() {
        let parsed: Directory = "/srv/data::/data:ro".parse().unwrap();
        assert_eq!(parsed.host, PathBuf::from("/srv/data"));
        assert_eq!(
            (parsed.guest.as_str(), parsed.is_read_only),
            ("/data", true)
        );
        let parsed: Directory = "a:b::.".parse().unwrap();
        assert_eq!(parsed.host, PathBuf::from("a:b"));
        assert_eq!((parsed.guest.as_str(), parsed.is_read_only), (".", false));
        for bad in ["", "/a", "/a:/b", "::/b", "/a::", "/a:::ro", "/a::/b:rw"] {
            assert!(bad.parse::<Directory>().is_err(), "{bad}");
        }
    }

    #[test]
    fn values_of_variables_are_not_shown() {
        let variable = Grants::variable("KEY=secret=1").unwrap();
        assert_eq!(variable, ("KEY".to_owned(), "secret=1".to_owned()));
        assert!(Grants::variable("KEY").is_err() && Grants::variable("=1").is_err());
        let grants = Grants {
            environment: vec![variable],
            ..Grants::default()
        };
        let shown = format!("{grants:?}");
        assert!(
            shown.contains("KEY") && !shown.contains("secret"),
            "{shown}"
        );
    }
}
