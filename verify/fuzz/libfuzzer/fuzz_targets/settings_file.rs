//! Fuzzer of `settings_file`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("settings_file", bytes));
