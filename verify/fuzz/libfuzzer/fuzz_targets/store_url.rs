//! Fuzzer of `store_url`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("store_url", bytes));
