//! Worker processes.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use qo_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use super::LIMIT;

/// A running worker. Dropping it kills the process.
pub(crate) struct WorkerProcess {
    id: String,
    child: Child,
    log: Arc<Mutex<String>>,
}

impl WorkerProcess {
    pub(crate) fn start(id: &str, mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        record(child.stdout.take().unwrap(), Arc::clone(&log));
        record(child.stderr.take().unwrap(), Arc::clone(&log));
        Self {
            id: id.to_owned(),
            child,
            log,
        }
    }

    /// Its output so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits until the process exits.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = wait_until(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended, "worker {} did not exit:\n{}", self.id, self.log());
        status.unwrap()
    }

    /// Waits until the output contains a text.
    pub(crate) fn wait_for_log(&self, text: &str) {
        let found = wait_until(LIMIT, || self.log().contains(text));
        assert!(
            found,
            "worker {} did not print {text:?}:\n{}",
            self.id,
            self.log()
        );
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- worker {}\n{}", self.id, self.log());
        }
    }
}

/// Records the output of a worker. The thread is not joined, because a handler that outlives its worker keeps the pipe open.
fn record(mut pipe: impl Read + Send + 'static, log: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            log.lock().unwrap().push_str(&text);
        }
    });
}
