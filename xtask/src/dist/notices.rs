//! The licence notices of the libraries in the program, which their licences ask to be distributed with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::shell;
use crate::metadata::{Metadata, Package};
use crate::steps::SHIPPED;

/// Names of licence files start with one of these, in any case.
const STARTS: [&str; 4] = ["license", "licence", "copying", "notice"];

/// A list of the libraries in the program, and the texts of their licences. Texts that several libraries share are printed once.
pub(super) fn text(program: &str) -> Result<String> {
    let linked = linked_into(program)?;
    let metadata = Metadata::of_dependencies(false)?;
    let mut text = String::from("qo contains the following libraries.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        if package.source.is_none() || !linked.contains(&name) {
            continue;
        }
        let licence = package.license.as_deref().unwrap_or("see its licence file");
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "{name}: {licence}");
        for licence in licence_files(package)? {
            texts.entry(licence).or_default().push(name.clone());
        }
    }
    for (licence, names) in texts {
        let line = "-".repeat(80);
        let _ = write!(
            text,
            "\n{line}\n{}\n{line}\n\n{licence}\n",
            names.join(", ")
        );
    }
    Ok(text)
}

/// Names and versions of the packages that are linked into the program.
fn linked_into(program: &str) -> Result<BTreeSet<String>> {
    let mut command = qo_testkit::cargo()?;
    command.args(["tree", "--locked", "--package", program]);
    command.args(["--features", SHIPPED]);
    command.args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let tree = shell::capture(&mut command)?;
    let lines = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let version = words.next()?.strip_prefix('v')?;
        Some(format!("{name} {version}"))
    });
    Ok(lines.collect())
}

fn licence_files(package: &Package) -> Result<Vec<String>> {
    let directory = package.manifest_path.parent().unwrap_or(Path::new("."));
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut texts = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        let is_code = path.extension().is_some_and(|extension| extension == "rs");
        if path.is_file() && !is_code && STARTS.iter().any(|start| name.starts_with(start)) {
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            texts.push(String::from_utf8_lossy(&bytes).trim().to_owned());
        }
    }
    texts.sort();
    Ok(texts)
}
