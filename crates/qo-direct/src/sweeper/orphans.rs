//! Walks the large payloads: deletes those that no task refers to.
//!
//! A payload is written before the record that refers to it, so that one without a record may be on its way: it is left for a
//! day. An input is named by its content and a task's input never changes, so that one which the task does not refer to will
//! never be needed. An output is named by its attempt; only that of the current attempt can still be referred to.
//!
//! Where there is no task at all, somebody may submit one with this very id and input just now, a day after a submit of the
//! same died half-way. That submit writes the payload anew, so it is listed again right before it is deleted, and kept if it
//! is new. The time between that list and the deletion cannot be closed, because stores have no conditional delete: it is
//! one round trip, once, a day after a crash, for a submit that repeats an id.

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

/// How long a payload without a record is left alone.
const ORPHAN_GRACE_MS: u64 = 24 * 3_600_000;

impl DirectEngine {
    /// Looks at a page of payloads.
    pub(super) async fn sweep_payloads(
        &self,
        entries: &[Entry],
        record: &mut SweepRecord,
        report: &mut SweepReport,
    ) {
        report.listed += entries.len();
        record.entries = record.entries.saturating_add(entries.len() as u64);
        let mut due = Vec::new();
        for entry in entries {
            let Ok(key @ (Key::Input { id, .. } | Key::Output { id, .. })) = entry.key.parse()
            else {
                report.left += 1;
                continue;
            };
            if self.is_aged(entry) && record.is_compared(id) {
                due.push((id, key));
            }
        }
        report.read += due.len();
        let mut results = futures_util::stream::iter(due)
            .map(|(id, key)| self.remove_orphan(id, key))
            .buffer_unordered(self.config().concurrency);
        while let Some(result) = results.next().await {
            match result {
                Ok(is_orphan) => report.orphans += usize::from(is_orphan),
                Err(error) => {
                    tracing::debug!(%error, "a payload is compared later");
                    report.failed += 1;
                }
            }
        }
    }

    /// Deletes a payload if nobody refers to it.
    async fn remove_orphan(&self, id: TaskId, key: Key) -> Result<bool, EngineError> {
        match self.read(id).await {
            Ok(stored) if is_referred_to(&key, &stored.task) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.is_not_found() => {
                if self.is_under_quarantine(id).await? || !self.is_still_aged(&key).await? {
                    return Ok(false);
                }
            }
            // Whoever repairs the record will need it.
            Err(EngineError::Unreadable { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        tracing::info!(%key, "deleting a payload that no task refers to");
        self.delete_now(vec![key.to_string()]).await?;
        Ok(true)
    }

    fn is_aged(&self, entry: &Entry) -> bool {
        entry.last_modified.plus_millis(ORPHAN_GRACE_MS) < self.client().now()
    }

    /// Asks again how old a payload is.
    async fn is_still_aged(&self, key: &Key) -> Result<bool, EngineError> {
        let text = key.to_string();
        let folder = text
            .rsplit_once('/')
            .map_or(DATA_PREFIX, |(folder, _)| folder);
        let page = self.client().page(folder, None, PAGE_LIMIT_MAX).await?;
        let found = page.entries.iter().find(|entry| entry.key == text);
        Ok(found.is_some_and(|entry| self.is_aged(entry)))
    }

    /// Whether the record of a task was moved away, so that somebody may bring it back.
    async fn is_under_quarantine(&self, id: TaskId) -> Result<bool, EngineError> {
        let key = copy_key(&Key::Task(id).to_string());
        match self.client().get(&key).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a task needs a payload, or may come to need it.
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
    fn what_a_task_refers_to_is_kept() {
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
        assert!(is_referred_to(&output(1), &task), "it may be about to end");
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
        assert!(!is_referred_to(&output(1), &task), "a replay forgets it");
    }
}
