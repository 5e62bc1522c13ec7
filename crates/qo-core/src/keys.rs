//! Where a task's objects live in a bucket.
//!
//! | key | holds |
//! | --- | --- |
//! | `tasks/{shard}/{id}.json` | the task: the one source of truth |
//! | `ready/{queue}/{type}/{priority}/{available_at_ms}/{id}` | says that a task is due |
//! | `later/{available_at_ms}/{id}/{queue}/{type}/{priority}` | says that a task will be due |
//! | `leases/{shard}/{minute}/{id}/{attempt}` | says that a task is running, by the minute in which its lease runs out |
//! | `workers/{worker}.json` | a worker's record |
//! | `data/{shard}/{id}/input-{sha256}.json` | an input that is too large for the record |
//! | `data/{shard}/{id}/output-{attempt}.json` | an output that is too large for the record |
//! | `keys/{sha256}.json` | which task an idempotency key stands for, by the hash of the key in its scope |
//! | `meta/signal.json` | changes whenever something was submitted |
//! | `meta/queues.json` | which queues are paused |
//! | `meta/claims.json` | changes while tasks are being claimed |
//! | `meta/sweep.json` | how far the sweeper is |
//! | `meta/tokens.json` | the tokens of the HTTP API, without their secrets |
//! | `quarantine/{key}` | an object that cannot be read, moved out of the way, with its reason beside it |
//!
//! Why they are laid out so:
//! - **ready**: a worker lists the prefix of a queue and a type that it serves, so that tasks of others never stand in its
//!   way, and a page from the front is the most urgent work there is: lower priority number first, then older first. There
//!   is no shard in it: an idle worker would pay sixteen LISTs to see one task.
//! - **later**: what is not due yet stands apart, so that no list of due work wades through it. The time comes first, so
//!   that one LIST from the front, whatever the queue and the type, shows all that falls due next; whoever sees that an
//!   entry is due moves it to `ready`. The time is exact to the millisecond: nobody has to read the task to know when.
//!   The id stands before the names, because some stores list a folder `a` before its neighbour `a-b`, out of order.
//! - **leases**: a minute, not a time, so that a renewal mostly finds its entry in place and costs no index write.
//! - **No index key is used twice**: a task's due time only grows, and a lease is named by its attempt. So the deletion of an
//!   old entry, however late it arrives, never takes a new one away.
//! - **input**: named by its content, so that a second submit of an id with another input cannot overwrite the first one's.
//! - **output**: named by its attempt, so that a worker that lost its lease cannot overwrite the output of a newer attempt.
//!
//! Times and minutes are fixed-width numbers, so that their order as text is their order in time. Every other part is a
//! validated name or an id; payloads never enter a key.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::id::{Shard, TaskId};
use crate::names::{QueueName, TaskType, WorkerId};
use crate::payload::Sha256;
use crate::task::{PRIORITY_MAX, Task};
use crate::time::Timestamp;

/// The key of one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The task's record.
    Task(TaskId),
    /// The entry of a task that is due.
    Ready(IndexEntry),
    /// The entry of a task that will be due.
    Later(IndexEntry),
    /// The entry of a running task.
    Lease {
        /// The minute since 1970 in which the lease runs out.
        minute: u64,
        /// The task.
        id: TaskId,
        /// The attempt that holds the lease.
        attempt: u32,
    },
    /// A worker's record.
    Worker(WorkerId),
    /// An input that is too large for the record.
    Input {
        /// The task.
        id: TaskId,
        /// What it hashes to.
        sha256: Sha256,
    },
    /// An output that is too large for the record.
    Output {
        /// The task.
        id: TaskId,
        /// The attempt that made it.
        attempt: u32,
    },
    /// Which task an idempotency key stands for.
    Idempotency(Sha256),
}

/// What the ready and later indexes say of a pending task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexEntry {
    /// The queue that it waits in.
    pub queue: QueueName,
    /// The kind of work.
    pub task_type: TaskType,
    /// 0 to 9, lower first.
    pub priority: u8,
    /// When it can be claimed.
    pub available_at: Timestamp,
    /// The task.
    pub id: TaskId,
}

impl IndexEntry {
    /// The entry of a task.
    pub fn of(task: &Task) -> Self {
        Self {
            queue: task.queue.clone(),
            task_type: task.task_type.clone(),
            priority: task.priority,
            available_at: task.available_at,
            id: task.id,
        }
    }

    /// The key under which this entry belongs at `now`.
    pub fn key(self, now: Timestamp) -> Key {
        if self.available_at <= now {
            Key::Ready(self)
        } else {
            Key::Later(self)
        }
    }
}

/// The prefix of the tasks of one shard.
pub fn tasks_prefix(shard: Shard) -> String {
    format!("tasks/{shard}")
}

/// The prefix of the due tasks of one queue and type.
pub fn ready_prefix(queue: &QueueName, task_type: &TaskType) -> String {
    format!("ready/{queue}/{task_type}")
}

