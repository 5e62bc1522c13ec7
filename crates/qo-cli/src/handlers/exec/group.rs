//! Process groups: the processes that a command starts are killed with it.
//!
//! Each command leads its own process group, so one signal reaches all of its processes. [`Groups`] knows every live group, and
//! dropping a [`Group`] kills it:
//!
//! - If the worker drops a handler that does not return, the drop kills the group.
//! - If the worker stops at once (a second Ctrl-C), [`Groups::kill_all`] kills all groups and prevents new ones. Spawning and
//!   registering happen under one lock, so no command escapes between the two.
//!
//! - If the worker is killed with SIGKILL, the [`Watchdog`] kills all groups.
//!
//! A process that leaves the group (`setsid`) escapes. The attempt number in `QO_ATTEMPT` is the fencing token for it.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::watchdog::Watchdog;

/// The live process groups. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Groups(Arc<Mutex<LiveGroups>>);

#[derive(Debug, Default)]
struct LiveGroups {
    leaders: BTreeSet<i32>,
    closed: bool,
    watchdog: WatchdogState,
}

#[derive(Debug, Default)]
enum WatchdogState {
    #[default]
    NotStarted,
    Running(Watchdog),
    /// It could not be started, or has ended. The commands run without it.
    Gone,
}

impl WatchdogState {
    /// Starts the watchdog if it was not started before.
    fn ensure_started(&mut self) {
        if !matches!(self, Self::NotStarted) {
            return;
        }
        *self = match Watchdog::start() {
            Ok(watchdog) => Self::Running(watchdog),
            Err(error) => {
                tracing::warn!(%error, "if this worker is killed, its commands keep running: cannot start /bin/sh to end them");
                Self::Gone
            }
        };
    }

    fn tell(&mut self, tell: impl FnOnce(&mut Watchdog) -> io::Result<()>) {
        if let Self::Running(watchdog) = self
            && let Err(error) = tell(watchdog)
        {
            tracing::warn!(%error, "if this worker is killed, its commands keep running: the process that would end them is gone");
            *self = Self::Gone;
        }
    }
}

impl Groups {
    /// Starts a command as the leader of a new group.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<(Child, Group)> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if live.closed {
            return Err(io::Error::other("the worker is stopping"));
        }
        live.watchdog.ensure_started();
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("the command has no process id"))?;
        live.leaders.insert(leader.as_raw_pid());
        live.watchdog.tell(|watchdog| watchdog.add(leader));
        let group = Group {
            leader,
            groups: self.clone(),
        };
        Ok((child, group))
    }

    /// Kills every group and prevents new ones.
    pub fn kill_all(&self) {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.closed = true;
        for leader in std::mem::take(&mut live.leaders) {
            if let Some(leader) = Pid::from_raw(leader) {
                signal(leader, Signal::KILL);
                live.watchdog.tell(|watchdog| watchdog.remove(leader));
            }
        }
        if let WatchdogState::Running(watchdog) = std::mem::take(&mut live.watchdog) {
            watchdog.stop();
        }
    }
}

/// A process group. Dropping it kills the remaining processes.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    groups: Groups,
}

impl Group {
    /// Sends SIGTERM to the group.
    pub(super) fn terminate(&self) {
        signal(self.leader, Signal::TERM);
    }

    /// Sends SIGKILL to the group.
    pub(super) fn kill(&self) {
        signal(self.leader, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut live = self.groups.0.lock().unwrap_or_else(PoisonError::into_inner);
        // `kill_all` has already killed a group that is no longer registered, and its id may have been reused.
        if live.leaders.remove(&self.leader.as_raw_pid()) {
            self.kill();
            live.watchdog.tell(|watchdog| watchdog.remove(self.leader));
        }
    }
}

fn signal(leader: Pid, signal: Signal) {
    // SRCH means that no process of the group is left.
    if let Err(error) = kill_process_group(leader, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::debug!(group = leader.as_raw_pid(), %error, "cannot signal a process group");
    }
}
