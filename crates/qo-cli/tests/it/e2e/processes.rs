//! A worker as a process.

use std::process::{Command, ExitStatus};

use qo_testkit::LoggedProcess;
use rustix::process::{Pid, Signal, kill_process};

use super::LIMIT;

/// A running worker. It is killed when the test is over.
pub(crate) struct WorkerProcess(LoggedProcess);

impl WorkerProcess {
    pub(crate) fn start(id: &str, mut command: Command) -> Self {
        let name = format!("worker {id}");
        Self(LoggedProcess::start(&name, &mut command).unwrap())
    }

    /// Its output so far.
    pub(crate) fn log(&self) -> String {
        self.0.log()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(&self.0, signal);
    }

    /// Waits until it exits.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.0.wait(LIMIT);
        status.unwrap_or_else(|| panic!("{} did not exit in time", self.0.name()))
    }

    /// Waits until its output contains a text.
    pub(crate) fn wait_for_log(&self, text: &str) {
        let is_logged = self.0.wait_for_log(text, LIMIT);
        assert!(is_logged, "{} did not log {text:?}", self.0.name());
    }
}

/// Sends a signal to a process.
pub(crate) fn send(process: &LoggedProcess, signal: Signal) {
    let id = i32::try_from(process.id()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}
