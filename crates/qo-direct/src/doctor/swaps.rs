//! Finds objects that the store refuses to change.
//!
//! On Ceph RGW 20, these are objects that were written while versioning was briefly on: every `If-Match` fails, although nobody else
//! writes them. Only what nobody processes is checked: tasks that have been ready for minutes, whose lease expired minutes ago, or that are
//! scheduled for later, and the records of ordering keys and limits that have not changed for minutes. Each is replaced by its own bytes, which
//! changes nothing in it. A rescue also checks the records of idempotency keys, and what is changed by compare-and-swap below `meta/`: a few
//! objects, all documents, and the tokens.

use futures_util::StreamExt;
use qo_core::OpId;
use qo_core::keys::{
    BROKER_KEY, Key, LATER_PREFIX, LEASES_PREFIX, LINES_PREFIX, QUEUES_KEY, READY_PREFIX,
    ROSTER_KEY, SIGNAL_KEY, SWEEP_KEY,
};
use qo_store::StoreError;
use serde::Deserialize;

use super::DoctorRun;
use super::report::{DoctorCheck, Health};

/// How many objects are checked per prefix.
const CHECKED_MAX: usize = 50;
/// The same for a rescue.
const RESCUE_CHECKED_MAX: usize = 10_000;
/// How often a swap is tried. A correct store refuses it only if the object has changed.
const TRIES: u32 = 3;
/// How many objects the message names.
const NAMED_MAX: usize = 10;
/// How many objects are checked at once.
const CONCURRENCY: usize = 8;
/// Where the records of idempotency keys are.
const KEYS_PREFIX: &str = "keys";
/// Where the records of limits are.
const LIMITS_PREFIX: &str = "limits";
/// Where the documents are.
const DOCUMENTS_PREFIX: &str = "meta/settings";
/// The tokens of the HTTP API.
const TOKENS_KEY: &str = "meta/tokens.json";

impl DoctorRun<'_> {
    pub(super) async fn swaps(&self) -> DoctorCheck {
        const NAME: &str = "swaps";
        let suspects = match self.suspects().await {
            Ok(suspects) => suspects,
            Err(error) => return DoctorCheck::new(NAME, Health::Failed, error.to_string()),
        };
        let checked = suspects.len();
        let refused: Vec<String> = futures_util::stream::iter(suspects)
            .map(|key| async move {
                match self.refuses_swaps(&key).await {
                    Ok(true) => Some(key),
                    // An object that cannot be read or written at all is the business of other checks.
                    Ok(false) | Err(_) => None,
                }
            })
            .buffered(CONCURRENCY)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let check = if refused.is_empty() {
            let what = if self.options.rescue {
                "objects"
            } else {
                "idle objects"
            };
            let summary = format!("none of {checked} {what} refuses a change");
            DoctorCheck::new(NAME, Health::Ok, summary)
        } else if self.options.rescue {
            self.rescue(NAME, &refused).await
        } else {
            let summary = format!(
                "the store refuses every change of {} of {checked} idle objects, although nobody else changes them: {}",
                refused.len(),
                names(&refused)
            );
            DoctorCheck::new(NAME, Health::Failed, summary).hint(
                "stop all workers, servers and clients of this bucket for two minutes and run `qo doctor --rescue`; versioning was probably switched on while the bucket was in use",
            )
        };
        check
            .figure("checked", checked)
            .figure("refused", refused.len())
    }

    /// The objects to check: those that nobody changes now and, for a rescue, other records.
    async fn suspects(&self) -> Result<Vec<String>, StoreError> {
        let overdue_ms = u64::try_from(self.options.overdue_after.as_millis()).unwrap_or(u64::MAX);
        let now = self.client.now();
        let (overdue, soon) = (now.minus_millis(overdue_ms), now.plus_millis(overdue_ms));
        let checked_max = if self.options.rescue {
            RESCUE_CHECKED_MAX
        } else {
            CHECKED_MAX
        };
        let mut ids = Vec::new();
        for prefix in [READY_PREFIX, LATER_PREFIX, LEASES_PREFIX] {
            let listing = self.list_prefix(prefix).await?;
            let found = listing.keys().filter_map(|key| match key {
                Key::Ready(entry) if entry.available_at < overdue => Some(entry.id),
                // A task that is due about now may be claimed.
                Key::Later(entry) if entry.available_at < overdue || entry.available_at > soon => {
                    Some(entry.id)
                }
                Key::Lease { minute, id, .. } if minute < overdue.minute() => Some(id),
                _ => None,
            });
            ids.extend(found.take(checked_max));
        }
        ids.sort();
        ids.dedup();
        let tasks = ids.into_iter().map(|id| Key::Task(id).to_string());
        let mut suspects: Vec<String> = tasks.collect();
        let mut prefixes = vec![LINES_PREFIX, LIMITS_PREFIX];
        if self.options.rescue {
            prefixes.extend([KEYS_PREFIX, DOCUMENTS_PREFIX]);
            let meta = [
                BROKER_KEY, QUEUES_KEY, ROSTER_KEY, SIGNAL_KEY, SWEEP_KEY, TOKENS_KEY,
            ];
            suspects.extend(meta.map(str::to_owned));
        }
        for prefix in prefixes {
            let entries = self.list_prefix(prefix).await?.entries.into_iter();
            // Before a rescue, everything is stopped.
            let idle = entries
                .filter(|entry| self.options.rescue || entry.last_modified < overdue)
                .map(|entry| entry.key);
            suspects.extend(idle.take(checked_max));
        }
        Ok(suspects)
    }

    /// Whether the store refuses to replace an object by its own bytes while its tag stays the same.
    pub(super) async fn refuses_swaps(&self, key: &str) -> Result<bool, StoreError> {
        let mut refused: Option<qo_store::client::Tag> = None;
        for _ in 0..=TRIES {
            let object = self.client.get(key).await?;
            if refused.is_some_and(|tag| !tag.matches(&object.tag)) {
                return Ok(false);
            }
            let Some(op) = operation_of(&object.body) else {
                return Ok(false);
            };
            match self.client.swap(key, object.body, &object.tag, &op).await {
                Ok(_) => return Ok(false),
                Err(StoreError::Conflict { .. }) => refused = Some(object.tag),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// The operation that wrote a record. A body without one was not written by qo, and is skipped.
fn operation_of(body: &[u8]) -> Option<OpId> {
    #[derive(Deserialize)]
    struct Record {
        op_id: OpId,
    }
    let record = serde_json::from_slice::<Record>(body);
    record.ok().map(|record| record.op_id)
}

/// The first few keys, as a part of a sentence.
pub(super) fn names(keys: &[String]) -> String {
    let named: Vec<&str> = keys.iter().take(NAMED_MAX).map(String::as_str).collect();
    named.join(", ")
}
