//! `cargo xtask dist`: builds qo for distribution and packages it.

mod build;
mod check;
mod contents;
mod deb;
mod glibc;
mod notices;
mod npm;
mod platform;
mod shell;
mod stage;
mod tarball;
mod version;
mod wheel;

#[cfg(test)]
mod files_tests;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use self::contents::Contents;
use crate::paint::Paint;

/// A kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Package {
    /// An archive with everything.
    Tar,
    /// A Debian package.
    Deb,
    /// A Python wheel.
    Wheel,
    /// An npm package.
    Npm,
}

impl Package {
    const ALL: [Self; 4] = [Self::Tar, Self::Deb, Self::Wheel, Self::Npm];

    fn name(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Deb => "deb",
            Self::Wheel => "wheel",
            Self::Npm => "npm",
        }
    }

    /// Builds the package and returns its path.
    fn build(self, contents: &Contents, out: &Path) -> Result<PathBuf> {
        match self {
            Self::Tar => tarball::build(contents, out),
            Self::Deb => deb::build(contents, out),
            Self::Wheel => wheel::build(contents, out),
            Self::Npm => npm::build(contents, out),
        }
    }
}

/// Which packages to build, and whether to check them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) packages: Vec<Package>,
    pub(crate) check: bool,
    /// A program to package instead of building one.
    pub(crate) program: Option<PathBuf>,
}

/// Parses the arguments of `cargo xtask dist`.
pub(crate) fn plan(words: &[OsString]) -> Result<Plan> {
    let mut selected: Vec<Package> = Vec::new();
    let mut check = false;
    let mut program = None;
    let mut words = words.iter().map(|word| word.to_str());
    while let Some(word) = words.next() {
        let word = word.context("arguments of `dist` must be UTF-8")?;
        if word == "--check" {
            check = true;
            continue;
        }
        if word == "--program" {
            let path = words.next().flatten();
            program = Some(PathBuf::from(path.context("`--program` needs a path")?));
            continue;
        }
        let names = match word.strip_prefix("--only") {
            Some("") => words.next().flatten(),
            Some(rest) => rest.strip_prefix('='),
            None => bail!("unexpected argument {word:?}; see `cargo xtask help dist`"),
        };
        let names = names.context("`--only` needs names of packages, such as `--only deb,npm`")?;
        for name in names.split(',') {
            let found = Package::ALL
                .into_iter()
                .find(|package| package.name() == name);
            selected.push(found.with_context(|| {
                let names = Package::ALL.map(Package::name).join(", ");
                format!("unknown package {name:?}; the packages are {names}")
            })?);
        }
    }
    let packages = Package::ALL.into_iter();
    let packages = packages.filter(|one| selected.is_empty() || selected.contains(one));
    Ok(Plan {
        packages: packages.collect(),
        check,
        program,
    })
}

