//! What an index entry that somebody came across means, and how to put back one that is missing.
//!
//! Both are needed by the monitor and by the sweeper. The order is always the same: first the entry that should be there,
//! then the deletion of the one that should not, so that a crash between the two leaves an entry too many and never one
//! too few.

use qo_core::keys::{IndexEntry, Key};
use qo_core::{Status, Task, TaskId, Timestamp};
use qo_engine::EngineError;

use super::{DirectEngine, index};

/// A change that wrote its lease entry longer ago than this is over: the client gives up on a write after 40 s.
const IN_FLIGHT_MS: u64 = 120_000;

/// A lease entry as a listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseEntry {
    pub(super) minute: u64,
    pub(super) id: TaskId,
    pub(super) attempt: u32,
    pub(super) written_at: Timestamp,
}

/// What a lease entry means, in the light of its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseVerdict {
    /// The attempt's lease has run out.
    Expired,
    /// The attempt has time until then.
    Holds(Timestamp),
    /// The task has moved on, and this key will never be true again.
    Stale,
    /// It may belong to a claim or a renewal that has written its entry and is about to swap its task.
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

    /// Judges the entry. `now` is the store's time less the margin for clocks that are read wrongly.
    ///
    /// A lease entry is written before the swap that makes it true, so that one that is ahead of its task is not stale yet:
    /// one of a later attempt is left until neither the claim that wrote it can be in flight nor a new claim can need the
    /// same key, because leases end after now. One of the current attempt and a later minute is left for good: when its
    /// minute has come, the older lease is over, and it goes with that.
    pub(super) fn judge(&self, task: &Task, now: Timestamp) -> LeaseVerdict {
        if self.attempt > task.attempt {
            let is_over = self.written_at.plus_millis(IN_FLIGHT_MS) < now;
            return if is_over && self.minute < now.minute() {
                LeaseVerdict::Stale
            } else {
                LeaseVerdict::InFlight
            };
        }
        match task.lease_expires_at {
            Some(expires_at) if task.status == Status::Running && self.attempt == task.attempt => {
                if task.is_lease_expired(now) {
                    LeaseVerdict::Expired
                } else if self.minute < expires_at.minute() {
                    LeaseVerdict::Stale
                } else if self.minute == expires_at.minute() {
                    LeaseVerdict::Holds(expires_at)
                } else {
                    LeaseVerdict::InFlight
                }
            }
            _ => LeaseVerdict::Stale,
        }
    }
}

/// Whether an entry of the ready or the later index is what its task should have. Such an entry is written after the swap
/// that makes it true, so that one that is not true will never be.
pub(super) fn is_true(entry: &IndexEntry, task: &Task) -> bool {
    task.status == Status::Pending && IndexEntry::of(task) == *entry
}

/// The entry that a task should have, if any.
pub(super) fn right_key(task: &Task, now: Timestamp) -> Option<Key> {
    index::lease_key(task).or_else(|| index::pending_key(task, now))
}

impl DirectEngine {
    /// Writes the index entry that a task should have. Writing one that is there does no harm.
    pub(super) async fn restore_entry(&self, task: &Task) -> Result<(), EngineError> {
        let Some(key) = right_key(task, self.client().now()) else {
            return Ok(());
        };
        self.put_entry(&key).await?;
        match key {
            Key::Later(entry) => {
                self.shared.scheduled.expect(entry.available_at);
                self.shared.signal.touch().await;
            }
            Key::Ready(_) => self.shared.signal.touch().await,
            _ => {}
        }
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

    /// Claimed at 0 s with a lease until 90 s, which is in minute 1.
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
    fn the_entry_of_a_running_attempt_holds_until_its_lease_has_run_out() {
        let task = running();
        assert_eq!(
            entry(1, 1).judge(&task, at(90)),
            LeaseVerdict::Holds(at(90))
        );
        assert_eq!(entry(1, 1).judge(&task, at(91)), LeaseVerdict::Expired);
    }

    #[test]
    fn what_a_renewal_left_behind_is_stale_and_what_it_writes_ahead_is_not() {
        let task = running();
        assert_eq!(entry(0, 1).judge(&task, at(61)), LeaseVerdict::Stale);
        assert_eq!(entry(2, 1).judge(&task, at(61)), LeaseVerdict::InFlight);
        assert_eq!(entry(2, 1).judge(&task, at(120)), LeaseVerdict::Expired);
    }

    #[test]
    fn entries_of_attempts_that_are_over_are_stale() {
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
        assert_eq!(entry(1, 1).judge(&task, at(92)), LeaseVerdict::Stale);
    }

    #[test]
    fn the_entry_of_a_coming_attempt_is_left_until_nobody_can_need_it() {
        for task in [pending(), running()] {
            let ahead = entry(1, task.attempt + 1);
            assert_eq!(ahead.judge(&task, at(61)), LeaseVerdict::InFlight);
            assert_eq!(ahead.judge(&task, at(119)), LeaseVerdict::InFlight);
            assert_eq!(ahead.judge(&task, at(121)), LeaseVerdict::Stale);
            let fresh = LeaseEntry {
                written_at: at(100),
                ..ahead
            };
            assert_eq!(fresh.judge(&task, at(121)), LeaseVerdict::InFlight);
        }
    }

    #[test]
    fn the_right_entry_is_the_one_that_the_task_says() {
        let task = pending();
        assert!(is_true(&IndexEntry::of(&task), &task));
        assert!(!is_true(&IndexEntry::of(&task), &running()));
        assert!(matches!(right_key(&task, START), Some(Key::Ready(_))));
        assert_eq!(
            right_key(&running(), START),
            Some(Key::Lease {
                minute: 1,
                id: task.id,
                attempt: 1
            })
        );
    }
}
