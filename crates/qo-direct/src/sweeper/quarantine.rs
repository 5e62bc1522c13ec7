//! Moves a record that cannot be parsed out of the way, for a person to inspect.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | copy its bytes to `quarantine/{key}` | a copy; the next pass repeats the step |
//! | 2 | write the reason beside it | the same |
//! | 3 | read the record again, and delete it if its bytes are the same | nothing |
//!
//! Stores have no conditional delete. A repair of the record between the read and the delete of step 3 is lost; the two requests
//! follow each other directly. The copy of the broken bytes is kept. The index entries of the task are found stale later.

use bytes::Bytes;
use qo_core::Timestamp;
use qo_core::keys::QUARANTINE_PREFIX;
use qo_engine::EngineError;
use qo_store::StoreError;
use serde::Serialize;

use super::super::DirectEngine;

/// The reason why an object is quarantined, stored beside its copy.
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
    /// Moves an object to `quarantine/`. Returns false, and deletes nothing, if it has changed in the meantime.
    pub(super) async fn quarantine(
        &self,
        key: &str,
        body: &Bytes,
        reason: &str,
    ) -> Result<bool, EngineError> {
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
