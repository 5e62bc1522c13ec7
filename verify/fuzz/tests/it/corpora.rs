//! The corpora: seeds of the fuzzers and inputs that they found.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use qo_core::task::{decode, encode_compact};
use qo_fuzz::TARGETS;

/// The first byte of the compact form.
const COMPACT: u8 = 1;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer")
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn every_target_passes_on_its_corpus() {
    let mut broken = Vec::new();
    for target in TARGETS {
        let dir = fuzz_dir().join("corpus").join(target.name);
        let names = names_in(&dir);
        assert!(
            names.len() >= 10,
            "{} has a corpus of only {} files",
            target.name,
            names.len()
        );
        for name in names {
            let bytes = std::fs::read(dir.join(&name)).unwrap();
            if catch_unwind(|| (target.run)(&bytes)).is_err() {
                broken.push(format!("{}/{name}", target.name));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "targets fail on these files: {broken:#?}"
    );
}

/// For each readable JSON record of `task_record`, the rows that the broker writes: the record with its input, and the record
/// without it, followed by a newline and the input.
fn compact_rows(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut rows = BTreeMap::new();
    for name in names_in(dir) {
        let Some(stem) = name.strip_suffix(".json") else {
            continue;
        };
        let Ok(task) = decode(&std::fs::read(dir.join(&name)).unwrap()) else {
            continue;
        };
        rows.insert(
            format!("compact-whole-{stem}"),
            encode_compact(&task, true).unwrap(),
        );
        if let Some(input) = task.inline_input() {
            let mut row = encode_compact(&task, false).unwrap();
            row.push(b'\n');
            row.extend_from_slice(input.as_str().as_bytes());
            rows.insert(format!("compact-apart-{stem}"), row);
        }
    }
    // A record that the compact form cannot represent is stored as JSON, which the corpus already contains.
    rows.retain(|_, row| row.first() == Some(&COMPACT));
    rows
}

#[test]
fn the_corpus_contains_the_rows_that_the_broker_writes() {
    let dir = fuzz_dir().join("corpus/task_record");
    let rows = compact_rows(&dir);
    assert!(rows.len() >= 20, "{} rows", rows.len());
    for (name, row) in rows {
        let targets: &[&str] = if name.starts_with("compact-whole") {
            &["slate_row", "task_record"]
        } else {
            &["slate_row"]
        };
        for target in targets {
            let file = fuzz_dir().join("corpus").join(target).join(&name);
            if std::env::var_os("QO_UPDATE_CORPUS").is_some() {
                std::fs::write(&file, &row).unwrap();
            }
            assert_eq!(
                std::fs::read(&file).ok().as_ref(),
                Some(&row),
                "{target}/{name} is out of date: run QO_UPDATE_CORPUS=1 cargo test -p qo-fuzz"
            );
        }
    }
}

#[test]
fn every_target_has_a_fuzzer_and_a_corpus() {
    let names: BTreeSet<String> = TARGETS
        .iter()
        .map(|target| target.name.to_owned())
        .collect();
    assert_eq!(names.len(), TARGETS.len());
    assert_eq!(names_in(&fuzz_dir().join("corpus")), names);
    let fuzzers = names_in(&fuzz_dir().join("fuzz_targets"));
    let expected = names.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(fuzzers, expected);
    let manifest = std::fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    for name in &names {
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "{name} is not in the manifest"
        );
    }
}
