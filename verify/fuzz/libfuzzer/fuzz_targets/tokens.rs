//! Fuzzer of `tokens`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("tokens", bytes));
