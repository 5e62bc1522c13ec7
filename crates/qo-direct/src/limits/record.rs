//! The record of a limit: who holds its slots, and how many attempts have started under it.

use qo_core::extra::Extra;
use qo_core::limit::{LimitUsage, LimitWait, StartWindow};
use qo_core::{DocumentName, LeaseId, Limit, Status, Task, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use super::super::record_head::RecordHead;

/// The stored record of a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LimitRecord {
    limit: DocumentName,
    #[serde(flatten)]
    pub(super) head: RecordHead,
    /// The attempts that hold a slot, oldest first.
    #[serde(default)]
    pub(super) holders: Vec<Holder>,
    /// The recent starts.
    #[serde(default, skip_serializing_if = "StartWindow::is_empty")]
    starts: StartWindow,
    #[serde(flatten)]
    extra: Extra,
}

/// An attempt that holds a slot, or is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holder {
    pub(super) task: TaskId,
    /// The lease of the attempt.
    pub(super) lease: LeaseId,
    /// The revision of the pending task that the claim swaps.
    pub(super) revision: u64,
    /// Nobody looks at the task before this time.
    pub(super) until: Timestamp,
}

/// What the task of a holder says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HolderState {
    /// The attempt is running.
    Running,
    /// The attempt has ended, or its claim can no longer succeed.
    Gone,
    /// The task is as the claimer read it, so the claim may still succeed.
    InFlight,
}

impl Holder {
    /// Compares the holder with its task.
    pub(super) fn compare(&self, task: &Task) -> HolderState {
        if task.status == Status::Running && task.lease_id == Some(self.lease) {
            HolderState::Running
        } else if task.revision == self.revision {
            HolderState::InFlight
        } else {
            HolderState::Gone
        }
    }
}

/// A change of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotChange {
    /// Takes a slot for an attempt that starts at this time.
    Take(Holder, Timestamp),
    /// Returns the slot of an attempt that has ended.
    Return(LeaseId),
    /// Returns the slot of a claim that did not succeed, and the start that was counted for this time.
    TakeBack(LeaseId, Timestamp),
    /// Only checks whether there is room.
    Check,
}

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlotOutcome {
    /// The change is made. For a check: there is room.
    Done,
    /// There is no room.
    Full(LimitWait),
}

impl LimitRecord {
    pub(super) fn new(limit: &DocumentName) -> Self {
        Self {
            limit: limit.clone(),
            head: RecordHead::default(),
            holders: Vec::new(),
            starts: StartWindow::default(),
            extra: Extra::default(),
        }
    }

    /// Makes a change. A repeated change has no second effect.
    pub(super) fn change(
        &mut self,
        change: SlotChange,
        rule: &Limit,
        now: Timestamp,
    ) -> SlotOutcome {
        match change {
            SlotChange::Take(holder, at) => {
                if self.position(holder.lease).is_some() {
                    return SlotOutcome::Done;
                }
                if let Some(wait) = self.wait(rule, at) {
                    return SlotOutcome::Full(wait);
                }
                // Without a bound on running tasks, nobody would return the slot.
                if rule.concurrent.is_some() {
                    self.holders.push(holder);
                }
                if let Some(starts) = rule.starts {
                    self.starts.record(starts, at);
                }
            }
            SlotChange::Return(lease) => {
                self.holders.retain(|holder| holder.lease != lease);
            }
            SlotChange::TakeBack(lease, at) => {
                if let Some(position) = self.position(lease) {
                    self.holders.remove(position);
                    if let Some(starts) = rule.starts {
                        self.starts.refund(starts, at);
                    }
                }
            }
            SlotChange::Check => {
                if let Some(wait) = self.wait(rule, now) {
                    return SlotOutcome::Full(wait);
                }
            }
        }
        SlotOutcome::Done
    }

    fn position(&self, lease: LeaseId) -> Option<usize> {
        self.holders.iter().position(|holder| holder.lease == lease)
    }

    /// Why no attempt may start.
    pub(super) fn wait(&self, rule: &Limit, now: Timestamp) -> Option<LimitWait> {
        let running = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
        rule.wait(&self.limit, running, &self.starts, now)
    }

