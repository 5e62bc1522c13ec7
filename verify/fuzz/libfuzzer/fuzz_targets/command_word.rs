//! Fuzzer of `command_word`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("command_word", bytes));
