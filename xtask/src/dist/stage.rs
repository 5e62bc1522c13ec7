//! A directory tree that becomes a package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::shell;

/// A mode for programs and scripts.
pub(super) const EXECUTABLE: u32 = 0o755;
/// A mode for everything that all users may read.
pub(super) const READABLE: u32 = 0o644;
/// A mode for files with credentials.
pub(super) const SECRET: u32 = 0o600;

/// The tree. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Stage {
    directory: TempDir,
}

impl Stage {
    pub(super) fn new() -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(EXECUTABLE))
            .context("cannot set the mode of a temporary directory")?;
        Ok(Self { directory })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Copies a file to a path in the tree.
    pub(super) fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<PathBuf> {
        let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.write(&bytes, to, mode)
    }

    /// Copies a file into a directory of the tree, under its own name.
    pub(super) fn copy_into(&self, from: &Path, directory: &str) -> Result<PathBuf> {
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        self.copy(from, &format!("{directory}/{name}"), READABLE)
    }

    /// Copies a file into a directory of the tree and compresses it.
    pub(super) fn copy_compressed(&self, from: &Path, to: &str) -> Result<()> {
        let copied = self.copy(from, to, READABLE)?;
        // -n leaves name and time out, so that equal contents give equal bytes.
        shell::capture(Command::new("gzip").arg("-9n").arg(copied))?;
        Ok(())
    }

    /// Writes a file.
    pub(super) fn write(&self, bytes: &[u8], to: &str, mode: u32) -> Result<PathBuf> {
        let path = self.path().join(to);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot create {}", parent.display()))?;
        }
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the mode of {}", path.display()))?;
        Ok(path)
    }
}