/// The prefix of all tasks that will be due.
pub const LATER_PREFIX: &str = "later";

/// The prefix of the running tasks of one shard.
pub fn leases_prefix(shard: Shard) -> String {
    format!("leases/{shard}")
}

/// The prefix of the workers' records.
pub const WORKERS_PREFIX: &str = "workers";

/// The prefix of all running tasks.
pub const LEASES_PREFIX: &str = "leases";

/// The prefix of all tasks.
pub const TASKS_PREFIX: &str = "tasks";

/// The prefix of all tasks that are due.
pub const READY_PREFIX: &str = "ready";

/// Changes whenever something was submitted.
pub const SIGNAL_KEY: &str = "meta/signal.json";

/// Which queues are paused.
pub const QUEUES_KEY: &str = "meta/queues.json";

/// Changes while tasks are being claimed.
pub const CLAIMS_KEY: &str = "meta/claims.json";

/// How far the sweeper is.
pub const SWEEP_KEY: &str = "meta/sweep.json";

/// Which broker leads.
pub const BROKER_KEY: &str = "meta/broker.json";

/// The prefix of all large payloads.
pub const DATA_PREFIX: &str = "data";

/// The prefix of what cannot be read.
pub const QUARANTINE_PREFIX: &str = "quarantine";

/// The prefix of one task's large payloads.
pub fn data_prefix(id: TaskId) -> String {
    format!("data/{}/{id}", id.shard())
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(id) => write!(f, "tasks/{}/{id}.json", id.shard()),
            Self::Ready(entry) => write!(
                f,
                "ready/{}/{}/{}/{:015}/{}",
                entry.queue,
                entry.task_type,
                entry.priority,
                entry.available_at.as_millis(),
                entry.id
            ),
            Self::Later(entry) => write!(
                f,
                "later/{:015}/{}/{}/{}/{}",
                entry.available_at.as_millis(),
                entry.id,
                entry.queue,
                entry.task_type,
                entry.priority
            ),
            Self::Lease {
                minute,
                id,
                attempt,
            } => write!(f, "leases/{}/{minute:010}/{id}/{attempt}", id.shard()),
            Self::Worker(worker) => write!(f, "workers/{worker}.json"),
            Self::Input { id, sha256 } => write!(f, "data/{}/{id}/input-{sha256}.json", id.shard()),
            Self::Idempotency(sha256) => write!(f, "keys/{sha256}.json"),
            Self::Output { id, attempt } => {
                write!(f, "data/{}/{id}/output-{attempt}.json", id.shard())
            }
        }
    }
}

/// A text that is not a key of qo's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a key of qo's")]
pub struct UnknownKey {
    text: String,
}

impl FromStr for Key {
    type Err = UnknownKey;

    /// Reads a key back. Only what [`fmt::Display`] writes is accepted: two spellings of one key would be two objects.
    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        read(text)
            .filter(|key| key.to_string() == text)
            .ok_or_else(|| UnknownKey {
                text: text.chars().take(200).collect(),
            })
    }
}

fn read(text: &str) -> Option<Key> {
    let mut parts = text.split('/');
    let mut next = || parts.next();
    let key = match next()? {
        "tasks" => {
            next()?;
            Key::Task(next()?.strip_suffix(".json")?.parse().ok()?)
        }
        "ready" => {
            let (queue, task_type, priority, at, id) =
                (next()?, next()?, next()?, next()?, next()?);
            Key::Ready(read_entry(queue, task_type, priority, at, id)?)
        }
        "later" => {
            let (at, id, queue, task_type, priority) =
                (next()?, next()?, next()?, next()?, next()?);
            Key::Later(read_entry(queue, task_type, priority, at, id)?)
        }
        "leases" => {
            next()?;
            Key::Lease {
                minute: next()?.parse().ok()?,
                id: next()?.parse().ok()?,
                attempt: next()?.parse().ok()?,
            }
        }
        "keys" => Key::Idempotency(next()?.strip_suffix(".json")?.parse().ok()?),
        "workers" => Key::Worker(next()?.strip_suffix(".json")?.parse().ok()?),
        "data" => {
            next()?;
            let id = next()?.parse().ok()?;
            let name = next()?.strip_suffix(".json")?;
            match name.strip_prefix("input-") {
                Some(sha256) => Key::Input {
                    id,
                    sha256: sha256.parse().ok()?,
                },
                None => Key::Output {
                    id,
                    attempt: name.strip_prefix("output-")?.parse().ok()?,
                },
            }
        }
        _ => return None,
    };
    Some(key)
}

