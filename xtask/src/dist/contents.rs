//! What the packages contain.

use std::path::PathBuf;

use super::glibc;
use super::platform::Platform;

/// Everything that a package can contain, built and ready to be copied.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) version: String,
    pub(super) platform: Platform,
    pub(super) glibc: glibc::Version,
    /// The program `qo`.
    pub(super) program: PathBuf,
    /// Manual pages, sorted.
    pub(super) manual_pages: Vec<PathBuf>,
    pub(super) completions: Completions,
    /// Licence texts and the notices of third parties.
    pub(super) licences: Vec<PathBuf>,
    /// The time that packages give to their files, in seconds since 1970.
    pub(super) epoch: u64,
    /// The directory for the packages.
    pub(super) packages: PathBuf,
}

/// Shell completions.
#[derive(Debug)]
pub(super) struct Completions {
    pub(super) bash: PathBuf,
    pub(super) zsh: PathBuf,
    pub(super) fish: PathBuf,
}
