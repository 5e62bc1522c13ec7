//! `cargo xtask dist --check`: installs each package into a temporary directory and uses it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::contents::Contents;
use super::{ArtifactOutcome, Package, npm, shell, tarball, version};
use crate::root::root;

/// A user without an account, as which the program runs in the container image.
const CONTAINER_USER: &str = "65532:65532";

/// Installs a package and uses it.
pub(super) fn package(package: Package, path: &Path, contents: &Contents) -> ArtifactOutcome {
    let checked = match package {
        Package::Tar => tar(path, contents),
        Package::Deb => deb(path, contents),
        Package::Wheel => wheel(path, contents),
        Package::Npm => npm_package(path, contents),
    };
    match checked {
        Ok(what) => ArtifactOutcome::Checked(what),
        Err(error) => ArtifactOutcome::Failed(format!("{error:#}")),
    }
}

/// Checks the files that are no packages but depend on the program.
pub(super) fn files(contents: &Contents) -> impl Iterator<Item = (&'static str, ArtifactOutcome)> {
    let checks: [(&str, Result<ArtifactOutcome>); 3] = [
        ("systemd", systemd(contents)),
        ("docker", container(contents)),
        ("options", options(contents)),
    ];
    checks.into_iter().map(|(name, outcome)| {
        let failed = |error: anyhow::Error| ArtifactOutcome::Failed(format!("{error:#}"));
        (name, outcome.unwrap_or_else(failed))
    })
}

fn tar(path: &Path, contents: &Contents) -> Result<String> {
    let directory = temporary()?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(path).arg("-C").arg(directory.path());
    shell::capture(&mut tar)?;
    let unpacked = directory.path().join(tarball::name(contents));
    for file in [
        "share/man/man1/qo.1",
        "share/bash-completion/completions/qo",
        "LICENSE-MIT",
        "THIRD-PARTY.txt",
    ] {
        ensure!(unpacked.join(file).is_file(), "{file} is missing");
    }
    use_program(&Program::at(unpacked.join("bin/qo")), contents)?;
    Ok("unpacked; submit, status and a WASI job work".to_owned())
}

fn deb(path: &Path, contents: &Contents) -> Result<String> {
    let directory = temporary()?;
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--extract").arg(path).arg(directory.path());
    shell::capture(&mut dpkg)?;
    let control = directory.path().join("control");
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--control").arg(path).arg(&control);
    shell::capture(&mut dpkg)?;
    for script in ["postinst", "prerm", "postrm"] {
        shell::capture(Command::new("sh").arg("-n").arg(control.join(script)))?;
    }
    let mut field = Command::new("dpkg-deb");
    field.arg("--field").arg(path).arg("Version");
    let version = shell::capture(&mut field)?;
    let expected = version::debian(&contents.version);
    ensure!(version.trim() == expected, "the version is {version:?}");
    let settings = fs::read_to_string(control.join("conffiles"))?;
    for file in settings.lines() {
        let file = directory.path().join(file.trim_start_matches('/'));
        ensure!(file.is_file(), "conffile {} is missing", file.display());
    }
    let installed = directory.path().join("usr/share/man/man1/qo.1.gz");
    ensure!(installed.is_file(), "the manual page is missing");
    use_program(&Program::at(directory.path().join("usr/bin/qo")), contents)?;
    Ok("unpacked; submit, status and a WASI job work; scripts parse".to_owned())
}

fn wheel(path: &Path, contents: &Contents) -> Result<String> {
    let directory = temporary()?;
    let environment = directory.path().join("venv");
    let mut venv = Command::new("python3");
    shell::capture(venv.args(["-m", "venv"]).arg(&environment))?;
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--no-index", "--no-deps"])
        .arg(path);
    shell::capture(&mut pip)?;
    use_program(&Program::at(environment.join("bin/qo")), contents)?;
    Ok("installed with pip; submit, status and a WASI job work".to_owned())
}