fn read_entry(
    queue: &str,
    task_type: &str,
    priority: &str,
    at: &str,
    id: &str,
) -> Option<IndexEntry> {
    Some(IndexEntry {
        queue: queue.parse().ok()?,
        task_type: task_type.parse().ok()?,
        priority: priority
            .parse()
            .ok()
            .filter(|priority| *priority <= PRIORITY_MAX)?,
        available_at: Timestamp::from_millis(at.parse().ok()?),
        id: id.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(priority: u8, millis: i64) -> IndexEntry {
        IndexEntry {
            queue: "default".parse().unwrap(),
            task_type: "send_email".parse().unwrap(),
            priority,
            available_at: Timestamp::from_millis(millis),
            id: "550e8400-e29b-41d4-a716-446655440000".parse().unwrap(),
        }
    }

    #[test]
    fn keys_look_as_documented() {
        let id = entry(5, 0).id;
        let keys = [
            (
                Key::Task(id),
                "tasks/5/550e8400-e29b-41d4-a716-446655440000.json",
            ),
            (
                Key::Ready(entry(5, 1_763_238_840_123)),
                "ready/default/send_email/5/001763238840123/550e8400-e29b-41d4-a716-446655440000",
            ),
            (
                Key::Later(entry(5, 1_763_238_840_123)),
                "later/001763238840123/550e8400-e29b-41d4-a716-446655440000/default/send_email/5",
            ),
            (
                Key::Lease {
                    minute: 29_387_314,
                    id,
                    attempt: 3,
                },
                "leases/5/0029387314/550e8400-e29b-41d4-a716-446655440000/3",
            ),
            (
                Key::Worker("w-1.local".parse().unwrap()),
                "workers/w-1.local.json",
            ),
            (
                Key::Input {
                    id,
                    sha256: Sha256::from_bytes([0xab; 32]),
                },
                &format!(
                    "data/5/550e8400-e29b-41d4-a716-446655440000/input-{}.json",
                    "ab".repeat(32)
                ),
            ),
            (
                Key::Idempotency(Sha256::from_bytes([0xcd; 32])),
                &format!("keys/{}.json", "cd".repeat(32)),
            ),
            (
                Key::Output { id, attempt: 12 },
                "data/5/550e8400-e29b-41d4-a716-446655440000/output-12.json",
            ),
        ];
        for (key, text) in keys {
            assert_eq!(key.to_string(), text);
            assert_eq!(text.parse(), Ok(key));
        }
    }

    #[test]
    fn the_order_of_ready_keys_is_the_order_of_service() {
        let keys = [
            entry(0, 99),
            entry(0, 100),
            entry(0, 1_000),
            entry(1, 5),
            entry(9, 0),
        ];
        let texts: Vec<_> = keys.map(|entry| Key::Ready(entry).to_string()).into();
        assert!(texts.is_sorted(), "{texts:?}");
    }

    #[test]
    fn the_order_of_later_keys_is_the_order_in_time() {
        let keys = [
            entry(9, 99),
            entry(0, 100),
            entry(5, Timestamp::MAX.as_millis()),
        ];
        let texts: Vec<_> = keys.map(|entry| Key::Later(entry).to_string()).into();
        assert!(texts.is_sorted(), "{texts:?}");
    }

    #[test]
    fn an_entry_is_ready_from_the_millisecond_on_at_which_it_is_due() {
        let at = Timestamp::from_millis(1_000);
        assert!(matches!(entry(5, 1_000).key(at), Key::Ready(_)));
        assert!(matches!(entry(5, 1_001).key(at), Key::Later(_)));
    }

    #[test]
    fn prefixes_are_prefixes() {
        let id = entry(5, 0).id;
        let ready = Key::Ready(entry(5, 0)).to_string();
        assert!(ready.starts_with(&ready_prefix(&entry(5, 0).queue, &entry(5, 0).task_type)));
        assert!(
            Key::Task(id)
                .to_string()
                .starts_with(&tasks_prefix(id.shard()))
        );
        assert!(
            Key::Lease {
                minute: 1,
                id,
                attempt: 1
            }
            .to_string()
            .starts_with(&leases_prefix(id.shard()))
        );
        assert!(
            Key::Output { id, attempt: 1 }
                .to_string()
                .starts_with(&data_prefix(id))
        );
    }

    #[test]
    fn other_texts_are_no_keys() {
        for bad in [
            "",
            "tasks",
            "tasks/5/550e8400-e29b-41d4-a716-446655440000",
            "tasks/6/550e8400-e29b-41d4-a716-446655440000.json",
            "tasks/5/550E8400-e29b-41d4-a716-446655440000.json",
            "tasks/5/550e8400-e29b-41d4-a716-446655440000.json/x",
            "ready/default/send_email/5/1763238840123/550e8400-e29b-41d4-a716-446655440000",
            "ready/default/send_email/12/001763238840123/550e8400-e29b-41d4-a716-446655440000",
            "ready/../send_email/5/001763238840123/550e8400-e29b-41d4-a716-446655440000",
            "leases/5/+029387314/550e8400-e29b-41d4-a716-446655440000/3",
            "workers/.json",
            "data/5/550e8400-e29b-41d4-a716-446655440000/output-01.json",
            "ui/index.html",
        ] {
            assert!(bad.parse::<Key>().is_err(), "{bad}");
        }
    }
}
