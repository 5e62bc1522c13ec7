//! The `qo` command on a store of the test's own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use qo::Connect;
use qo_fixtures::TestStore;
use qo_testkit::{program_under_test, wait_until};
use serde_json::Value;
use tempfile::TempDir;

use super::LIMIT;
use super::processes::WorkerProcess;

/// A store of one test, with a folder for the files of its handlers.
pub(crate) struct TestCli {
    folder: TempDir,
    address: TestStore,
}

impl TestCli {
    fn on(address: TestStore) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, address }
    }

    pub(crate) fn sqlite() -> Self {
        Self::on(TestStore::sqlite())
    }

    pub(crate) fn seaweedfs() -> Self {
        Self::on(TestStore::seaweedfs("e2e"))
    }

    /// Uses another engine on the store.
    pub(crate) fn with_engine(self, engine: &str) -> Self {
        Self {
            address: self.address.with_engine(engine),
            ..self
        }
    }

    /// Sets a variable for every command.
    pub(crate) fn with_variable(self, name: &'static str, value: &str) -> Self {
        Self {
            address: self.address.with_variable(name, value),
            ..self
        }
    }

    /// The value of a variable with which commands open the store.
    pub(crate) fn variable(&self, name: &str) -> String {
        let mut variables = self.address.variables().iter();
        let found = variables.find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone()).unwrap()
    }

    /// A connection of this process to the store.
    pub(crate) fn connection(&self) -> Connect {
        Connect::to(self.address.url()).options(self.address.options())
    }

    /// The command with arguments, and with nothing of the test's environment but `PATH`.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(program_under_test(env!("CARGO_BIN_EXE_qo")));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("QO_STORE", self.address.url())
            .env("QO_MONITOR_CHECK_INTERVAL", "1")
            .env("NO_COLOR", "1")
            .envs(self.address.variables().iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// Runs the command until it exits.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the command, expects success, and returns its output.
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Submits a task and returns its id, which is all that is printed without a terminal.
    pub(crate) fn submit(&self, task_type: &str, input: &str, more: &[&str]) -> String {
        let mut arguments = vec!["submit", "--type", task_type, "--input", input];
        arguments.extend(more);
        self.ok(arguments).trim().to_owned()
    }

    /// A task's record.
    pub(crate) fn task(&self, id: &str) -> Value {
        serde_json::from_str(&self.ok(["status", id, "--json"])).unwrap()
    }

    /// A task's events, oldest first.
    pub(crate) fn history(&self, id: &str) -> Vec<Value> {
        lines(&self.ok(["history", id, "--json"]))
    }

    /// All tasks except archived ones.
    pub(crate) fn tasks(&self) -> Vec<Value> {
        lines(&self.ok(["list", "--all", "--json"]))
    }

    /// Waits until a task has a status, and returns its record.
    pub(crate) fn wait_for(&self, id: &str, status: &str) -> Value {
        let mut task = Value::Null;
        let is_reached = wait_until(LIMIT, || {
            task = self.task(id);
            task["status"] == status
        });
        assert!(is_reached, "the task is not {status} in time: {task:#}");
        task
    }

    /// Starts a worker, with leases of three seconds unless an argument sets them.
    pub(crate) fn worker(&self, id: &str, more: &[&str]) -> WorkerProcess {
        let mut arguments = vec!["worker", "--id", id];
        if !more.contains(&"--lease") {
            arguments.extend(["--lease", "3s"]);
        }
        arguments.extend(more);
        WorkerProcess::start(id, self.command(arguments))
    }

    /// The path of a file that handlers write.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The lines of a file that handlers write; none if it does not exist.
    pub(crate) fn lines_of(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a file exists.
    pub(crate) fn wait_for_file(&self, name: &str) {
        let path = self.file(name);
        assert!(
            wait_until(LIMIT, || Path::exists(&path)),
            "no {name} in time"
        );
    }
}

/// One JSON value per line.
fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
