//! Fuzzer of `s3_documents`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("s3_documents", bytes));
