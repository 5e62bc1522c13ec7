//! A temporary directory with an SQLite store, in which tests run the real command.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use qo::{Connect, Queue};
use qo_testkit::program_under_test;
use serde_json::Value;

use crate::schema;

/// Time limit of a command, even on a busy machine.
const TIME_MAX: Duration = Duration::from_mins(2);

/// A temporary directory with a store.
pub(crate) struct Workspace {
    directory: tempfile::TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.path().join("queue.db").display())
    }

    /// Writes a file in the directory.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The command in this directory. It inherits only `PATH` from the environment.
    pub(crate) fn bare(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program_under_test(env!("CARGO_BIN_EXE_qo")));
        command
            .args(words)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .stdin(Stdio::null());
        command
    }

    /// A server of a store, on a free port, that announces itself as JSON.
    pub(crate) fn serve(&self, store: &str) -> Command {
        let mut command = self.bare(&["--json", "serve", "--listen", "127.0.0.1:0"]);
        command.args(["--store", store]);
        command
    }

    /// The command with the store of this workspace.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.bare(words);
        command.env("QO_STORE", self.store());
        command
    }

    /// Runs the command.
    pub(crate) fn qo(&self, words: &[&str]) -> CommandResult {
        result(&self.command(words).output().unwrap())
    }

    /// Runs the command with these variables.
    pub(crate) fn qo_with(&self, variables: &[(&str, &str)], words: &[&str]) -> CommandResult {
        let mut command = self.command(words);
        command.envs(variables.iter().copied());
        result(&command.output().unwrap())
    }

    /// Runs the command with this standard input.
    pub(crate) fn qo_reading(&self, words: &[&str], input: &str) -> CommandResult {
        let mut command = self.command(words);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        let writer = std::thread::spawn(move || {
            // A command that fails early does not read all of its input.
            let _ = stdin.write_all(input.as_bytes());
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        result(&output)
    }

    /// Starts the command.
    pub(crate) fn start(&self, words: &[&str]) -> RunningCommand {
        let mut command = self.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        RunningCommand::spawn(&mut command)
    }

    /// Submits a task and returns its id.
    pub(crate) fn submit(&self, task_type: &str) -> String {
        let result = self.qo(&["submit", "--type", task_type, "--input", "{\"n\":1}"]);
        result.assert(0);
        result.stdout.trim().to_owned()
    }

    /// Opens the queue with the library.
    pub(crate) async fn queue(&self) -> Queue {
        Connect::to(self.store()).open().await.unwrap()
    }
}

/// A running command. Dropping it kills the process.
pub(crate) struct RunningCommand {
    child: Child,
    _ended: mpsc::Sender<()>,
}

impl RunningCommand {
    /// Starts a command whose streams are already configured.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = command.spawn().unwrap();
        let id = rustix::process::Pid::from_child(&child);
        let (ended, ending) = mpsc::channel::<()>();
        // Without this, a command that hangs would block the test forever.
        std::thread::spawn(move || {
            if ending.recv_timeout(TIME_MAX) == Err(RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        });
        Self {
            child,
            _ended: ended,
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Standard error, to read while the command runs.
    pub(crate) fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().unwrap()
    }

    /// Standard output, to read while the command runs.
    pub(crate) fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().unwrap()
    }

    /// Waits for the command to exit.
    pub(crate) fn end(mut self) -> CommandResult {
        let mut output = Output {
            status: std::process::ExitStatus::default(),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        let stderr = self.child.stderr.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).unwrap();
                bytes
            })
        });
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_end(&mut output.stdout).unwrap();
        }
        if let Some(stderr) = stderr {
            output.stderr = stderr.join().unwrap();
        }
        output.status = self.child.wait().unwrap();
        result(&output)
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn result(output: &Output) -> CommandResult {
    CommandResult {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout.clone()).unwrap(),
        stderr: String::from_utf8(output.stderr.clone()).unwrap(),
    }
}

impl CommandResult {
    /// Fails the test unless the exit code matches.
    pub(crate) fn assert(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// The single JSON object on standard output, validated against a schema.
    pub(crate) fn json(&self, schema_name: &str) -> Value {
        let lines = self.lines(schema_name);
        assert_eq!(lines.len(), 1, "{self:#?}");
        lines.into_iter().next().unwrap()
    }

    /// The JSON objects on standard output, one per line, validated against a schema.
    pub(crate) fn lines(&self, schema_name: &str) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| {
                let value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:#?}"));
                schema::check(schema_name, &value);
                value
            })
            .collect()
    }

    /// The error on standard error, as `--json` prints it.
    pub(crate) fn error(&self) -> Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        let value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:#?}"));
        schema::check("error", &value);
        value["error"].clone()
    }
}
