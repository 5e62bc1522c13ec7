//! Process groups: what a command starts ends with it.
//!
//! Each command leads a group of its own, so that one signal reaches it and everything that it started. A group is known to
//! [`Groups`] from before it exists until it is gone, and dies with its [`Group`]:
//!
//! - The runtime drops a handler that does not come to its end: the drop kills the group.
//! - The worker ends at once (a second Ctrl-C): [`Groups::kill_all`] kills what there is and lets nothing new start. Starting
//!   and taking note happen under one lock, so that no command slips through between the two.
//!
//! Two things escape: a process that leaves the group (`setsid`), and a worker that is killed with SIGKILL, which can do
//! nothing any more. The attempt number in `QO_ATTEMPT` is what fences both off.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// All groups that are alive. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Groups(Arc<Mutex<Alive>>);

#[derive(Debug, Default)]
struct Alive {
    leaders: BTreeSet<i32>,
    closed: bool,
}

impl Groups {
    /// Starts a command as the leader of a group of its own.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<(Child, Group)> {
        let mut alive = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.closed {
            return Err(io::Error::other("the worker is ending"));
        }
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("the command has no process id"))?;
        alive.leaders.insert(leader.as_raw_pid());
        let group = Group {
            leader,
            groups: self.clone(),
        };
        Ok((child, group))
    }

    /// Kills every group at once, and lets no new one start.
    pub fn kill_all(&self) {
        let mut alive = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        alive.closed = true;
        for leader in std::mem::take(&mut alive.leaders) {
            if let Some(leader) = Pid::from_raw(leader) {
                signal(leader, Signal::KILL);
            }
        }
    }
}

/// One group. Dropping it kills whatever is left of it.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    groups: Groups,
}

impl Group {
    /// Asks every process of the group to end.
    pub(super) fn terminate(&self) {
        signal(self.leader, Signal::TERM);
    }

    /// Kills what is left of the group.
    pub(super) fn kill(&self) {
        signal(self.leader, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut alive = self.groups.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A group that `kill_all` took out was killed by it; its number may be somebody else's by now.
        if alive.leaders.remove(&self.leader.as_raw_pid()) {
            self.kill();
        }
    }
}

fn signal(leader: Pid, signal: Signal) {
    // The one error to expect says that nobody is left, which is what a signal is sent for.
    if let Err(error) = kill_process_group(leader, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::debug!(group = leader.as_raw_pid(), %error, "a process group took no signal");
    }
}
