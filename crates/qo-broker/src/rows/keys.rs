//! The keys of the database.
//!
//! | key | value | kept until |
//! | --- | --- | --- |
//! | `l`, sequence | a live task's record, with its input if that is small | the task finishes |
//! | `i`, sequence | a live task's larger input, written once however often the record changes | the task finishes |
//! | `d`, id | the whole record of a finished task | the retention is over |
//! | `k`, key in its scope | the id of the task that holds an idempotency key | the key expires |
//! | `c`, hour, queue, type, status | the number of tasks that finished in that hour | the retention is over |
//! | `x`, hour, queue, type, status | how many of these have a row `t` | the retention is over |
//! | `t`, status, time and id, both inverted | the queue and type of a finished task; the newest come first | the retention is over |
//! | `p`, time, id | the sequence number of a task that is dropped at that time and has payloads in their own objects; or of one whose id was in use then, under a later time | the payloads are deleted |
//! | `q`, queue | who paused the queue, when and why; empty if an earlier version paused it | the queue is resumed |
//! | `y`, type | who paused the type, when and why | the type is resumed |
//! | `s`, kind, slash, name | a document, such as a schedule | it is removed |
//! | `m`, name | the format version, the reserved sequence numbers, and the time of the last write | forever |
//!
//! Ids are their sixteen bytes, which sort like their text. Numbers are big-endian. A task's sequence number is its position in the
//! order of submits and is never reused. Live and finished tasks have separate prefixes, so opening the database reads only live
//! tasks. Live tasks are sorted by sequence number because tasks are written and deleted in roughly that order: rows that are written
//! together are stored together.

use bytes::{BufMut, Bytes, BytesMut};
use qo_core::task::ScopedKey;
use qo_core::{DocumentId, PauseTarget, QueueName, Status, Task, TaskId, TaskType, Timestamp};

pub(crate) const LIVE: u8 = b'l';
pub(crate) const INPUT: u8 = b'i';
pub(crate) const ENDED: u8 = b'd';
pub(super) const KEY: u8 = b'k';
pub(super) const COUNT: u8 = b'c';
pub(super) const INDEXED: u8 = b'x';
pub(super) const TIME: u8 = b't';
pub(super) const PAYLOADS: u8 = b'p';
pub(super) const QUEUE: u8 = b'q';
pub(super) const TYPE: u8 = b'y';
pub(super) const DOCUMENT: u8 = b's';

/// The highest reserved sequence number.
pub(super) const SEQUENCE: &[u8] = b"msequence";
/// An empty row that every batch writes. Its time of creation is the time of the last write.
#[cfg(feature = "slate")]
pub(crate) const CLOCK: &[u8] = b"mclock";
/// The format version of the database.
pub(super) const FORMAT: &[u8] = b"mformat";

/// The key of a row by task id.
pub(crate) fn of_task(kind: u8, id: TaskId) -> Bytes {
    let mut key = BytesMut::with_capacity(17);
    key.put_u8(kind);
    key.put_slice(id.as_uuid().as_bytes());
    key.freeze()
}

/// The task id in a key that [`of_task`] made.
pub(super) fn task_of(key: &[u8]) -> Option<TaskId> {
    id_in(key.get(1..)?)
}

/// The key of a live task's row, by its sequence number.
pub(crate) fn of_sequence(kind: u8, sequence: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(kind);
    key.put_u64(sequence);
    key.freeze()
}

/// The sequence number in a key that [`of_sequence`] made.
pub(crate) fn sequence_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..)?.try_into().ok()?))
}

/// Parses the bytes of a task id.
pub(super) fn id_in(bytes: &[u8]) -> Option<TaskId> {
    Some(TaskId::from_bytes(bytes.try_into().ok()?))
}

/// The key of an idempotency key.
pub(super) fn of_key(key: &ScopedKey) -> Bytes {
    prefixed(KEY, key.canonical().as_bytes())
}

/// The key of a pause.
pub(super) fn of_pause(target: &PauseTarget) -> Bytes {
    match target {
        PauseTarget::Queue(queue) => prefixed(QUEUE, queue.as_str().as_bytes()),
        PauseTarget::Type(task_type) => prefixed(TYPE, task_type.as_str().as_bytes()),
    }
}

/// The key of a document.
pub(super) fn of_document(id: &DocumentId) -> Bytes {
    prefixed(DOCUMENT, id.to_string().as_bytes())
}

/// The key that records that a task has payloads in their own objects.
pub(super) fn of_payloads(dropped_at: Timestamp, id: TaskId) -> Bytes {
    let mut key = BytesMut::with_capacity(25);
    key.put_u8(PAYLOADS);
    key.put_i64(dropped_at.as_millis());
    key.put_slice(id.as_uuid().as_bytes());
    key.freeze()
}

/// The time and the task in a key that [`of_payloads`] made.
pub(super) fn payloads_of(key: &[u8]) -> Option<(Timestamp, TaskId)> {
    let millis = i64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
    let at = Timestamp::from_millis(millis);
    // Another encoding of the key would be another row, which would never be deleted.
    let id = id_in(key.get(9..)?)?;
    (at.as_millis() == millis).then_some((at, id))
}

