//! Fuzzer of `direct_records`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("direct_records", bytes));
