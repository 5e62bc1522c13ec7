//! A store of a test's own, and the `qo` command on it.

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

/// A store that only one test uses, with a folder for what its handlers write.
pub(crate) struct Place {
    folder: TempDir,
    store: String,
    variables: Vec<(&'static str, String)>,
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", folder.path().join("queue.db").display());
        Self {
            folder,
            store,
            variables: Vec::new(),
        }
    }

    pub(crate) fn seaweedfs() -> Self {
        let server = SeaweedFs::shared().unwrap();
        let bucket = server.unique_bucket("e2e").unwrap();
        Self {
            folder: tempfile::tempdir().unwrap(),
            store: format!("s3://{bucket}"),
            variables: vec![
                ("S3_ENDPOINT", server.endpoint().to_owned()),
                ("AWS_ACCESS_KEY_ID", server.access_key().to_owned()),
                ("AWS_SECRET_ACCESS_KEY", server.secret_key().to_owned()),
                ("AWS_ALLOW_HTTP", "true".to_owned()),
            ],
        }
    }

    /// The same place, with another engine on its store.
    pub(crate) fn with_engine(mut self, engine: &str) -> Self {
        self.store = format!("{}?engine={engine}", self.store);
        self
    }

    /// The same place, with a variable for every command.
    pub(crate) fn with_variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// A connection of this process to the store.
    pub(crate) fn connection(&self) -> Connect {
        let options = OpenOptions::new(TokioRuntime::shared());
        let options = self
            .variables
            .iter()
            .fold(options, |options, (name, value)| {
                options.with_var(*name, value)
            });
        Connect::to(&self.store).options(options)
    }

    /// The command with arguments, with nothing of the environment of the tests but where programs are.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("QO_STORE", &self.store)
            .env("QO_MONITOR_CHECK_INTERVAL", "1")
            .env("NO_COLOR", "1")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the command to its end, which must be a good one, and gives what it printed.
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

    /// Submits a task and gives its id: all that is printed when nobody looks.
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

    /// All tasks, archived ones aside.
    pub(crate) fn tasks(&self) -> Vec<Value> {
        lines(&self.ok(["list", "--all", "--json"]))
    }

    /// Waits until a task has a status, and gives its record.
    pub(crate) fn wait_for(&self, id: &str, status: &str) -> Value {
        let mut task = Value::Null;
        let there = wait_until(LIMIT, || {
            task = self.task(id);
            task["status"] == status
        });
        assert!(there, "not {status} in time: {task:#}");
        task
    }

    /// Starts a worker whose leases hold for three seconds, if nothing else is said.
    pub(crate) fn worker(&self, id: &str, more: &[&str]) -> WorkerProcess {
        let mut arguments = vec!["worker", "--id", id];
        if !more.contains(&"--lease") {
            arguments.extend(["--lease", "3s"]);
        }
        arguments.extend(more);
        WorkerProcess::start(id, self.command(arguments))
    }

    /// A file that handlers write to.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The lines of a file that handlers write to; none, as long as there is no file.
    pub(crate) fn lines_of(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a file is there.
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
