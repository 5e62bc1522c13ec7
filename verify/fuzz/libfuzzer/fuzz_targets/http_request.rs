//! Fuzzer of `http_request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("http_request", bytes));
