//! The `qo` command.

fn main() {}
