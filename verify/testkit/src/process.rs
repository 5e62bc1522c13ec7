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
use std::time::Duration;

use tempfile::TempDir;

use crate::KitError;
use crate::clock::wait_until;

const READY_LIMIT: Duration = Duration::from_secs(90);

/// Arguments: the server's directory, the files to remove after its end, its program, the program's arguments.
///
/// The test for `exit-status` keeps the script from killing a process id that may belong to another process by now.
const SUPERVISOR: &str = r#"
exec 3<&0 </dev/null
dir=$1 leftovers=$2
shift 2
"$@" >"$dir/server.log" 2>&1 3<&- &
server=$!
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
        })
    }

    /// The server's exit status, once it has ended by itself.
    pub(crate) fn exit_status(&self) -> Option<String> {
        let status = fs::read_to_string(self.dir.join("exit-status")).ok()?;
        // The file is there a moment before its content.
        Some(status.trim().to_owned()).filter(|status| !status.is_empty())
    }

    /// The last lines of the server's log.
    pub(crate) fn log_tail(&self) -> String {
        const LINES: usize = 30;
        let log = fs::read(self.dir.join("server.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
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
        // Waiting closes the pipe first, which is the supervisor's signal. There is nobody to report a failure to.
        let _ = self.supervisor.wait();
    }
}