    /// What is used of the limit.
    pub(super) fn usage(&self, rule: &Limit, now: Timestamp) -> LimitUsage {
        let running = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
        rule.usage(running, &self.starts, now)
    }
}

#[cfg(test)]
mod tests {
    use qo_core::transition::submit;
    use qo_core::{Action, Command, Json, OpId, Payload, StartLimit};
    use qo_engine::api::SubmitRequest;

    use super::*;

    const NOW: Timestamp = Timestamp::MIN;

    fn holder(number: u128, revision: u64) -> Holder {
        Holder {
            task: TaskId::from_random(1),
            lease: LeaseId::from_random(number),
            revision,
            until: NOW,
        }
    }

    fn rule(concurrent: Option<u32>, starts: Option<u32>) -> Limit {
        Limit {
            queue: Some("q".parse().unwrap()),
            concurrent,
            starts: starts.map(|max| StartLimit {
                max,
                window_ms: 60_000,
            }),
            ..Limit::default()
        }
    }

    #[test]
    fn slots_are_taken_once_and_returned_once() {
        let rule = rule(Some(2), Some(3));
        let mut record = LimitRecord::new(&"l".parse().unwrap());
        for number in [1, 1, 2] {
            let taken = record.change(SlotChange::Take(holder(number, 1), NOW), &rule, NOW);
            assert_eq!(taken, SlotOutcome::Done);
        }
        assert_eq!(record.holders.len(), 2);
        let full = record.change(SlotChange::Take(holder(3, 1), NOW), &rule, NOW);
        assert!(
            matches!(full, SlotOutcome::Full(wait) if wait.to_string() == "limit l: 2 of 2 running")
        );
        for _ in 0..2 {
            record.change(SlotChange::TakeBack(holder(2, 1).lease, NOW), &rule, NOW);
            record.change(SlotChange::Return(holder(1, 1).lease), &rule, NOW);
        }
        assert!(record.holders.is_empty());
        // One start was taken back: two are left.
        for number in [4, 5] {
            let taken = record.change(SlotChange::Take(holder(number, 1), NOW), &rule, NOW);
            assert_eq!(taken, SlotOutcome::Done);
        }
        record.change(SlotChange::Return(holder(4, 1).lease), &rule, NOW);
        let full = record.change(SlotChange::Check, &rule, NOW);
        assert!(matches!(full, SlotOutcome::Full(wait) if wait.used == 3));
    }

    #[test]
    fn a_bound_on_starts_alone_needs_no_holders() {
        let rule = rule(None, Some(1));
        let mut record = LimitRecord::new(&"l".parse().unwrap());
        assert_eq!(
            record.change(SlotChange::Take(holder(1, 1), NOW), &rule, NOW),
            SlotOutcome::Done
        );
        assert!(record.holders.is_empty());
        assert!(matches!(
            record.change(SlotChange::Check, &rule, NOW),
            SlotOutcome::Full(_)
        ));
    }

    #[test]
    fn a_holder_is_gone_once_its_task_proves_it() {
        let request = SubmitRequest::new("noop".parse().unwrap(), Json::null());
        let input = Payload::Inline(Json::null());
        let submission = request.into_submission(TaskId::from_random(1), input, NOW);
        let mut task = submit(submission, OpId::from_random(1), NOW).unwrap();
        let (mine, other) = (holder(1, task.revision), holder(2, task.revision));
        assert_eq!(mine.compare(&task), HolderState::InFlight);
        let mut fenced = task.clone();
        let op = OpId::from_random(2);
        let action = Action::Fence;
        fenced.apply(Command { op, action }, NOW).unwrap();
        assert_eq!(mine.compare(&fenced), HolderState::Gone);
        let action = Action::Claim {
            worker: "w".parse().unwrap(),
            lease: mine.lease,
            lease_ms: 1_000,
        };
        task.apply(Command { op, action }, NOW).unwrap();
        assert_eq!(mine.compare(&task), HolderState::Running);
        assert_eq!(other.compare(&task), HolderState::Gone);
        let action = Action::Release { lease: mine.lease };
        task.apply(Command { op, action }, NOW).unwrap();
        assert_eq!(mine.compare(&task), HolderState::Gone);
    }
}
