//! The keys of qo's objects in a bucket.
//!
//! | key | holds |
//! | --- | --- |
//! | `tasks/{shard}/{id}.json` | the task: the single source of truth |
//! | `ready/{queue}/{type}/{priority}/{available_at_ms}/{id}` | marks a due task; one with a limit key has the key as a further part |
//! | `later/{available_at_ms}/{id}/{queue}/{type}/{priority}` | marks a task that will be due; likewise |
//! | `ready/{queue}/{type}/{priority}/{rank_ms}/{id}/.{available_at_ms}` | marks a due task that has a rank among the groups of its queue; its later entry ends with the rank |
//! | `leases/{shard}/{minute}/{id}/{attempt}` | marks a running task, by the minute in which its lease expires |
//! | `workers/{worker}.json` | a worker's record |
//! | `data/{shard}/{id}/input-{sha256}.json` | an input too large for the record |
//! | `data/{shard}/{id}/output-{attempt}.json` | an output too large for the record |
//! | `keys/{sha256}.json` | the task of an idempotency key, by the hash of the key and its scope |
//! | `limits/{name}.json` | the attempts that hold a slot of a limit, and its recent starts |
//! | `order/{sha256}.json` | the tasks of an ordering key in their order, by the hash of the queue and the key |
//! | `blobs/records/{first two digits}/{address}.json` | which generation of a blob is stored, and when a task last needed it |
//! | `blobs/data/{first two digits}/{address}.{generation}` | the bytes of a blob |
//! | `meta/signal.json` | changes with every submit |
//! | `meta/queues.json` | the paused queues |
//! | `meta/settings/{kind}/{name}.json` | a document, such as a schedule |
//! | `meta/claims.json` | changes while tasks are being claimed |
//! | `meta/sweep.json` | the sweeper's position |
//! | `meta/workers.json` | the live workers and what they serve |
//! | `meta/tokens.json` | the tokens of the HTTP API, without their secrets |
//! | `quarantine/{key}` | an unreadable object, moved aside with the reason |
//!
//! Reasons for this layout:
//! - **ready**: a worker lists the prefix of a queue and a type that it serves, so other tasks do not get in its way.
//!   The first page is the most urgent work: lower priority number first, then older first. There is no shard,
//!   because an idle worker would need sixteen LISTs to see one task.
//! - **later**: tasks that are not due yet are separate, so that listing due work does not skip through them. The
//!   time comes first, so that one LIST from the front shows what becomes due next, for all queues and types. A
//!   process that finds a due entry moves it to `ready`. The time has millisecond precision, so the task need not be
//!   read. The id precedes the names, because some stores list a folder `a` before its sibling `a-b`, out of order.
//! - **limit keys**: they are in the keys of the index, so that a worker skips tasks whose limit is full without reading them.
//! - **ranks**: a task with a group has a rank instead of its due time at the place that decides about the order. A part that begins with a dot
//!   cannot be a limit key.
//! - **leases**: a minute, not a time, so that most renewals leave the entry in place and need no index write.
//! - **No index key is used twice**: a task's due time only grows, and a lease key contains the attempt. A late
//!   deletion of an old entry therefore never removes a new one.
//! - **input**: the key contains the content's hash, so that a second submit of an id with another input cannot
//!   overwrite the first one's.
//! - **output**: the key contains the attempt, so that a worker that lost its lease cannot overwrite the output of a
//!   newer attempt.
//! - **blobs**: the bytes have a generation, so that a late deletion of collected bytes cannot remove bytes that were uploaded since.
//!   Records are apart from the bytes, so that either can be listed alone.
//!
//! Times and minutes are fixed-width numbers, so that they sort as text in time order. Every other part is a
//! validated name or an id. Payloads are never part of a key.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::blob::BlobAddress;
use crate::document::{DocumentId, DocumentKind};
use crate::id::{Shard, TaskId};
use crate::names::{DocumentName, LimitKey, QueueName, TaskType, WorkerId};
use crate::payload::Sha256;
use crate::task::{PRIORITY_MAX, Task};
use crate::time::Timestamp;

