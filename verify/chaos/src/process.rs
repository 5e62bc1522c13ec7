//! One process of the `qo` command. It is killed when it is dropped.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use qo_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};

/// A running process.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a command whose output goes to a log.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let open = || OpenOptions::new().create(true).append(true).open(log);
        let cannot = || format!("cannot open {}", log.display());
        let output = open().with_context(cannot)?;
        let errors = open().with_context(cannot)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .context("cannot start the qo command")?;
        Ok(Self { child })
    }

    /// Sends a signal, if the process still runs.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Its exit status, if it has exited.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills it and waits for its exit.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it by SIGTERM, or kills it after the limit. Returns whether it stopped in time.
    pub fn stop(&mut self, limit: Duration) -> bool {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let ended = wait_until(limit, || self.ended().is_some());
        if !ended {
            self.kill();
        }
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
