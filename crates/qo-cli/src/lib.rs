//! The `qo` command.