fn npm_package(path: &Path, contents: &Contents) -> Result<String> {
    let directory = temporary()?;
    fs::write(directory.path().join("package.json"), "{\"private\": true}")?;
    let mut install = npm::npm(directory.path())?;
    install.args(["install", "--silent"]).arg(path);
    shell::capture(install.current_dir(directory.path()))?;
    let mut npx = npm::npm(directory.path())?;
    npx.args(["exec", "--no", "--", "qo", "--version"]);
    let version = shell::capture(npx.current_dir(directory.path()))?;
    ensure!(
        version.contains(&contents.version),
        "npx printed {version:?}"
    );
    let program = Program::at(directory.path().join("node_modules/.bin/qo"));
    use_program(&program, contents)?;
    let mut wrong = program.command(directory.path());
    let status = wrong.arg("no-such-command").output()?.status;
    ensure!(status.code() == Some(2), "the exit code is lost: {status}");
    Ok("installed with npm; submit, status and a WASI job work".to_owned())
}

/// Lets systemd parse the units. Their program is replaced by the one that was built, because systemd checks that it exists.
fn systemd(contents: &Contents) -> Result<ArtifactOutcome> {
    if !shell::exists("systemd-analyze") {
        return Ok(ArtifactOutcome::NotChecked(
            "systemd-analyze is not installed".to_owned(),
        ));
    }
    let directory = temporary()?;
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for (unit, instance) in [
        ("qo-serve.service", "qo-serve.service"),
        ("qo-worker@.service", "qo-worker@check.service"),
    ] {
        let text = fs::read_to_string(root().join("packaging/systemd").join(unit))
            .with_context(|| format!("cannot read {unit}"))?;
        let program = contents.program.to_string_lossy();
        let path = directory.path().join(instance);
        fs::write(&path, text.replace("/usr/bin/qo", &program))?;
        verify.arg(path);
    }
    let output = verify.output().context("cannot run systemd-analyze")?;
    // Unknown settings are warnings and do not change the exit code.
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && messages.trim().is_empty(),
        "{}",
        messages.trim()
    );
    Ok(ArtifactOutcome::Checked("units verified".to_owned()))
}

/// Assembles the file system of the container image and runs the program in it, without Docker.
fn container(contents: &Contents) -> Result<ArtifactOutcome> {
    let directory = temporary()?;
    let image = directory.path().join("image");
    let is_root = shell::capture(Command::new("id").arg("-u"))?.trim() == "0";
    if !is_root {
        return Ok(ArtifactOutcome::NotChecked("chroot needs root".to_owned()));
    }
    let mut assemble = Command::new("sh");
    assemble.arg(root().join("packaging/docker/rootfs.sh"));
    shell::capture(assemble.arg(&contents.program).arg(&image))?;
    let mut chroot: Vec<_> = ["chroot", "--userspec", CONTAINER_USER]
        .map(PathBuf::from)
        .into();
    chroot.extend([image, PathBuf::from("/usr/bin/qo")]);
    let program = Program {
        words: chroot,
        store: Some("sqlite:/data/queue.db".to_owned()),
    };
    use_program(&program, contents)?;
    Ok(ArtifactOutcome::Checked(
        "file system of the image runs in a chroot; no image was built".to_owned(),
    ))
}

/// Whether the options in units and manifests exist.
fn options(contents: &Contents) -> Result<ArtifactOutcome> {
    for (file, subcommand) in [
        ("packaging/systemd/qo-serve.service", "serve"),
        ("packaging/systemd/qo-worker@.service", "worker"),
        ("packaging/etc/qo.env", "serve"),
        ("packaging/kubernetes/qo-broker.yaml", "serve"),
    ] {
        let text =
            fs::read_to_string(root().join(file)).with_context(|| format!("cannot read {file}"))?;
        let mut help = Command::new(&contents.program);
        let help = shell::capture(help.args([subcommand, "--help"]))?;
        for option in options_in(&text) {
            let is_known = help.split_whitespace().any(|word| word == option);
            ensure!(is_known, "{file}: `qo {subcommand}` has no option {option}");
        }
    }
    Ok(ArtifactOutcome::Checked(
        "units and manifests use options that exist".to_owned(),
    ))
}

