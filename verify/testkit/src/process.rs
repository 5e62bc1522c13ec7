//! A server process that cannot outlive the test that started it.
//!
//! A small shell script supervises the server. It holds the reading end of a pipe whose writing end only the test process holds. However
//! that process ends, the system closes the pipe, and the script kills the server and removes its data. The script has a process group of
//! its own, so that an interrupt at the terminal ends the test and not the script before its work is done.
//!
//! The server is killed outright because a graceful stop takes SeaweedFS twelve seconds, and nobody reads its data again.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::KitError;
use crate::clock::wait_until;

const READY_LIMIT: Duration = Duration::from_secs(90);
/// How often it is checked whether a server still runs.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments: the server's directory, the files to remove after its end, its program, the program's arguments.
///
/// The test for `exit-status` keeps the script from killing a process id that may belong to another process by now.
const SUPERVISOR: &str = r#"
exec 3<&0 </dev/null
dir=$1 leftovers=$2
shift 2
"$@" >"$dir/server.log" 2>&1 3<&- &
server=$!
echo "$server" >"$dir/pid"
(
    cat <&3 >/dev/null
    [ -e "$dir/exit-status" ] || kill -9 "$server"
) &
wait "$server"
echo "$?" >"$dir/exit-status"
wait
rm -f $leftovers
rm -rf "$dir"
"#;

/// A running server with its data. Dropping it kills the one and removes the other.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    supervisor: Child,
    dir: PathBuf,
    /// Set when the server is ended on purpose.
    stopping: Arc<AtomicBool>,
}

impl ServerProcess {
    /// A directory for a server's data below `parent`.
    pub(crate) fn directory(parent: &Path, name: &str) -> Result<TempDir, KitError> {
        fs::create_dir_all(parent).map_err(KitError::io("create", parent))?;
        tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .tempdir_in(parent)
            .map_err(KitError::io("create a directory in", parent))
    }

    /// Starts a server in its directory. It responds some seconds later. `leftovers` are shell patterns of files that the
    /// server leaves elsewhere.
    pub(crate) fn spawn(
        dir: TempDir,
        program: &Path,
        arguments: &[String],
        environment: &[(&str, &str)],
        leftovers: &str,
    ) -> Result<Self, KitError> {
        let supervisor = Command::new("/bin/sh")
            .args(["-c", SUPERVISOR, "server-supervisor"])
            .arg(dir.path())
            .arg(leftovers)
            .arg(program)
            .args(arguments)
            .current_dir(dir.path())
            // Nothing of the caller's environment may change how the server behaves or who may log in.
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", dir.path())
            .env("TMPDIR", dir.path())
            .envs(environment.iter().copied())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(KitError::io("start", "/bin/sh"))?;
        // From here on the supervisor removes the directory.
        Ok(Self {
            supervisor,
            dir: dir.keep(),
            stopping: Arc::default(),
        })
    }

    /// The server's exit status, once it has ended by itself.
    pub(crate) fn exit_status(&self) -> Option<String> {
        exit_status(&self.dir)
    }

    /// The last lines of the server's log.
    fn log_tail(&self) -> String {
        log_tail(&self.dir)
    }

    /// Calls `report` with the exit status and the last lines of the log if the server ends by itself.
    pub(crate) fn watch(&self, report: impl FnOnce(&str, &str) + Send + 'static) {
        let (dir, stopping) = (self.dir.clone(), Arc::clone(&self.stopping));
        thread::spawn(move || {
            let status = loop {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                if let Some(status) = exit_status(&dir) {
                    break status;
                }
                thread::sleep(WATCH_INTERVAL);
            };
            // It may have been ended on purpose just now.
            if !stopping.load(Ordering::Acquire) {
                report(&status, &log_tail(&dir));
            }
        });
    }

    /// Waits until a request succeeds, for at most [`READY_LIMIT`]: SeaweedFS takes three seconds to start on an idle machine.
    pub(crate) fn wait_until_ready(
        &self,
        server: &'static str,
        tries: usize,
        mut request: impl FnMut() -> Result<(), KitError>,
    ) -> Result<(), KitError> {
        let mut last = String::from("no request was sent");
        let mut status = None;
        let ready = wait_until(READY_LIMIT, || {
            status = self.exit_status();
            let outcome = request();
            let ready = outcome.is_ok();
            if let Err(error) = outcome {
                last = error.to_string();
            }
            ready || status.is_some()
        });
        match status {
            Some(status) => Err(KitError::ServerEnded {
                server,
                status,
                tries,
                log: self.log_tail(),
            }),
            None if ready => Ok(()),
            None => Err(KitError::ServerNotReady {
                server,
                limit_s: READY_LIMIT.as_secs(),
                last,
                log: self.log_tail(),
            }),
        }
    }

    /// Where the server's data is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Waiting closes the pipe first, which is the supervisor's signal. There is nobody to report a failure to.
        let _ = self.supervisor.wait();
    }
}

/// The death of the server in this directory, if it has died.
pub(crate) fn death_in(dir: &Path) -> Option<KitError> {
    Some(KitError::ServerDied {
        status: exit_status(dir)?,
        log: log_tail(dir),
    })
}

/// Calls `report` if the server in this directory dies, whoever started it. A directory that is gone belonged to a server that was stopped
/// on purpose.
pub(crate) fn watch_directory(dir: &Path, report: impl FnOnce(KitError) + Send + 'static) {
    let dir = dir.to_owned();
    thread::spawn(move || {
        while dir.exists() {
            if let Some(death) = death_in(&dir) {
                return report(death);
            }
            thread::sleep(WATCH_INTERVAL);
        }
    });
}

fn exit_status(dir: &Path) -> Option<String> {
    let status = fs::read_to_string(dir.join("exit-status")).ok()?;
    // The file is there a moment before its content.
    Some(status.trim().to_owned()).filter(|status| !status.is_empty())
}

fn log_tail(dir: &Path) -> String {
    const LINES: usize = 30;
    let log = fs::read(dir.join("server.log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
