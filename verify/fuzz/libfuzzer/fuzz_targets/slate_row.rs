//! Fuzzer of `slate_row`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("slate_row", bytes));
