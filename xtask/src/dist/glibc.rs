//! The oldest glibc that can run the program.

use anyhow::{Context as _, Result};

const PREFIX: &[u8] = b"GLIBC_";

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// The newest version of glibc that the program's symbols ask for.
///
/// The dynamic string table of a program names each version as `GLIBC_2.34`. A match outside the table could only raise the result, which is
/// safe.
pub(super) fn required_by(program: &[u8]) -> Result<Version> {
    let versions = program
        .windows(PREFIX.len())
        .enumerate()
        .filter(|(_, window)| *window == PREFIX)
        .filter_map(|(at, _)| parse(program.get(at + PREFIX.len()..)?));
    versions
        .max()
        .context("the program names no version of glibc")
}

/// Parses `2.34` at the start of the bytes. A third number, as in `2.2.5`, does not matter.
fn parse(bytes: &[u8]) -> Option<Version> {
    let is_part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
    let text: Vec<u8> = bytes.iter().take(16).take_while(is_part).copied().collect();
    let text = String::from_utf8(text).ok()?;
    let mut numbers = text.split('.').map(str::parse);
    Some(Version {
        major: numbers.next()?.ok()?,
        minor: numbers.next()?.ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts() {
        let program = b"\0memcpy\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0";
        let expected = Version {
            major: 2,
            minor: 34,
        };
        assert_eq!(required_by(program).unwrap(), expected);
    }

    #[test]
    fn a_static_program_has_no_version() {
        assert!(required_by(b"\x7fELF GLIBC_").is_err());
    }
}
