//! Fuzzer of `broker_record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("broker_record", bytes));
