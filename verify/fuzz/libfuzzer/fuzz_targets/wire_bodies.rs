//! Fuzzer of `wire_bodies`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("wire_bodies", bytes));
