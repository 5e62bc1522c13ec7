//! Every stored version of every task, from the entries that nodes apply.
//!
//! An entry is committed when a node applies it, and whoever waits for it is told later. So the first node that applies an entry sets the
//! time of its changes. Other nodes, and nodes that apply an entry again after a crash, bring the same rows again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use bytes::Bytes;
use qo_broker::rows::RowWrite;
use qo_check::StoredVersion;
use qo_cluster::RowChange;
use qo_core::task::encode;
use qo_core::{Task, TaskId, Timestamp};

use crate::sched::{Scheduler, lock};
use crate::task_rows::{TaskRow, TaskRows};

/// The versions of a run, shared by its nodes.
pub(super) struct Versions {
    scheduler: Scheduler,
    /// Whether the clocks of the nodes are wrong. Then the time of a version is the one that its leader gave it.
    has_wrong_clocks: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: BTreeMap<u16, Group>,
    versions: BTreeMap<TaskId, Vec<StoredVersion>>,
}

#[derive(Default)]
struct Group {
    tasks: TaskRows,
    /// The keys and values of the records so far.
    seen: BTreeSet<(Bytes, Bytes)>,
    entries: u64,
}

impl Versions {
    pub(super) fn new(scheduler: &Scheduler, has_wrong_clocks: bool) -> Self {
        Self {
            scheduler: scheduler.clone(),
            has_wrong_clocks,
            state: Mutex::default(),
        }
    }

    /// A node of a group applies an entry with these changes.
    pub(super) fn applied(&self, group: u16, changes: &[RowChange]) {
        let mut state = lock(&self.state);
        let State { groups, versions } = &mut *state;
        let group = groups.entry(group).or_default();
        let mut rows = Vec::new();
        let mut is_new = false;
        for change in changes {
            let RowChange::Write(write) = change else {
                continue;
            };
            let (key, value) = match write {
                RowWrite::Put(row) => (&row.key, Some(row.value.clone())),
                RowWrite::Delete(key) => (key, None),
            };
            let Some(row) = TaskRow::new(group.entries, key, value.clone()) else {
                continue;
            };
            if let Some(value) = value.filter(|_| row.is_record()) {
                is_new |= group.seen.insert((key.clone(), value));
            }
            rows.push(row);
        }
        if !is_new {
            return;
        }
        group.entries += 1;
        let tick = self.scheduler.tick();
        let now = self.scheduler.true_now();
        group.tasks.follow(&rows, |id, task| {
            // Nobody purges a task here.
            let Some(task) = task else { return };
            let at = if self.has_wrong_clocks {
                changed_at(&task).unwrap_or(now)
            } else {
                now
            };
            let body = encode(&task).ok().map(Bytes::from);
            versions.entry(id).or_default().push(StoredVersion {
                at,
                tick,
                body,
                damaged: false,
            });
        });
    }

    /// The tasks that were ever stored.
    pub(super) fn ids(&self) -> Vec<TaskId> {
        lock(&self.state).versions.keys().copied().collect()
    }

    /// Every version of every task, oldest first.
    pub(super) fn take(&self) -> BTreeMap<TaskId, Vec<StoredVersion>> {
        std::mem::take(&mut lock(&self.state).versions)
    }
}

/// The time of the last change that left an event.
fn changed_at(task: &Task) -> Option<Timestamp> {
    task.events.iter().last().map(|event| event.at)
}
