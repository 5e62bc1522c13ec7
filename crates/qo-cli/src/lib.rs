//! The `qo` command.

pub mod handlers;
