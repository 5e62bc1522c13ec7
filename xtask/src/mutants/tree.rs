//! The copy of the tree that contains the planted bugs: `target/mutants/tree`.
//!
//! It is built into the target folder of the tree itself, so that both share their dependencies. The packages of the copy have a version
//! of their own; otherwise cargo would take them for those of the tree, and build them anew each time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::patch::{Patch, apply};

/// Where the patches are.
const PATCHES: &str = "verify/mutants";
/// What the copy contains beside the bugs: a file of `verify/mutants/support`, and where it belongs.
const ADDED: [(&str, &str); 3] = [
    ("switch.rs", "crates/qo-core/src/mutant.rs"),
    ("tests.rs", "verify/sim/tests/mutants.rs"),
    ("cluster.rs", "verify/sim/src/cluster/bugs.rs"),
];
/// The patch without which no other can be built.
const SUPPORT: &str = "support/support";
/// What the versions of the copy's packages end with.
const VERSION_END: &str = "-mutants";

/// Reads all planted bugs, in the order of their names.
pub(super) fn patches(root: &Path) -> Result<Vec<Patch>> {
    let folder = root.join(PATCHES);
    let mut patches = Vec::new();
    for path in entries(&folder)? {
        let is_patch = path.extension().is_some_and(|end| end == "patch");
        if let Some(name) = path.file_stem().and_then(OsStr::to_str)
            && is_patch
        {
            let patch = Patch::parse(name, &read(&path)?)?;
            if patch.engines.is_empty() {
                bail!("{name}.patch: it does not name the engines on which the bug is hunted");
            }
            patches.push(patch);
        }
    }
    Ok(patches)
}

/// Brings the copy up to date. Files that are as they should be are left alone, so that cargo builds only what changed.
pub(super) fn update(root: &Path, copy: &Path, patches: &[Patch]) -> Result<()> {
    let mut contents = patched(root, patches)?;
    for (name, place) in ADDED {
        let text = read(&root.join(PATCHES).join("support").join(name))?;
        contents.insert(PathBuf::from(place), text);
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        contents.insert(name.into(), with_own_version(&read(&root.join(name))?));
    }
    let mut kept: BTreeSet<PathBuf> = contents.keys().cloned().collect();
    for path in files(root)? {
        let file = path.strip_prefix(root)?.to_path_buf();
        if kept.insert(file.clone()) {
            let body = fs::read(&path).with_context(|| cannot("read", &path))?;
            write(&copy.join(file), &body)?;
        }
    }
    for (file, text) in contents {
        write(&copy.join(file), text.as_bytes())?;
    }
    for path in files(copy)? {
        if !kept.contains(path.strip_prefix(copy)?) {
            fs::remove_file(&path).with_context(|| cannot("remove", &path))?;
        }
    }
    Ok(())
}

/// The files that the patches change, as they are with all bugs planted.
fn patched(root: &Path, patches: &[Patch]) -> Result<BTreeMap<PathBuf, String>> {
    let support = read(&root.join(PATCHES).join(format!("{SUPPORT}.patch")))?;
    let mut all = vec![Patch::parse(SUPPORT, &support)?];
    all.extend_from_slice(patches);
    let edits = all.iter().flat_map(|patch| &patch.edits);
    let names: BTreeSet<&str> = edits.map(|edit| edit.file.as_str()).collect();
    let mut contents = BTreeMap::new();
    let mut problems = Vec::new();
    for name in names {
        let planted = match read(&root.join(name)) {
            Ok(source) => apply(name, &source, &all),
            Err(error) => Err(vec![format!("{error:#}")]),
        };
        match planted {
            Ok(text) => {
                contents.insert(PathBuf::from(name), text);
            }
            Err(found) => problems.extend(found),
        }
    }
    if !problems.is_empty() {
        bail!(
            "planted bugs no longer apply; bring their patches up to date:\n\n{}",
            problems.join("\n\n")
        );
    }
    Ok(contents)
}

/// A `Cargo.toml` or `Cargo.lock` in which the packages of the tree have another version.
fn with_own_version(text: &str) -> String {
    let parts = text.split("\n\n").map(|part| {
        let is_ours = part.contains("[workspace.package]")
            || part.starts_with("[[package]]") && !part.contains("\nsource = ");
        let lines = part.lines().map(|line| match line.strip_suffix('"') {
            Some(start) if is_ours && line.starts_with("version = \"") => {
                format!("{start}{VERSION_END}\"")
            }
            _ => with_required_version(line),
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    parts.collect::<Vec<_>>().join("\n\n") + "\n"
}

/// A dependency on another package of the copy, with the version that the package has there.
fn with_required_version(line: &str) -> String {
    const VERSION: &str = "version = \"";
    let parts = line
        .split_once(VERSION)
        .filter(|_| line.contains("path = \""))
        .and_then(|(before, rest)| Some((before, rest.split_once('"')?)));
    match parts {
        Some((before, (version, after))) => {
            format!("{before}{VERSION}{version}{VERSION_END}\"{after}")
        }
        None => line.to_owned(),
    }
}

/// Every file below a folder that belongs to the tree.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_built = name == "target" || name == "node_modules";
        // What begins with a dot is found above the copy, too.
        if is_built || name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            files.extend(self::files(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| cannot("read", folder))?;
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.with_context(|| cannot("read", folder))?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| cannot("read", path))
}

/// Writes a file, unless it is there with these bytes.
fn write(path: &Path, body: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|found| found == body) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| cannot("create", folder))?;
    }
    fs::write(path, body).with_context(|| cannot("write", path))
}

fn cannot(verb: &str, path: &Path) -> String {
    format!("cannot {verb} {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn every_planted_bug_applies() {
        let patches = patches(&root()).unwrap();
        assert!(patches.len() > 40, "{}", patches.len());
        if let Err(error) = patched(&root(), &patches) {
            panic!("{error:#}");
        }
    }

    #[test]
    fn shipping_code_contains_no_planted_bug() {
        for path in files(&root().join("crates")).unwrap() {
            let text = fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&text);
            assert!(!text.contains("planted("), "{}", path.display());
        }
    }

    #[test]
    fn packages_of_the_copy_have_another_version() {
        let manifest = "[workspace]\nmembers = []\n\n[workspace.package]\nversion = \"0.1.0\"\n\n\
            [workspace.dependencies]\nurl = { version = \"2\" }\n\
            qo = { path = \"crates/qo\", version = \"0.1.0\", default-features = false }\n";
        let changed = with_own_version(manifest);
        let required = "path = \"crates/qo\", version = \"0.1.0-mutants\", default";
        assert!(changed.contains(required), "{changed}");
        assert!(changed.contains("version = \"0.1.0-mutants\""), "{changed}");
        assert!(changed.contains("version = \"2\""), "{changed}");
        let lock = "version = 4\n\n[[package]]\nname = \"qo\"\nversion = \"0.1.0\"\ndependencies = [\n]\n\n\
            [[package]]\nname = \"url\"\nversion = \"2.5.0\"\nsource = \"registry\"\n";
        let changed = with_own_version(lock);
        assert!(changed.contains("version = \"0.1.0-mutants\"\ndependencies"));
        assert!(changed.contains("version = \"2.5.0\"\nsource"));
    }
}
