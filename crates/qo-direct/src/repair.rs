//! Classifies index entries and restores missing ones.
//!
//! The lease reaper and the sweeper use both. The order is always the same: first write the entry that the task should have, then
//! delete the stale one. A crash between the two leaves one entry too many, never one too few.

use qo_core::keys::{IndexEntry, Key};
use qo_core::{Status, Task, TaskId, Timestamp};
use qo_engine::EngineError;

use super::{DirectEngine, index};

/// A change that wrote its lease entry longer ago than this has ended: the client gives up on a write after 40 s.
const IN_FLIGHT_MS: u64 = 120_000;

/// A lease entry as returned by a LIST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseEntry {
    pub(super) minute: u64,
    pub(super) id: TaskId,
    pub(super) attempt: u32,
    pub(super) written_at: Timestamp,
}

/// The state of a lease entry, compared with its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseEntryState {
    /// The attempt's lease has expired.
    Expired,
    /// The attempt's lease is valid until this time.
    Valid(Timestamp),
    /// The task has changed since, and this key will never be valid again.
    Stale,
    /// It may belong to a claim or a renewal that has written its entry and is about to swap the task.
    InFlight,
}

impl LeaseEntry {
    pub(super) fn new(key: &str, written_at: Timestamp) -> Option<Self> {
        match key.parse() {
            Ok(Key::Lease {
                minute,
                id,
                attempt,
            }) => Some(Self {
                minute,
                id,
                attempt,
                written_at,
            }),
            _ => None,
        }
    }

    /// Compares the entry with its task. `now` is the store's time less the margin for clock error.
    ///
    /// A lease entry is written before the swap that makes it valid, so an entry that is ahead of its task is not stale yet. An
    /// entry of a later attempt is kept until the claim that wrote it can no longer be in flight, and no new claim can need the
    /// same key, because leases end after now. An entry of the current attempt with a later minute is kept: when its minute has
    /// come, the older lease has expired, and the entry is deleted with that lease.
    pub(super) fn compare(&self, task: &Task, now: Timestamp) -> LeaseEntryState {
        if self.attempt > task.attempt {
            let has_ended = self.written_at.plus_millis(IN_FLIGHT_MS) < now;
            return if has_ended && self.minute < now.minute() {
                LeaseEntryState::Stale
            } else {
                LeaseEntryState::InFlight
            };
        }
        match task.lease_expires_at {
            Some(expires_at) if task.status == Status::Running && self.attempt == task.attempt => {
                if task.is_lease_expired(now) {
                    LeaseEntryState::Expired
                } else if self.minute < expires_at.minute() {
                    LeaseEntryState::Stale
                } else if self.minute == expires_at.minute() {
                    LeaseEntryState::Valid(expires_at)
                } else {
                    LeaseEntryState::InFlight
                }
            }
            _ => LeaseEntryState::Stale,
        }
    }
}

/// Whether an entry of the ready or the later index matches its task. Such an entry is written after the swap that makes it valid,
/// so one that does not match never will.
pub(super) fn is_valid(entry: &IndexEntry, task: &Task) -> bool {
    task.status == Status::Pending && IndexEntry::of(task) == *entry
}

/// The key of the index entry that a task should have, if any.
pub(super) fn expected_key(task: &Task, now: Timestamp) -> Option<Key> {
    index::lease_key(task).or_else(|| index::pending_key(task, now))
}

impl DirectEngine {
    /// Writes the index entry that a task should have. Writing an existing one is harmless. Repairs the line of its ordering key, if it has
    /// one, and submits missing deliveries if it has ended.
    pub(super) async fn restore_entry(&self, task: &Task) -> Result<(), EngineError> {
        self.restore_deliveries(task).await?;
        if task.ordering_key.is_some() && task.status != Status::Running {
            return if task.is_settled() {
                self.check_left(task).await.map(drop)
            } else {
                self.restore_place(task).await
            };
        }
        let Some(key) = expected_key(task, self.client().now()) else {
            return Ok(());
        };
        self.put_entry(&key).await?;
        self.announce_entry(&key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use qo_core::transition::submit;
    use qo_core::{Action, Command, Jitter, Json, LeaseId, OpId};
    use qo_engine::api::SubmitRequest;

    use super::*;

    const START: Timestamp = Timestamp::MIN;

    fn op(number: u128) -> OpId {
        OpId::from_random(number)
    }

    fn lease() -> LeaseId {
        LeaseId::from_random(7)
    }

    fn pending() -> Task {
        let request = SubmitRequest::new("noop".parse().unwrap(), Json::null());
        let input = qo_core::Payload::Inline(Json::null());
        submit(
            request.into_submission(TaskId::from_random(1), input, START),
            op(1),
            START,
        )
        .unwrap()
    }

    /// A task claimed at 0 s, with a lease until 90 s, which is in minute 1.
    fn running() -> Task {
        let mut task = pending();
        let action = Action::Claim {
            worker: "w".parse().unwrap(),
            lease: lease(),
            lease_ms: 90_000,
        };
        task.apply(Command { op: op(2), action }, START).unwrap();
        task
    }

    fn entry(minute: u64, attempt: u32) -> LeaseEntry {
        LeaseEntry {
            minute,
            id: TaskId::from_random(1),
            attempt,
            written_at: START,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn the_entry_of_a_running_attempt_is_valid_until_its_lease_expires() {
        let task = running();
        assert_eq!(
            entry(1, 1).compare(&task, at(90)),
            LeaseEntryState::Valid(at(90))
        );
        assert_eq!(entry(1, 1).compare(&task, at(91)), LeaseEntryState::Expired);
    }

    #[test]
    fn the_old_entry_of_a_renewal_is_stale_and_the_new_one_is_not() {
        let task = running();
        assert_eq!(entry(0, 1).compare(&task, at(61)), LeaseEntryState::Stale);
        assert_eq!(
            entry(2, 1).compare(&task, at(61)),
            LeaseEntryState::InFlight
        );
        assert_eq!(
            entry(2, 1).compare(&task, at(120)),
            LeaseEntryState::Expired
        );
    }

    #[test]
    fn entries_of_ended_attempts_are_stale() {
        let mut task = running();
        task.apply(
            Command {
                op: op(3),
                action: Action::ExpireLease {
                    jitter: Jitter::new(0),
                },
            },
            at(91),
        )
        .unwrap();
        assert_eq!(task.status, Status::Pending);
        assert_eq!(entry(1, 1).compare(&task, at(92)), LeaseEntryState::Stale);
    }

    #[test]
    fn the_entry_of_a_future_attempt_is_kept_while_a_claim_may_need_it() {
        for task in [pending(), running()] {
            let ahead = entry(1, task.attempt + 1);
            assert_eq!(ahead.compare(&task, at(61)), LeaseEntryState::InFlight);
            assert_eq!(ahead.compare(&task, at(119)), LeaseEntryState::InFlight);
            assert_eq!(ahead.compare(&task, at(121)), LeaseEntryState::Stale);
            let fresh = LeaseEntry {
                written_at: at(100),
                ..ahead
            };
            assert_eq!(fresh.compare(&task, at(121)), LeaseEntryState::InFlight);
        }
    }

    #[test]
    fn the_expected_entry_follows_from_the_task() {
        let task = pending();
        assert!(is_valid(&IndexEntry::of(&task), &task));
        assert!(!is_valid(&IndexEntry::of(&task), &running()));
        assert!(matches!(expected_key(&task, START), Some(Key::Ready(_))));
        assert_eq!(
            expected_key(&running(), START),
            Some(Key::Lease {
                minute: 1,
                id: task.id,
                attempt: 1
            })
        );
    }
}
