//! The npm package: a launcher in JavaScript, and the program for this platform.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::contents::Contents;
use super::shell;
use super::stage::{EXECUTABLE, READABLE, Stage};
use crate::root::root;

/// Builds the package with `npm pack`.
pub(super) fn build(contents: &Contents, out: &Path) -> Result<PathBuf> {
    let sources = root().join("packaging/npm");
    let stage = Stage::new()?;
    let manifest = fs::read_to_string(sources.join("package.json"))
        .context("cannot read packaging/npm/package.json")?;
    let manifest = with_version(&manifest, &contents.version)?;
    stage.write(manifest.as_bytes(), "package.json", READABLE)?;
    stage.copy(&sources.join("README.md"), "README.md", READABLE)?;
    stage.copy(&sources.join("bin/qo.js"), "bin/qo.js", EXECUTABLE)?;
    let program = format!("platforms/linux-{}/qo", contents.platform.npm);
    stage.copy(&contents.program, &program, EXECUTABLE)?;
    for licence in &contents.licences {
        stage.copy_into(licence, ".")?;
    }
    let mut npm = npm(stage.path())?;
    npm.args(["pack", "--silent", "--pack-destination"])
        .arg(out)
        .current_dir(stage.path());
    let name = shell::capture(&mut npm)?;
    Ok(out.join(name.trim()))
}

fn with_version(manifest: &str, version: &str) -> Result<String> {
    let mut manifest: Value =
        serde_json::from_str(manifest).context("packaging/npm/package.json is not valid JSON")?;
    manifest["version"] = Value::from(version);
    Ok(format!("{manifest:#}\n"))
}

/// An npm that uses neither the network nor the user's cache.
pub(super) fn npm(directory: &Path) -> Result<Command> {
    let cache = directory.join(".npm-cache");
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let mut command = Command::new("npm");
    command
        .env("npm_config_cache", cache)
        .env("npm_config_offline", "true")
        .env("npm_config_update_notifier", "false")
        .env("npm_config_audit", "false")
        .env("npm_config_fund", "false");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_gets_the_version() {
        let manifest = include_str!("../../../packaging/npm/package.json");
        let manifest = with_version(manifest, "1.2.3-rc.1").unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        assert_eq!(manifest["version"], "1.2.3-rc.1");
        assert_eq!(manifest["bin"]["qo"], "bin/qo.js");
    }
}
