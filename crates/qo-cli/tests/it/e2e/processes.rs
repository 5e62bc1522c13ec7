//! A worker as a process: started, signalled, waited for.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use qo_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use super::LIMIT;

/// A running worker. It is killed when the test is over.
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
        keep(child.stdout.take().unwrap(), Arc::clone(&log));
        keep(child.stderr.take().unwrap(), Arc::clone(&log));
        Self {
            id: id.to_owned(),
            child,
            log,
        }
    }

    /// What it said so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended by itself or by a signal.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = wait_until(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended, "worker {} goes on:\n{}", self.id, self.log());
        status.unwrap()
    }

    /// Waits until it has said something.
    pub(crate) fn wait_for_log(&self, text: &str) {
        let said = wait_until(LIMIT, || self.log().contains(text));
        assert!(
            said,
            "worker {} did not say {text:?}:\n{}",
            self.id,
            self.log()
        );
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- worker {}\n{}", self.id, self.log());
        }
    }
}

/// Keeps what a worker says. A handler that outlives its worker holds the pipe open, so nobody waits for its end.
fn keep(mut pipe: impl Read + Send + 'static, log: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            log.lock().unwrap().push_str(&text);
        }
    });
}
