//! The root of the repository.

use std::path::{Path, PathBuf};

/// The directory with the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}
