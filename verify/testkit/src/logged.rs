//! A process whose output a test reads while it runs.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::clock::wait_until;

/// A running process. It is killed when this is dropped, and its log is printed if the test panics.
#[derive(Debug)]
pub struct LoggedProcess {
    name: String,
    child: Child,
    log: Arc<Mutex<String>>,
}

impl LoggedProcess {
    /// Starts a command, and collects its output and its errors.
    pub fn start(name: &str, command: &mut Command) -> io::Result<Self> {
        let mut process = Self::start_with_output(name, command)?;
        if let Some(pipe) = process.child.stdout.take() {
            collect(pipe, Arc::clone(&process.log));
        }
        Ok(process)
    }

    /// Starts a command, and collects its errors. The caller takes its output.
    pub fn start_with_output(name: &str, command: &mut Command) -> io::Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = Arc::default();
        if let Some(pipe) = child.stderr.take() {
            collect(pipe, Arc::clone(&log));
        }
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process, to send it signals or to take its output.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.clone()
    }

    /// Waits until its output contains a text. Returns whether it does in time.
    #[must_use]
    pub fn wait_for_log(&self, text: &str, limit: Duration) -> bool {
        wait_until(limit, || self.log().contains(text))
    }

    /// Waits until it exits. Returns nothing if it does not in time.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let mut status = None;
        wait_until(limit, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        status
    }

    /// Kills it, and waits until it has exited.
    pub fn kill(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("--- {}\n{}", self.name, self.log());
        }
    }
}

/// Collects the output of a process. A child of the process may hold the pipe open, so nobody waits for the end.
fn collect(mut pipe: impl Read + Send + 'static, log: Arc<Mutex<String>>) {
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.push_str(&text);
        }
    });
}
