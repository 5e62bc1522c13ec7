//! Builds everything that packages contain.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use super::contents::{Completions, Contents};
use super::platform::Platform;
use super::{glibc, notices, shell};
use crate::man;
use crate::metadata::Metadata;
use crate::root::root;
use crate::steps::SHIPPED;

/// Builds the program, unless one is given, and the manual pages, the completions and the notices.
pub(super) fn contents(given: Option<&Path>) -> Result<Contents> {
    let platform = Platform::current()?;
    let workspace = Metadata::of_workspace()?;
    let package = workspace.package_with_target("bin", "qo")?;
    let directory = workspace.target_directory.join("dist");
    let program = if let Some(given) = given {
        fs::canonicalize(given).with_context(|| format!("cannot find {}", given.display()))?
    } else {
        build_program(&package.name)?;
        directory.join("qo")
    };
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let bytes = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    let notices = directory.join("THIRD-PARTY.txt");
    fs::write(&notices, notices::text(&package.name)?).context("cannot write THIRD-PARTY.txt")?;
    Ok(Contents {
        version: package.version.clone(),
        platform,
        glibc: glibc::required_by(&bytes)?,
        manual_pages: manual_pages()?,
        completions: completions(&program, &directory.join("completions"))?,
        licences: vec![
            root().join("LICENSE-APACHE"),
            root().join("LICENSE-MIT"),
            notices,
        ],
        program,
        epoch: epoch()?,
        packages: directory.join("packages"),
    })
}

fn build_program(package: &str) -> Result<()> {
    let mut command = qo_testkit::cargo()?;
    command
        .args(["build", "--locked", "--profile", "dist", "--package"])
        .args([package, "--bin", "qo", "--features", SHIPPED])
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags()?);
    shell::run(&mut command)
}

/// Flags of the compiler: those of the user, and replacements for local paths, which panic messages would contain otherwise.
fn flags() -> Result<OsString> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"));
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home);
    let cargo = cargo.context("neither CARGO_HOME nor HOME is set")?;
    let from_user = env::var("RUSTFLAGS").unwrap_or_default();
    let mut flags: Vec<OsString> = from_user.split_whitespace().map(OsString::from).collect();
    for (from, to) in [(root(), "/qo"), (cargo, "/cargo")] {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(from);
        flag.push("=");
        flag.push(to);
        flags.push(flag);
    }
    Ok(flags.join(&OsString::from("\u{1f}")))
}

fn manual_pages() -> Result<Vec<PathBuf>> {
    if man::run()? != ExitCode::SUCCESS {
        bail!("cannot write the manual pages");
    }
    let directory = root().join(man::DIRECTORY);
    let mut pages = Vec::new();
    for entry in
        fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?
    {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "1") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

fn completions(program: &Path, directory: &Path) -> Result<Completions> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let write = |shell: &str, name: &str| -> Result<PathBuf> {
        let script = shell::capture(Command::new(program).args(["completions", shell]))?;
        let path = directory.join(name);
        fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    Ok(Completions {
        bash: write("bash", "qo.bash")?,
        zsh: write("zsh", "_qo")?,
        fish: write("fish", "qo.fish")?,
    })
}

/// `SOURCE_DATE_EPOCH`, or the time of the last commit, so that builds of one commit give equal packages.
fn epoch() -> Result<u64> {
    let text = if let Ok(text) = env::var("SOURCE_DATE_EPOCH") {
        text
    } else {
        let mut git = Command::new("git");
        git.args(["log", "-1", "--format=%ct"]).current_dir(root());
        shell::capture(&mut git).context("set SOURCE_DATE_EPOCH outside a git repository")?
    };
    let text = text.trim();
    text.parse()
        .with_context(|| format!("{text:?} is not a number of seconds"))
}
