//! Set-up, tests and benchmarks.
fn main() {}
