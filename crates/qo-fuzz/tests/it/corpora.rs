//! The corpora: what the fuzzers begin with, and what they have found.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use qo_fuzz::TARGETS;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn every_file_goes_through_its_target() {
    let mut broken = Vec::new();
    for target in TARGETS {
        let dir = fuzz_dir().join("corpus").join(target.name);
        let names = names_in(&dir);
        assert!(
            names.len() >= 10,
            "{} has a corpus of {} files",
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
    assert!(broken.is_empty(), "these break their targets: {broken:#?}");
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
            "{name} is not built"
        );
    }
}
