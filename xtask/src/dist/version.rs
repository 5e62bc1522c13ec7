//! The version, as each packaging system spells it.

use anyhow::{Result, bail};

/// The Debian version: a tilde sorts a pre-release before the release.
pub(super) fn debian(version: &str) -> String {
    version.replacen('-', "~", 1)
}

/// The Python version (PEP 440).
pub(super) fn python(version: &str) -> Result<String> {
    let Some((release, pre)) = version.split_once('-') else {
        return Ok(version.to_owned());
    };
    for (semver, pep440) in [("alpha.", "a"), ("beta.", "b"), ("rc.", "rc")] {
        if let Some(number) = pre.strip_prefix(semver) {
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            if is_number {
                return Ok(format!("{release}{pep440}{number}"));
            }
        }
    }
    bail!("version {version} has no Python form; use a pre-release such as 1.0.0-rc.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_the_same_everywhere() {
        assert_eq!(debian("1.2.3"), "1.2.3");
        assert_eq!(python("1.2.3").unwrap(), "1.2.3");
    }

    #[test]
    fn pre_releases_are_translated() {
        assert_eq!(debian("1.2.3-rc.1"), "1.2.3~rc.1");
        assert_eq!(python("1.2.3-rc.1").unwrap(), "1.2.3rc1");
        assert_eq!(python("1.2.3-beta.12").unwrap(), "1.2.3b12");
        for version in ["1.2.3-next.1", "1.2.3-rc", "1.2.3-rc.x"] {
            assert!(python(version).is_err(), "{version}");
        }
    }
}