/// The key of a finished task in the index by time. Inverted numbers sort the newest first.
pub(super) fn of_time(status: Status, created_at: Timestamp, id: TaskId) -> Bytes {
    let mut key = BytesMut::with_capacity(26);
    key.put_u8(TIME);
    key.put_u8(status as u8);
    key.put_u64(!created_at.as_millis().unsigned_abs());
    key.put_u128(!u128::from_be_bytes(*id.as_uuid().as_bytes()));
    key.freeze()
}

/// The status, the time and the task in a key that [`of_time`] made.
pub(super) fn time_of(key: &[u8]) -> Option<(Status, Timestamp, TaskId)> {
    let number = *key.get(1)?;
    let status = Status::ALL
        .into_iter()
        .find(|status| *status as u8 == number)?;
    let millis = !u64::from_be_bytes(key.get(2..10)?.try_into().ok()?);
    let millis = i64::try_from(millis).ok()?;
    let id = !u128::from_be_bytes(key.get(10..)?.try_into().ok()?);
    let at = Timestamp::from_millis(millis);
    (at.as_millis() == millis).then(|| (status, at, TaskId::from_bytes(id.to_be_bytes())))
}

/// Identifies one count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CountKey {
    /// Hours since 1970.
    pub(super) hour: u64,
    pub(super) queue: QueueName,
    pub(super) task_type: TaskType,
    pub(super) status: Status,
}

impl CountKey {
    /// The count of a finished task.
    pub(super) fn of(task: &Task) -> Self {
        let at = task.completed_at.unwrap_or(task.updated_at);
        Self {
            hour: at.minute() / 60,
            queue: task.queue.clone(),
            task_type: task.task_type.clone(),
            status: task.status,
        }
    }
}

/// The key of a count. Names contain no slash.
pub(super) fn of_count(count: &CountKey) -> Bytes {
    count_key(COUNT, count)
}

/// The key of the number of indexed tasks of a count.
pub(super) fn of_indexed(count: &CountKey) -> Bytes {
    count_key(INDEXED, count)
}

fn count_key(kind: u8, count: &CountKey) -> Bytes {
    let names = format!("{}/{}/{}", count.queue, count.task_type, count.status);
    let mut key = BytesMut::with_capacity(9 + names.len());
    key.put_u8(kind);
    key.put_u64(count.hour);
    key.put_slice(names.as_bytes());
    key.freeze()
}

/// The count in a key that [`of_count`] or [`of_indexed`] made.
pub(super) fn count_of(key: &[u8]) -> Option<CountKey> {
    let hour = u64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
    let mut names = std::str::from_utf8(key.get(9..)?).ok()?.split('/');
    let count = CountKey {
        hour,
        queue: names.next()?.parse().ok()?,
        task_type: names.next()?.parse().ok()?,
        status: names.next()?.parse().ok()?,
    };
    names.next().is_none().then_some(count)
}

fn prefixed(kind: u8, rest: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + rest.len());
    key.put_u8(kind);
    key.put_slice(rest);
    key.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_can_be_read_back() {
        let id: TaskId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        assert_eq!(task_of(&of_task(ENDED, id)), Some(id));
        assert_eq!(sequence_of(&of_sequence(LIVE, 1 << 40)), Some(1 << 40));
        let at = Timestamp::from_millis(1_763_238_840_123);
        assert_eq!(payloads_of(&of_payloads(at, id)), Some((at, id)));
        let count = CountKey {
            hour: 7,
            queue: "a".parse().unwrap(),
            task_type: "b.c".parse().unwrap(),
            status: Status::Failed,
        };
        assert_eq!(count_of(&of_indexed(&count)), Some(count.clone()));
        assert_eq!(count_of(&of_count(&count)), Some(count));
        let indexed = of_time(Status::Failed, at, id);
        assert_eq!(time_of(&indexed), Some((Status::Failed, at, id)));
        for bad in [&b""[..], b"l", b"lx", b"c123456", &[0xff; 40]] {
            assert_eq!(task_of(bad), None);
            assert_eq!(sequence_of(bad), None);
            assert_eq!(count_of(bad), None);
            assert_eq!(payloads_of(bad), None);
            assert_eq!(time_of(bad), None);
        }
    }

    #[test]
    fn keys_sort_like_ids_and_sequence_numbers() {
        let one: TaskId = "05000000-0000-4000-8000-000000000000".parse().unwrap();
        let two: TaskId = "f5000000-0000-4000-8000-000000000000".parse().unwrap();
        assert!(one < two);
        assert!(of_task(ENDED, one) < of_task(ENDED, two));
        assert!(of_sequence(LIVE, 255) < of_sequence(LIVE, 256));
        let time = |millis, id| of_time(Status::Completed, Timestamp::from_millis(millis), id);
        assert!(
            time(2_000, one) < time(1_999, two),
            "the newest comes first"
        );
        assert!(time(2_000, two) < time(2_000, one));
        assert!(time(1 << 40, one) < time(0, one));
    }
}