/// The key of one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The task's record.
    Task(TaskId),
    /// The index entry of a due task.
    Ready(IndexEntry),
    /// The index entry of a task that will be due.
    Later(IndexEntry),
    /// The index entry of a running task.
    Lease {
        /// The minute since 1970 in which the lease expires.
        minute: u64,
        /// The task.
        id: TaskId,
        /// The attempt that holds the lease.
        attempt: u32,
    },
    /// A worker's record.
    Worker(WorkerId),
    /// An input too large for the record.
    Input {
        /// The task.
        id: TaskId,
        /// The digest of the input.
        sha256: Sha256,
    },
    /// An output too large for the record.
    Output {
        /// The task.
        id: TaskId,
        /// The attempt that produced it.
        attempt: u32,
    },
    /// The task of an idempotency key.
    Idempotency(Sha256),
    /// The line of an ordering key.
    Line(Sha256),
    /// The holders of a limit.
    Limit(DocumentName),
    /// The record of a blob.
    BlobRecord(BlobAddress),
    /// The bytes of a blob.
    BlobData {
        /// The blob.
        address: BlobAddress,
        /// How often the blob was stored again, from 1.
        generation: u64,
    },
}

/// An entry of the ready or later index for a pending task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexEntry {
    /// The task's queue.
    pub queue: QueueName,
    /// The task's type.
    pub task_type: TaskType,
    /// 0 to 9, lower first.
    pub priority: u8,
    /// When it can be claimed.
    pub available_at: Timestamp,
    /// The task.
    pub id: TaskId,
    /// The task's limit key.
    pub limit_key: Option<LimitKey>,
    /// Its place among the groups of the queue, if it is not the due time.
    pub rank: Option<Timestamp>,
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
            limit_key: task.limit_key.clone(),
            rank: task.fairness_rank,
        }
    }

    /// The time that orders it among the due tasks of its queue, type and priority.
    pub fn place(&self) -> Timestamp {
        self.rank.unwrap_or(self.available_at)
    }

    /// Reads the parts of a key behind the required ones. Returns the entry and the time of the last part.
    fn with_further_parts<'a>(
        mut self,
        mut parts: impl Iterator<Item = &'a str>,
    ) -> Option<(Self, Option<Timestamp>)> {
        let mut part = parts.next();
        if let Some(text) = part.filter(|text| !text.starts_with('.')) {
            self.limit_key = Some(text.parse().ok()?);
            part = parts.next();
        }
        let time = match part {
            Some(text) => Some(Timestamp::from_millis(
                text.strip_prefix('.')?.parse().ok()?,
            )),
            None => None,
        };
        Some((self, time))
    }

    /// The key of this entry at `now`.
    pub fn key(self, now: Timestamp) -> Key {
        if self.available_at <= now {
            Key::Ready(self)
        } else {
            Key::Later(self)
        }
    }
}

/// The prefix of the tasks in one shard.
pub fn tasks_prefix(shard: Shard) -> String {
    format!("tasks/{shard}")
}

/// The prefix of the due tasks of one queue and type.
pub fn ready_prefix(queue: &QueueName, task_type: &TaskType) -> String {
    format!("ready/{queue}/{task_type}")
}

/// The prefix of all tasks that will be due.
pub const LATER_PREFIX: &str = "later";

/// The prefix of the running tasks in one shard.
pub fn leases_prefix(shard: Shard) -> String {
    format!("leases/{shard}")
}

/// The prefix of the worker records.
pub const WORKERS_PREFIX: &str = "workers";

/// The prefix of all running tasks.
pub const LEASES_PREFIX: &str = "leases";

/// The prefix of all tasks.
pub const TASKS_PREFIX: &str = "tasks";

/// The prefix of all due tasks.
pub const READY_PREFIX: &str = "ready";

/// Changes with every submit.
pub const SIGNAL_KEY: &str = "meta/signal.json";

/// The paused queues.
pub const QUEUES_KEY: &str = "meta/queues.json";

/// The prefix of the documents of a kind.
pub fn documents_prefix(kind: DocumentKind) -> String {
    format!("meta/settings/{kind}")
}

/// The key of a document.
pub fn document_key(id: &DocumentId) -> String {
    format!("meta/settings/{id}.json")
}

/// The document of a key that [`document_key`] made.
pub fn document_of(key: &str) -> Option<DocumentId> {
    DocumentId::parse(key.strip_prefix("meta/settings/")?.strip_suffix(".json")?)
}

/// Changes while tasks are being claimed.
pub const CLAIMS_KEY: &str = "meta/claims.json";

