//! Tasks that are computed from their numbers.

use bytes::Bytes;
use qo_core::keys::{IndexEntry, Key};
use qo_core::task::encode;
use qo_core::transition::submit;
use qo_core::{Action, Command, Json, LeaseId, OpId, Payload, Task, TaskId, Timestamp};
use qo_engine::api::SubmitRequest;

/// The type of the pending tasks.
pub(crate) const TYPE: &str = "type-00";

/// Pending and finished tasks that exist before a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VirtualTasks {
    /// One became due in each millisecond before the start.
    pub(crate) pending: u64,
    /// They finished a day before the start.
    pub(crate) finished: u64,
    /// The start of the run.
    pub(crate) start: Timestamp,
}

/// Where the number of a pending task is in its id.
const PENDING: u128 = 0x8000_0000_0000 << 48;

fn pending_id(number: u64) -> TaskId {
    // The first digits are spread over all shards.
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    TaskId::from_bytes(((u128::from(spread) << 96) | PENDING | u128::from(number)).to_be_bytes())
}

/// Ids of finished tasks are in order within their shard, and sort before those of new tasks.
fn finished_id(shard: u64, number: u64) -> TaskId {
    TaskId::from_bytes(((u128::from(shard) << 124) | u128::from(number)).to_be_bytes())
}

fn request() -> SubmitRequest {
    SubmitRequest::new(TYPE.parse().unwrap(), Json::null())
}

impl VirtualTasks {
    fn due(&self, number: u64) -> Timestamp {
        self.start.minus_millis(self.pending - number)
    }

    fn pending_task(&self, id: TaskId) -> Option<Task> {
        let number = u64::try_from(id.as_uuid().as_u128() & 0xffff_ffff_ffff).ok()?;
        if number >= self.pending || id != pending_id(number) {
            return None;
        }
        let due = self.due(number);
        let submission = request().into_submission(id, Payload::Inline(Json::null()), due);
        submit(submission, OpId::from_random(u128::from(number)), due).ok()
    }

    fn finished_task(&self, id: TaskId) -> Option<Task> {
        let bits = id.as_uuid().as_u128();
        let number = u64::try_from(bits & (u128::MAX >> 4)).ok()?;
        if number >= self.finished / 16 {
            return None;
        }
        let at = self.finished_at();
        let submission = request().into_submission(id, Payload::Inline(Json::null()), at);
        let mut task = submit(submission, OpId::from_random(1), at).ok()?;
        let lease = LeaseId::from_random(bits);
        for action in [
            Action::Claim {
                worker: "old".parse().unwrap(),
                lease,
                lease_ms: 30_000,
            },
            Action::Complete {
                lease,
                output: None,
            },
        ] {
            let op = OpId::from_random(bits);
            task.apply(Command { op, action }, at).ok()?;
        }
        Some(task)
    }

    fn finished_at(&self) -> Timestamp {
        self.start.minus_millis(24 * 3_600_000)
    }

    /// The body of a virtual object, and when it was written.
    pub(crate) fn read(&self, key: &str) -> Option<(Bytes, Timestamp)> {
        match key.parse().ok()? {
            Key::Task(id) => {
                let task = self.finished_task(id).or_else(|| self.pending_task(id))?;
                let at = task.updated_at;
                Some((encode(&task).unwrap().into(), at))
            }
            Key::Ready(entry) => {
                let task = self.pending_task(entry.id)?;
                (IndexEntry::of(&task) == entry).then(|| (Bytes::new(), task.available_at))
            }
            _ => None,
        }
    }

    /// The virtual keys under a prefix after a key, in order, with the times when they were written.
    ///
    /// The records of pending tasks are read but not listed: their number does not matter beside the finished ones.
    pub(crate) fn keys_after<'a>(
        &'a self,
        prefix: &'a str,
        after: &'a str,
    ) -> Box<dyn Iterator<Item = (String, Timestamp)> + 'a> {
        if prefix.starts_with("ready/") || prefix == "ready/" {
            let key = |number| {
                let task = self.pending_task(pending_id(number));
                let entry = task.map(|task| IndexEntry::of(&task));
                (
                    entry.map_or_else(String::new, |entry| Key::Ready(entry).to_string()),
                    self.due(number),
                )
            };
            let first = first_where(self.pending, |number| key(number).0.as_str() > after);
            let keys = (first..self.pending).map(key);
            return Box::new(keys.take_while(move |(key, _)| key.starts_with(prefix)));
        }
        if !prefix.starts_with("tasks/") {
            return Box::new(std::iter::empty());
        }
        let in_shard = self.finished / 16;
        let key = move |place: u64| {
            Key::Task(finished_id(place / in_shard, place % in_shard)).to_string()
        };
        let first = first_where(in_shard * 16, |place| {
            let key = key(place);
            key.as_str() > after && key.as_str() > prefix
        });
        let keys = (first..in_shard * 16).map(move |place| (key(place), self.finished_at()));
        Box::new(keys.take_while(move |(key, _)| key.starts_with(prefix)))
    }
}

/// The first number below `count` for which an ascending condition holds.
fn first_where(count: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
