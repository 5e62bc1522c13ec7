//! Command lines that users configure.

use std::process::{Command, Stdio};

/// A command line that the system's shell runs, without standard input and with its output in a pipe.
pub fn shell_command(line: &str) -> Command {
    let (shell, flag) = if cfg!(windows) {
        ("cmd", "/C")
    } else {
        ("sh", "-c")
    };
    let mut command = Command::new(shell);
    command
        .args([flag, line])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}
