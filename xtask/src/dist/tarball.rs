//! The archive with everything, for systems without a package of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::contents::Contents;
use super::shell;
use super::stage::{EXECUTABLE, READABLE, Stage};
use crate::root::root;

/// Builds the archive. Its only directory has the name of the archive.
pub(super) fn build(contents: &Contents, out: &Path) -> Result<PathBuf> {
    let name = name(contents);
    let stage = Stage::new()?;
    let at = |path: &str| format!("{name}/{path}");
    stage.copy(&contents.program, &at("bin/qo"), EXECUTABLE)?;
    for page in &contents.manual_pages {
        stage.copy_into(page, &at("share/man/man1"))?;
    }
    let completions = &contents.completions;
    for (script, path) in [
        (&completions.bash, "share/bash-completion/completions/qo"),
        (&completions.zsh, "share/zsh/site-functions/_qo"),
        (&completions.fish, "share/fish/vendor_completions.d/qo.fish"),
    ] {
        stage.copy(script, &at(path), READABLE)?;
    }
    for unit in ["qo-serve.service", "qo-worker@.service"] {
        let from = root().join("packaging/systemd").join(unit);
        stage.copy_into(&from, &at("share/qo/systemd"))?;
    }
    for settings in ["qo.env", "worker-example.toml"] {
        let from = root().join("packaging/etc").join(settings);
        stage.copy_into(&from, &at("share/qo/etc"))?;
    }
    for licence in &contents.licences {
        stage.copy_into(licence, &name)?;
    }
    let archive = out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0"])
        .args(["--numeric-owner", "--use-compress-program=gzip -9n"])
        .arg(format!("--mtime=@{}", contents.epoch))
        .arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(stage.path())
        .arg(&name);
    shell::capture(&mut tar)?;
    Ok(archive)
}

/// The name of the archive without its extension.
pub(super) fn name(contents: &Contents) -> String {
    format!(
        "qo-{}-{}-linux-gnu",
        contents.version, contents.platform.rust
    )
}
