//! Fuzzer of `command_line`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qo_fuzz::run("command_line", bytes));
