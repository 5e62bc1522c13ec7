//! Fuzzer of `json_document`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("json_document", bytes));
