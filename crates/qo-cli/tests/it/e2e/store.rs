//! A store for one test, and the `qo` command on it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use qo::{Connect, OpenOptions};
use qo_store::runtime::TokioRuntime;
use qo_testkit::{SeaweedFs, wait_until};
use serde_json::Value;
use tempfile::TempDir;

use super::LIMIT;
use super::processes::WorkerProcess;

/// A store for one test, with a directory for files that handlers write.
pub(crate) struct TestStore {
    directory: TempDir,
    url: String,
    variables: Vec<(&'static str, String)>,
}

impl TestStore {
    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("queue.db").display());
        Self {
            directory,
            url,
            variables: Vec::new(),
        }
    }

    pub(crate) fn seaweedfs() -> Self {
        let server = SeaweedFs::shared().unwrap();
        let bucket = server.unique_bucket("e2e").unwrap();
        Self {
            directory: tempfile::tempdir().unwrap(),
            url: format!("s3://{bucket}"),
            variables: vec![
                ("S3_ENDPOINT", server.endpoint().to_owned()),
                ("AWS_ACCESS_KEY_ID", server.access_key().to_owned()),
                ("AWS_SECRET_ACCESS_KEY", server.secret_key().to_owned()),
                ("AWS_ALLOW_HTTP", "true".to_owned()),
            ],
        }
    }

    /// Sets the engine.
    pub(crate) fn with_engine(mut self, engine: &str) -> Self {
        self.url = format!("{}?engine={engine}", self.url);
        self
    }

    /// Sets a variable for every command.
    pub(crate) fn with_variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// A connection builder for this store.
    pub(crate) fn connection(&self) -> Connect {
        let options = OpenOptions::new(TokioRuntime::shared());
        let options = self
            .variables
            .iter()
            .fold(options, |options, (name, value)| {
                options.with_var(*name, value)
            });
        Connect::to(&self.url).options(options)
    }

    /// The command with arguments. It inherits only `PATH` from the environment.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.directory.path())
            .env("QO_STORE", &self.url)
            .env("QO_MONITOR_CHECK_INTERVAL", "1")
            .env("NO_COLOR", "1")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs the command.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the command, which must succeed, and returns its standard output.
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

    /// Submits a task and returns its id.
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

    /// Waits until a task has a status. Returns its record.
    pub(crate) fn wait_for(&self, id: &str, status: &str) -> Value {
        let mut task = Value::Null;
        let reached = wait_until(LIMIT, || {
            task = self.task(id);
            task["status"] == status
        });
        assert!(reached, "not {status} in time: {task:#}");
        task
    }

    /// Starts a worker, by default with leases of three seconds.
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
        self.directory.path().join(name)
    }

    /// The lines of a file that handlers write; empty if it does not exist.
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
