//! The `qo` program that tests start.

use std::env;
use std::path::PathBuf;

/// Names the program to test. `cargo xtask test` sets it to a program with the features of the released one and no others: cargo gives the
/// program that it builds beside the tests all features that any of them needs.
pub const PROGRAM_VARIABLE: &str = "QO_TEST_PROGRAM";

/// The program to test: the one that the environment names, or else the one that cargo built with the tests.
pub fn program_under_test(built: impl Into<PathBuf>) -> PathBuf {
    let named = env::var_os(PROGRAM_VARIABLE).filter(|path| !path.is_empty());
    named.map_or_else(|| built.into(), PathBuf::from)
}
