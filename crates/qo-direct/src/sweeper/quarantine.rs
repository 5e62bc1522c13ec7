//! Moves a record that cannot be read out of the way, so that it is looked at by a person and by nobody else.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | its bytes are copied to `quarantine/{key}` | a copy; the next pass repeats it |
//! | 2 | the reason is written beside it | the same |
//! | 3 | the record is read again, and deleted if it has the same bytes | nothing |
//!
//! Stores have no conditional delete. Somebody who repairs the record between the read and the delete of step 3, which follow
//! each other at once, loses the repair; the copy of the broken bytes is kept. Its index entries are found stale later.

use bytes::Bytes;
use qo_core::Timestamp;
use qo_core::keys::QUARANTINE_PREFIX;
use qo_engine::EngineError;
use qo_store::StoreError;
use serde::Serialize;

use super::super::DirectEngine;

/// Why something is under quarantine.
#[derive(Serialize)]
struct Note<'a> {
    key: &'a str,
    reason: &'a str,
    at: Timestamp,
    size: usize,
    version: &'static str,
}

/// Where the copy of an object goes.
pub(super) fn copy_key(key: &str) -> String {
    format!("{QUARANTINE_PREFIX}/{key}")
}

impl DirectEngine {
    /// Moves an object away. Says no if it has changed meanwhile, and then nothing was deleted.
    pub(super) async fn quarantine(
        &self,
        key: &str,
        body: &Bytes,
        reason: &str,
    ) -> Result<bool, EngineError> {
        tracing::error!(
            key,
            reason,
            "a record cannot be read and is moved to quarantine/"
        );
        let copy = copy_key(key);
        self.client().put(&copy, body.clone()).await?;
        let note = Note {
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

    /// Deletes objects and waits for it.
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