/// Builds the packages, checks them if requested, and prints a table.
pub(crate) fn run(plan: &Plan) -> Result<ExitCode> {
    let contents = build::contents(plan.program.as_deref())?;
    let out = &contents.packages;
    recreate(out)?;
    let mut rows = vec![Row::of_file(
        "program",
        &contents.program,
        ArtifactOutcome::Built,
    )];
    for &package in &plan.packages {
        let built = package.build(&contents, out);
        rows.push(match built {
            Ok(path) if plan.check => Row::of_file(
                package.name(),
                &path,
                check::package(package, &path, &contents),
            ),
            Ok(path) => Row::of_file(package.name(), &path, ArtifactOutcome::Built),
            Err(error) => Row::failed(package.name(), &error),
        });
    }
    if plan.check {
        rows.extend(check::files(&contents).map(|(name, outcome)| Row {
            name,
            file: String::new(),
            bytes: None,
            outcome,
        }));
    }
    println!("\n{}", table(&rows, Paint::for_stdout()));
    println!("The packages are in {}", out.display());
    let has_failed = rows
        .iter()
        .any(|row| matches!(row.outcome, ArtifactOutcome::Failed(_)));
    Ok(if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn recreate(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}

/// The result of building or checking something.
#[derive(Debug)]
enum ArtifactOutcome {
    Built,
    /// Built, installed and run.
    Checked(String),
    /// The check was not possible here, for this reason.
    NotChecked(String),
    Failed(String),
}

struct Row {
    name: &'static str,
    file: String,
    bytes: Option<u64>,
    outcome: ArtifactOutcome,
}

impl Row {
    fn of_file(name: &'static str, path: &Path, outcome: ArtifactOutcome) -> Self {
        let file = path.file_name().unwrap_or_default();
        Self {
            name,
            file: file.to_string_lossy().into_owned(),
            bytes: fs::metadata(path).ok().map(|metadata| metadata.len()),
            outcome,
        }
    }

    fn failed(name: &'static str, error: &anyhow::Error) -> Self {
        Self {
            name,
            file: String::new(),
            bytes: None,
            outcome: ArtifactOutcome::Failed(format!("{error:#}")),
        }
    }
}

fn table(rows: &[Row], paint: Paint) -> String {
    let width = rows.iter().map(|row| row.file.len()).max().unwrap_or(0);
    let width = width.max("file".len());
    let mut text = String::new();
    let head = format!(
        "{:<9} {:<width$} {:>11}  result",
        "package", "file", "bytes"
    );
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "{}", paint.bold(&head));
    for row in rows {
        let bytes = row.bytes.map(|bytes| bytes.to_string());
        let result = match &row.outcome {
            ArtifactOutcome::Built => paint.green("built"),
            ArtifactOutcome::Checked(what) => paint.green(what),
            ArtifactOutcome::NotChecked(reason) => paint.yellow(&format!("not checked: {reason}")),
            ArtifactOutcome::Failed(reason) => paint.red(&format!("FAILED: {reason}")),
        };
        let _ = writeln!(
            text,
            "{:<9} {:<width$} {:>11}  {result}",
            row.name,
            row.file,
            bytes.unwrap_or_default()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::words;

    fn planned(line: &str) -> Result<Plan> {
        plan(&words(line))
    }

    #[test]
    fn all_packages_are_built_by_default() {
        let plan = planned("").unwrap();
        assert_eq!((plan.packages, plan.check), (Package::ALL.to_vec(), false));
    }

    #[test]
    fn packages_can_be_selected_and_checked() {
        let expected = Plan {
            packages: vec![Package::Deb, Package::Npm],
            check: true,
            program: None,
        };
        for line in ["--check --only npm,deb", "--only=npm --only deb --check"] {
            assert_eq!(planned(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn another_program_can_be_packaged() {
        let plan = planned("--program target/release/qo --check").unwrap();
        assert_eq!(plan.program, Some(PathBuf::from("target/release/qo")));
        assert_eq!(plan.packages, Package::ALL);
    }

    #[test]
    fn errors_name_the_wrong_argument() {
        for (line, named) in [
            ("deb", "deb"),
            ("--only", "--only"),
            ("--only rpm", "wheel"),
            ("--chekc", "--chekc"),
            ("--program", "--program"),
        ] {
            let message = planned(line).unwrap_err().to_string();
            assert!(message.contains(named), "{line}: {message}");
        }
    }

    #[test]
    fn the_table_shows_sizes_and_results() {
        let rows = [
            Row {
                name: "tar",
                file: "qo.tar.gz".to_owned(),
                bytes: Some(1_234),
                outcome: ArtifactOutcome::Checked("installed, ran".to_owned()),
            },
            Row::failed("deb", &anyhow::anyhow!("no dpkg-deb")),
        ];
        let expected = "\
package   file            bytes  result
tar       qo.tar.gz        1234  installed, ran
deb                              FAILED: no dpkg-deb
";
        assert_eq!(table(&rows, Paint::OFF), expected);
    }
}