/// The sweeper's position.
pub const SWEEP_KEY: &str = "meta/sweep.json";

/// The live workers and what they serve.
pub const ROSTER_KEY: &str = "meta/workers.json";

/// The leading broker.
pub const BROKER_KEY: &str = "meta/broker.json";

/// The prefix of all large payloads.
pub const DATA_PREFIX: &str = "data";

/// The prefix of the lines of all ordering keys.
pub const LINES_PREFIX: &str = "order";

/// The prefix of all blobs.
pub const BLOBS_PREFIX: &str = "blobs";

/// The prefix of the records of all blobs.
pub const BLOB_RECORDS_PREFIX: &str = "blobs/records";

/// The prefix of the bytes of all blobs.
pub const BLOB_DATA_PREFIX: &str = "blobs/data";

/// The prefix of unreadable objects.
pub const QUARANTINE_PREFIX: &str = "quarantine";

/// The prefix of one task's large payloads.
pub fn data_prefix(id: TaskId) -> String {
    format!("data/{}/{id}", id.shard())
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(id) => write!(f, "tasks/{}/{id}.json", id.shard()),
            Self::Ready(entry) => {
                write!(
                    f,
                    "ready/{}/{}/{}/{:015}/{}",
                    entry.queue,
                    entry.task_type,
                    entry.priority,
                    entry.place().as_millis(),
                    entry.id
                )?;
                let due = entry.rank.map(|_| entry.available_at);
                write_further_parts(f, entry, due)
            }
            Self::Later(entry) => {
                write!(
                    f,
                    "later/{:015}/{}/{}/{}/{}",
                    entry.available_at.as_millis(),
                    entry.id,
                    entry.queue,
                    entry.task_type,
                    entry.priority
                )?;
                write_further_parts(f, entry, entry.rank)
            }
            Self::Lease {
                minute,
                id,
                attempt,
            } => write!(f, "leases/{}/{minute:010}/{id}/{attempt}", id.shard()),
            Self::Worker(worker) => write!(f, "workers/{worker}.json"),
            Self::Input { id, sha256 } => write!(f, "data/{}/{id}/input-{sha256}.json", id.shard()),
            Self::Idempotency(sha256) => write!(f, "keys/{sha256}.json"),
            Self::Line(sha256) => write!(f, "{LINES_PREFIX}/{sha256}.json"),
            Self::Limit(name) => write!(f, "limits/{name}.json"),
            Self::BlobRecord(address) => {
                write!(
                    f,
                    "{BLOB_RECORDS_PREFIX}/{}/{address}.json",
                    address.group()
                )
            }
            Self::BlobData {
                address,
                generation,
            } => write!(
                f,
                "{BLOB_DATA_PREFIX}/{}/{address}.{generation}",
                address.group()
            ),
            Self::Output { id, attempt } => {
                write!(f, "data/{}/{id}/output-{attempt}.json", id.shard())
            }
        }
    }
}

fn write_further_parts(
    f: &mut fmt::Formatter<'_>,
    entry: &IndexEntry,
    time: Option<Timestamp>,
) -> fmt::Result {
    if let Some(key) = &entry.limit_key {
        write!(f, "/{key}")?;
    }
    match time {
        Some(time) => write!(f, "/.{:015}", time.as_millis()),
        None => Ok(()),
    }
}

/// Why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a qo key")]
pub struct UnknownKey {
    text: String,
}

impl FromStr for Key {
    type Err = UnknownKey;

