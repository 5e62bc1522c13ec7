//! Ends the commands of a worker that was killed.
//!
//! A worker that is killed with SIGKILL cannot kill its commands. A small shell process does it instead. The worker tells it over a pipe
//! which process groups live. When the worker ends, however it ends, the system closes the pipe, and the shell kills the groups that
//! are left. It is started with the first command, has a process group of its own, and ignores the signals of a terminal, so that it
//! ends after the worker and never before.
//!
//! A command that starts at the moment when the worker is killed can escape, and so can a process that leaves its group.

use std::io::{self, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Pid;

/// Reads `+ID` and `-ID`, and at the end of its input kills the groups that were added and not removed.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
groups=' '
while read -r change; do
    id=${change#?}
    case $change in
        +*) groups="$groups$id " ;;
        -*) case $groups in *" $id "*) groups="${groups%%" $id "*} ${groups#*" $id "}" ;; esac ;;
    esac
done
for id in $groups; do kill -s KILL -- "-$id"; done
"#;

/// The process that ends the commands of a killed worker.
#[derive(Debug)]
pub(super) struct Watchdog {
    // Dropped first, so that the shell ends.
    pipe: ChildStdin,
    shell: Child,
}

impl Watchdog {
    pub(super) fn start() -> io::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "qo-watchdog"])
            .env_clear()
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        match shell.stdin.take() {
            Some(pipe) => Ok(Self { pipe, shell }),
            None => Err(io::Error::other("the watchdog has no input")),
        }
    }

    /// From now on the group is killed when this process ends.
    pub(super) fn add(&mut self, leader: Pid) -> io::Result<()> {
        writeln!(self.pipe, "+{}", leader.as_raw_pid())
    }

    /// The group has ended, and its id may be reused.
    pub(super) fn remove(&mut self, leader: Pid) -> io::Result<()> {
        writeln!(self.pipe, "-{}", leader.as_raw_pid())
    }

    /// Ends it. Groups that are left are killed.
    pub(super) fn stop(self) {
        let Self { pipe, mut shell } = self;
        drop(pipe);
        // It ends at once, because it reads the end of its input.
        let _ = shell.wait();
    }
}
