//! The Debian package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::contents::Contents;
use super::stage::{EXECUTABLE, READABLE, SECRET, Stage};
use super::{shell, version};
use crate::root::root;

/// The directories of the package that have files. `DEBIAN` describes the package and is not installed.
const INSTALLED: [&str; 2] = ["etc", "usr"];

/// Builds the package with dpkg-deb, which needs no network and no root.
pub(super) fn build(contents: &Contents, out: &Path) -> Result<PathBuf> {
    let stage = Stage::new()?;
    stage_files(contents, &stage)?;
    let (checksums, bytes) = measure(&stage)?;
    stage.write(checksums.as_bytes(), "DEBIAN/md5sums", READABLE)?;
    let control = control(contents, bytes)?;
    stage.write(control.as_bytes(), "DEBIAN/control", READABLE)?;
    let debian = root().join("packaging/debian");
    stage.copy(&debian.join("conffiles"), "DEBIAN/conffiles", READABLE)?;
    for script in ["postinst", "prerm", "postrm"] {
        stage.copy(
            &debian.join(script),
            &format!("DEBIAN/{script}"),
            EXECUTABLE,
        )?;
    }
    let package = out.join(format!(
        "qo_{}_{}.deb",
        version::debian(&contents.version),
        contents.platform.debian
    ));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "--build"])
        .arg(stage.path())
        .arg(&package)
        .env("SOURCE_DATE_EPOCH", contents.epoch.to_string());
    shell::capture(&mut dpkg)?;
    Ok(package)
}

fn stage_files(contents: &Contents, stage: &Stage) -> Result<()> {
    let packaging = root().join("packaging");
    stage.copy(&contents.program, "usr/bin/qo", EXECUTABLE)?;
    for page in &contents.manual_pages {
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        stage.copy_compressed(page, &format!("usr/share/man/man1/{name}"))?;
    }
    let completions = &contents.completions;
    for (script, path) in [
        (
            &completions.bash,
            "usr/share/bash-completion/completions/qo",
        ),
        (&completions.zsh, "usr/share/zsh/vendor-completions/_qo"),
        (
            &completions.fish,
            "usr/share/fish/vendor_completions.d/qo.fish",
        ),
    ] {
        stage.copy(script, path, READABLE)?;
    }
    for unit in ["qo-serve.service", "qo-worker@.service"] {
        let from = packaging.join("systemd").join(unit);
        stage.copy_into(&from, "usr/lib/systemd/system")?;
    }
    stage.copy(&packaging.join("etc/qo.env"), "etc/qo/qo.env", SECRET)?;
    let example = packaging.join("etc/worker-example.toml");
    stage.copy_into(&example, "usr/share/doc/qo/examples")?;
    let copyright = packaging.join("debian/copyright");
    stage.copy_into(&copyright, "usr/share/doc/qo")?;
    for licence in &contents.licences {
        stage.copy_into(licence, "usr/share/doc/qo")?;
    }
    stage.copy_compressed(&root().join("CHANGELOG.md"), "usr/share/doc/qo/changelog")
}

/// The checksums of all files, as dpkg stores them, and their total size.
fn measure(stage: &Stage) -> Result<(String, u64)> {
    let mut files = Vec::new();
    for directory in INSTALLED {
        collect(&stage.path().join(directory), &mut files)?;
    }
    files.sort();
    let mut bytes = 0;
    let mut command = Command::new("md5sum");
    command.current_dir(stage.path());
    for file in &files {
        bytes += fs::metadata(file)?.len();
        command.arg(file.strip_prefix(stage.path())?);
    }
    Ok((shell::capture(&mut command)?, bytes))
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn control(contents: &Contents, bytes: u64) -> Result<String> {
    let path = root().join("packaging/debian/control");
    let template = fs::read_to_string(path).context("cannot read packaging/debian/control")?;
    let glibc = contents.glibc;
    Ok(template
        .replace("@VERSION@", &version::debian(&contents.version))
        .replace("@ARCHITECTURE@", contents.platform.debian)
        .replace("@INSTALLED_SIZE@", &bytes.div_ceil(1024).to_string())
        .replace("@GLIBC@", &format!("{}.{}", glibc.major, glibc.minor)))
}
