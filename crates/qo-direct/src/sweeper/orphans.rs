//! Walks the large payloads and deletes those that no task refers to.
//!
//! A payload is written before the record that refers to it, so the record of a new payload may still be on its way: payloads are
//! kept for a day. The key of an input contains its digest, and a task's input never changes, so an input that its task does not
//! refer to will never be needed. The key of an output contains its attempt, and only the output of the current attempt can still
//! be referred to.
//!
//! If the task does not exist, a submit with the same id and input may be in progress, a day after an earlier submit of the same
//! died half-way. That submit writes the payload again, so the payload is listed again right before it is deleted, and kept if it
//! is new. The gap between this LIST and the delete cannot be closed, because stores have no conditional delete. It is one round
//! trip, once, a day after a crash, for a submit that repeats an id.

use futures_util::StreamExt;
use qo_core::keys::{DATA_PREFIX, Key};
use qo_core::{Payload, Status, Task, TaskId};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::{Entry, PAGE_LIMIT_MAX};

use super::super::DirectEngine;
use super::SweepReport;
use super::cursor::SweepRecord;
use super::quarantine::copy_key;

/// How long a payload without a record is kept.
const ORPHAN_GRACE_MS: u64 = 24 * 3_600_000;

impl DirectEngine {
    /// Sweeps one page of payloads.
    pub(super) async fn sweep_payloads(
        &self,
        entries: &[Entry],
        record: &SweepRecord,
        report: &mut SweepReport,
    ) {
        let mut due = Vec::new();
        for entry in entries {
            let Ok(key @ (Key::Input { id, .. } | Key::Output { id, .. })) = entry.key.parse()
            else {
                report.left += 1;
                continue;
            };
            if self.is_past_grace(entry) && record.is_compared(id) {
                due.push((id, key));
            }
        }
        report.read += due.len();
        let mut results = futures_util::stream::iter(due)
            .map(|(id, key)| self.delete_orphan(id, key))
            .buffer_unordered(self.config().concurrency);
        while let Some(result) = results.next().await {
            match result {
                Ok(is_orphan) => report.orphans += usize::from(is_orphan),
                Err(error) => {
                    tracing::debug!(%error, "could not check a payload; trying again later");
                    report.failed += 1;
                }
            }
        }
    }

    /// Deletes a payload if no task refers to it.
    async fn delete_orphan(&self, id: TaskId, key: Key) -> Result<bool, EngineError> {
        match self.read(id).await {
            Ok(stored) if is_referred_to(&key, &stored.task) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.is_not_found() => {
                if self.is_quarantined(id).await? || !self.is_still_past_grace(&key).await? {
                    return Ok(false);
                }
            }
            // It is needed when the record is repaired.
            Err(EngineError::Unreadable { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        tracing::info!(%key, "deleting a payload that no task refers to");
        self.delete_now(vec![key.to_string()]).await?;
        Ok(true)
    }

    fn is_past_grace(&self, entry: &Entry) -> bool {
        entry.last_modified.plus_millis(ORPHAN_GRACE_MS) < self.client().now()
    }

    /// Reads again when a payload was written.
    async fn is_still_past_grace(&self, key: &Key) -> Result<bool, EngineError> {
        let text = key.to_string();
        let folder = text
            .rsplit_once('/')
            .map_or(DATA_PREFIX, |(folder, _)| folder);
        let page = self.client().page(folder, None, PAGE_LIMIT_MAX).await?;
        let listed = page.entries.iter().find(|entry| entry.key == text);
        Ok(listed.is_some_and(|entry| self.is_past_grace(entry)))
    }

    /// Whether the record of a task is quarantined, so that it may be restored.
    async fn is_quarantined(&self, id: TaskId) -> Result<bool, EngineError> {
        let key = copy_key(&Key::Task(id).to_string());
        match self.client().get(&key).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a task refers to a payload, or may do so later.
fn is_referred_to(key: &Key, task: &Task) -> bool {
    match key {
        Key::Input { sha256, .. } => {
            matches!(task.input(), Payload::Stored(input) if input.sha256 == *sha256)
        }
        Key::Output { attempt, .. } if *attempt == task.attempt => {
            // A running attempt writes its output before it ends.
            task.status == Status::Running || matches!(task.output(), Some(Payload::Stored(_)))
        }
        Key::Output { attempt, .. } => *attempt > task.attempt,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use qo_core::transition::submit;
    use qo_core::{Action, Command, Json, LeaseId, OpId, PayloadRef, Sha256, Timestamp};
    use qo_engine::api::SubmitRequest;

    use super::*;

    fn stored(byte: u8) -> Payload {
        Payload::Stored(PayloadRef::new(100_000, Sha256::from_bytes([byte; 32])))
    }

    fn apply(task: &mut Task, action: Action) {
        let op = OpId::from_random(1);
        task.apply(Command { op, action }, Timestamp::MIN).unwrap();
    }

    #[test]
    fn referenced_payloads_are_kept() {
        let request = SubmitRequest::new("noop".parse().unwrap(), Json::null());
        let id = TaskId::from_random(1);
        let mut task = submit(
            request.into_submission(id, stored(1), Timestamp::MIN),
            OpId::from_random(1),
            Timestamp::MIN,
        )
        .unwrap();
        let input = |byte| Key::Input {
            id,
            sha256: Sha256::from_bytes([byte; 32]),
        };
        let output = |attempt| Key::Output { id, attempt };
        assert!(is_referred_to(&input(1), &task));
        assert!(!is_referred_to(&input(2), &task));

        let lease = LeaseId::from_random(1);
        apply(
            &mut task,
            Action::Claim {
                worker: "w".parse().unwrap(),
                lease,
                lease_ms: 1_000,
            },
        );
        assert!(
            is_referred_to(&output(1), &task),
            "the attempt may be about to complete"
        );
        assert!(!is_referred_to(&output(0), &task));
        apply(
            &mut task,
            Action::Complete {
                lease,
                output: Some(stored(3)),
            },
        );
        assert!(is_referred_to(&output(1), &task));
        apply(&mut task, Action::Archive);
        assert!(is_referred_to(&output(1), &task));
        apply(&mut task, Action::Unarchive);
        apply(&mut task, Action::Replay);
        assert!(
            !is_referred_to(&output(1), &task),
            "a replay drops the old output"
        );
    }
}
