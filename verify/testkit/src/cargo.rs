//! Cargo, run as if it had been called from a shell in the workspace.
//!
//! A program that cargo started, such as a test, inherits variables that describe its own package. Some build scripts
//! (ring's among them) are run again when those change, so a build from here and one from a shell would each undo the
//! other's: they are taken out.

use std::env;
use std::ffi::OsString;
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio};

use crate::KitError;

/// The variables that cargo sets for what it runs, by how they start. What a user sets for cargo is not among them.
const OF_THE_RUNNING_PACKAGE: [&str; 6] = [
    "CARGO_BIN_",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PRIMARY_PACKAGE",
    "OUT_DIR",
];

/// A `cargo` command in the workspace's root, without standard input.
pub fn cargo() -> Result<Command, KitError> {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if OF_THE_RUNNING_PACKAGE
            .iter()
            .any(|start| text.starts_with(start))
        {
            command.env_remove(&name);
        }
    }
    // A relative one counts from where the user is, which need not be the root.
    if let Some(target) = env::var_os("CARGO_TARGET_DIR").filter(|target| !target.is_empty()) {
        let absolute = path::absolute(&target).map_err(KitError::io("find", target))?;
        command.env("CARGO_TARGET_DIR", absolute);
    }
    Ok(command)
}

fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_in_the_workspace_without_the_variables_of_this_package() {
        let command = cargo().unwrap();
        assert!(
            command
                .get_current_dir()
                .unwrap()
                .join("Cargo.lock")
                .is_file()
        );
        let removed: Vec<_> = command
            .get_envs()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect();
        assert!(
            removed.contains(&"CARGO_PKG_NAME".to_owned()),
            "{removed:?}"
        );
        assert!(
            removed.contains(&"CARGO_MANIFEST_DIR".to_owned()),
            "{removed:?}"
        );
        assert!(!removed.contains(&"CARGO".to_owned()), "{removed:?}");
    }
}
