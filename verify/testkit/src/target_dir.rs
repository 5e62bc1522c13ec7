//! Where the kit keeps its tools and its servers' data: in cargo's target directory, so that `cargo clean` removes all
//! of it and nothing lands elsewhere on the machine.

use std::env;
use std::path::{Path, PathBuf};

/// The target directory of the running build.
///
/// A relative `CARGO_TARGET_DIR` is passed over, because it is relative to where cargo was called, while tests run in
/// their crate's directory. The running program lies in the target directory whatever its name, and cargo marks that
/// directory with a `CACHEDIR.TAG`.
pub fn target_dir() -> PathBuf {
    let from_environment = env::var_os("CARGO_TARGET_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute());
    let program = env::current_exe().unwrap_or_default();
    from_environment
        .or_else(|| above(&program))
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
}

/// The target directory that a program lies in, if it lies in one.
fn above(program: &Path) -> Option<PathBuf> {
    program
        .ancestors()
        .skip(1)
        .find(|dir| {
            dir.join("CACHEDIR.TAG").is_file()
                || dir.file_name().is_some_and(|name| name == "target")
        })
        .map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_traced_to_its_target_directory() {
        let named = Path::new("/somewhere/target/debug/deps/it-0123");
        assert_eq!(above(named), Some(PathBuf::from("/somewhere/target")));
        assert_eq!(above(Path::new("/usr/bin/program")), None);

        let marked = tempfile::tempdir().unwrap();
        std::fs::write(marked.path().join("CACHEDIR.TAG"), "").unwrap();
        let program = marked.path().join("debug/deps/it-0123");
        assert_eq!(above(&program), Some(marked.path().to_path_buf()));
    }

    #[test]
    fn these_tests_run_from_a_target_directory() {
        assert!(above(&env::current_exe().unwrap()).is_some());
    }
}