    /// Parses a key. Accepts only the output of [`fmt::Display`], because two spellings of one key would be two
    /// objects.
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
            let entry = read_entry(queue, task_type, priority, at, id)?;
            let (mut entry, due) = entry.with_further_parts(parts)?;
            if let Some(due) = due {
                entry.rank = Some(std::mem::replace(&mut entry.available_at, due));
            }
            Key::Ready(entry)
        }
        "later" => {
            let (at, id, queue, task_type, priority) =
                (next()?, next()?, next()?, next()?, next()?);
            let entry = read_entry(queue, task_type, priority, at, id)?;
            let (mut entry, rank) = entry.with_further_parts(parts)?;
            entry.rank = rank;
            Key::Later(entry)
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
        "order" => Key::Line(next()?.strip_suffix(".json")?.parse().ok()?),
        "limits" => Key::Limit(next()?.strip_suffix(".json")?.parse().ok()?),
        "workers" => Key::Worker(next()?.strip_suffix(".json")?.parse().ok()?),
        "blobs" => {
            let kind = next()?;
            next()?;
            let (address, suffix) = next()?.split_once('.')?;
            let address = address.parse().ok()?;
            match (kind, suffix) {
                ("records", "json") => Key::BlobRecord(address),
                ("data", generation) => Key::BlobData {
                    address,
                    generation: generation.parse().ok()?,
                },
                _ => return None,
            }
        }
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
        limit_key: None,
        rank: None,
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
            limit_key: None,
            rank: None,
        }
    }

    fn ranked_entry() -> IndexEntry {
        IndexEntry {
            rank: Some(Timestamp::from_millis(1_763_238_900_000)),
            ..limited_entry()
        }
    }

    fn limited_entry() -> IndexEntry {
        IndexEntry {
            limit_key: Some("stripe".parse().unwrap()),
            ..entry(5, 1_763_238_840_123)
        }
    }

    #[test]
    fn keys_match_the_documentation() {
        let id = entry(5, 0).id;
        let keys = [
            (
                Key::Ready(ranked_entry()),
                "ready/default/send_email/5/001763238900000/550e8400-e29b-41d4-a716-446655440000/stripe/.001763238840123",
            ),
            (
                Key::Later(ranked_entry()),
                "later/001763238840123/550e8400-e29b-41d4-a716-446655440000/default/send_email/5/stripe/.001763238900000",
            ),
            (
                Key::Ready(IndexEntry {
                    limit_key: None,
                    ..ranked_entry()
                }),
                "ready/default/send_email/5/001763238900000/550e8400-e29b-41d4-a716-446655440000/.001763238840123",
            ),
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
                Key::Ready(limited_entry()),
                "ready/default/send_email/5/001763238840123/550e8400-e29b-41d4-a716-446655440000/stripe",
            ),
            (
                Key::Later(limited_entry()),
                "later/001763238840123/550e8400-e29b-41d4-a716-446655440000/default/send_email/5/stripe",
            ),
            (Key::Limit("stripe".parse().unwrap()), "limits/stripe.json"),
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
                Key::Line(Sha256::from_bytes([0xcd; 32])),
                &format!("order/{}.json", "cd".repeat(32)),
            ),
            (
                Key::Output { id, attempt: 12 },
                "data/5/550e8400-e29b-41d4-a716-446655440000/output-12.json",
            ),
            (
                Key::BlobRecord(Sha256::from_bytes([0xcd; 32]).into()),
                &format!("blobs/records/cd/{}.json", "cd".repeat(32)),
            ),
            (
                Key::BlobData {
                    address: Sha256::from_bytes([0xcd; 32]).into(),
                    generation: 2,
                },
                &format!("blobs/data/cd/{}.2", "cd".repeat(32)),
            ),
        ];
        for (key, text) in keys {
            assert_eq!(key.to_string(), text);
            assert_eq!(text.parse(), Ok(key));
        }
    }

    #[test]
    fn ready_keys_sort_in_service_order() {
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
    fn later_keys_sort_in_time_order() {
        let keys = [
            entry(9, 99),
            entry(0, 100),
            entry(5, Timestamp::MAX.as_millis()),
        ];
        let texts: Vec<_> = keys.map(|entry| Key::Later(entry).to_string()).into();
        assert!(texts.is_sorted(), "{texts:?}");
    }

    #[test]
    fn an_entry_is_ready_from_its_due_millisecond() {
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
    fn invalid_keys_are_rejected() {
        for bad in [
            "",
            "tasks",
            "tasks/5/550e8400-e29b-41d4-a716-446655440000",
            "tasks/6/550e8400-e29b-41d4-a716-446655440000.json",
            "tasks/5/550E8400-e29b-41d4-a716-446655440000.json",
            "tasks/5/550e8400-e29b-41d4-a716-446655440000.json/x",
            "ready/default/send_email/5/1763238840123/550e8400-e29b-41d4-a716-446655440000",
            "ready/default/send_email/12/001763238840123/550e8400-e29b-41d4-a716-446655440000",
            "ready/default/send_email/5/001763238840123/550e8400-e29b-41d4-a716-446655440000/.1763238840123",
            "ready/default/send_email/5/001763238840123/550e8400-e29b-41d4-a716-446655440000/.001763238840123/stripe",
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
