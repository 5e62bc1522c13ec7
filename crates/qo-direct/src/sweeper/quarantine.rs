//! Moves a record that cannot be parsed out of the way, for a person to inspect.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | store the task's id in the record of the sweeper, at the end of the step that found it | the id; the next step continues |
//! | 2 | copy its bytes to `quarantine/{key}` | a copy; the next step repeats this one |
//! | 3 | write the reason next to it | the same |
//! | 4 | read the record again, and delete it if its bytes are the same | a line whose head does not exist, if it was the head of one; the id is still stored |
//! | 5 | store that all lines must be walked, instead of the id | the same; whoever continues the pass walks them |
//! | 6 | walk the lines ([`super::lines`]): the next task of its ordering key runs | nothing |
//!
//! A read that ended early once moves nothing: steps 2 and 4 read the record again, in a later step of the sweeper than the one that found it.
//!
//! Stores have no conditional delete. A repair of the record between the read and the delete of step 4 is lost; the two requests
//! follow each other directly. The copy of the broken bytes is kept. The index entries of the task are found stale later.

use bytes::Bytes;
use futures_util::StreamExt;
use qo_core::keys::{Key, QUARANTINE_PREFIX};
use qo_core::{TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use serde::Serialize;

use super::super::DirectEngine;
use super::super::change::decode_task;
use super::SweepReport;
use super::cursor::SweepRecord;
use super::tasks::is_of_later_version;

/// The reason why an object is quarantined, stored next to its copy.
#[derive(Serialize)]
struct QuarantineNote<'a> {
    key: &'a str,
    reason: &'a str,
    at: Timestamp,
    size: usize,
    version: &'static str,
}

/// The key of an object's copy.
pub(super) fn copy_key(key: &str) -> String {
    format!("{QUARANTINE_PREFIX}/{key}")
}

impl DirectEngine {
    /// Quarantines the damaged records that earlier steps have found.
    pub(super) async fn quarantine_damaged(
        &self,
        record: &mut SweepRecord,
        report: &mut SweepReport,
    ) {
        let mut results = futures_util::stream::iter(record.take_damaged())
            .map(|id| async move { (id, self.quarantine_task(id).await) })
            .buffer_unordered(self.config().concurrency);
        while let Some((id, result)) = results.next().await {
            match result {
                Ok(is_quarantined) => report.quarantined += usize::from(is_quarantined),
                Err(error) => {
                    tracing::debug!(task = %id, %error, "could not quarantine a damaged record; trying again later");
                    report.failed += 1;
                    record.remember_damaged(id);
                }
            }
        }
    }

    /// Quarantines the record of a task if it is still damaged. Returns whether it was.
    async fn quarantine_task(&self, id: TaskId) -> Result<bool, EngineError> {
        let key = Key::Task(id).to_string();
        let body = match self.client().get(&key).await {
            Ok(object) => object.body,
            Err(StoreError::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        match decode_task(id, &body) {
            Err(error) if !is_of_later_version(&body) => {
                self.quarantine(&key, &body, &error.to_string()).await
            }
            _ => Ok(false),
        }
    }

    /// Moves an object to `quarantine/`. Returns false, and deletes nothing, if it has changed in the meantime.
    async fn quarantine(&self, key: &str, body: &Bytes, reason: &str) -> Result<bool, EngineError> {
        tracing::error!(
            key,
            reason,
            "a record cannot be parsed and is moved to quarantine/"
        );
        let copy = copy_key(key);
        self.client().put(&copy, body.clone()).await?;
        let note = QuarantineNote {
            key,
            reason,
            at: self.client().now(),
            size: body.len(),
            version: env!("CARGO_PKG_VERSION"),
        };
        let note = serde_json::to_vec(&note).map_err(|error| StoreError::Corrupt {
            key: key.to_owned(),
            detail: error.to_string(),
        })?;
        self.client()
            .put(&format!("{copy}.reason.json"), Bytes::from(note))
            .await?;
        match self.client().get(key).await {
            Ok(object) if object.body == *body => {}
            Ok(_) | Err(StoreError::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.delete_now(vec![key.to_owned()]).await?;
        Ok(true)
    }

    /// Deletes objects and waits for the result.
    pub(super) async fn delete_now(&self, keys: Vec<String>) -> Result<(), EngineError> {
        match self.client().delete_many(&keys).await {
            Ok(()) => Ok(()),
            Err(mut failures) => match failures.failed.pop() {
                Some((_, error)) => Err(error.into()),
                None => Ok(()),
            },
        }
    }
}