/// Words that start with `--` and continue with a letter.
fn options_in(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |character: char| character.is_whitespace() || "=\"',]".contains(character);
    text.split(is_end).filter(|word| {
        let name = word.strip_prefix("--");
        name.is_some_and(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
    })
}

/// An installed program.
struct Program {
    /// The program, after what it is run with.
    words: Vec<PathBuf>,
    /// The store to use, if it cannot be in a temporary directory.
    store: Option<String>,
}

impl Program {
    fn at(path: PathBuf) -> Self {
        Self {
            words: vec![path],
            store: None,
        }
    }

    /// A command without the user's settings.
    fn command(&self, home: &Path) -> Command {
        let mut words = self.words.iter().map(|word| word.as_os_str());
        let mut command = Command::new(words.next().unwrap_or(OsStr::new("qo")));
        command.args(words).current_dir(home);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["QO_", "S3_", "AWS_", "XDG_"]
                .iter()
                .any(|start| text.starts_with(start))
            {
                command.env_remove(&name);
            }
        }
        command.env("HOME", home);
        command
    }
}

/// Asks for the version, submits a task to a new queue, reads it back, and runs a WASI job.
fn use_program(program: &Program, contents: &Contents) -> Result<()> {
    let home = temporary()?;
    let version = shell::capture(program.command(home.path()).arg("--version"))?;
    let expected = format!("qo {}", contents.version);
    ensure!(
        version.trim() == expected,
        "`qo --version` printed {version:?}, not {expected:?}"
    );
    let store = program.store.clone().unwrap_or_else(|| {
        let path = home.path().join("queue.db");
        format!("sqlite:{}", path.display())
    });
    let mut submit = program.command(home.path());
    submit.args(["--store", &store, "submit", "--type", "check"]);
    let id = shell::capture(submit.args(["--input", "{\"n\":1}"]))?;
    let mut status = program.command(home.path());
    status.args(["--store", &store, "--json", "status", id.trim()]);
    let task = shell::capture(&mut status)?;
    let task: Value = serde_json::from_str(&task).context("`qo status` printed no JSON")?;
    if task["id"] != id.trim() || task["status"] != "pending" {
        bail!("`qo status` printed {task}");
    }
    run_wasi_job(program, home.path(), &store)
}

/// A WASI program that ends at once: a module with one function, which does nothing and is exported as `_start`.
const WASI_PROGRAM: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x04\x01\x60\0\0\
    \x03\x02\x01\0\
    \x07\x0a\x01\x06_start\0\0\
    \x0a\x04\x01\x02\0\x0b";

/// Uploads a WASI program through standard input, submits it, and runs it with a worker: packages have the feature `wasi`.
fn run_wasi_job(program: &Program, home: &Path, store: &str) -> Result<()> {
    let mut put = program.command(home);
    put.args(["--store", store, "blob", "put", "-"]);
    let address = shell::capture_with(&mut put, WASI_PROGRAM)?;
    let mut submit = program.command(home);
    submit.args(["--store", store, "submit", "--wasi", address.trim()]);
    let id = shell::capture(&mut submit)?;
    let mut worker = program.command(home);
    worker.args(["--store", store, "worker", "--wasi", "--max-tasks", "1"]);
    // Not for ever, if the worker does not find the job.
    worker.args(["--exit-when-idle", "30s"]);
    shell::capture(&mut worker)?;
    let mut wait = program.command(home);
    wait.args(["--store", store, "wait", id.trim(), "--timeout", "5s"]);
    let output = shell::capture(&mut wait)?;
    let output: Value = serde_json::from_str(&output).context("`qo wait` printed no JSON")?;
    ensure!(output["exit_code"] == 0, "`qo wait` printed {output}");
    Ok(())
}

fn temporary() -> Result<TempDir> {
    tempfile::tempdir().context("cannot create a temporary directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_in_units_and_manifests() {
        let text =
            "--- # x\nargs: [\"--listen\", '--advertise=http://x']\nqo worker --config /etc/-%i --";
        let found: Vec<_> = options_in(text).collect();
        assert_eq!(found, ["--listen", "--advertise", "--config"]);
    }

    #[test]
    fn the_wasi_program_is_a_module_with_whole_sections() {
        let mut rest = WASI_PROGRAM.strip_prefix(b"\0asm\x01\0\0\0").unwrap();
        let mut sections = Vec::new();
        while let [id, length, more @ ..] = rest {
            sections.push(*id);
            rest = &more[usize::from(*length)..];
        }
        assert_eq!((sections, rest.len()), (vec![1, 3, 7, 10], 0));
    }
}
