//! Finds tasks that the store refuses to change.
//!
//! Objects that were written while versioning was on for a moment are such objects in Ceph RGW 20: every `If-Match` fails, although
//! nobody else writes them. Only tasks that nobody processes are checked: those that have been ready for minutes, and those whose lease
//! expired minutes ago. Each is replaced by its own bytes, which changes nothing in the task.

use futures_util::StreamExt;
use qo_core::TaskId;
use qo_core::keys::{Key, LEASES_PREFIX, READY_PREFIX};
use qo_core::task::decode;
use qo_store::StoreError;

use super::DoctorRun;
use super::report::{DoctorCheck, Health};

/// How many tasks are checked.
const CHECKED_MAX: usize = 50;
/// How often a swap is tried. A correct store refuses it only if the task has changed.
const TRIES: u32 = 3;
/// How many tasks the message names.
const NAMED_MAX: usize = 10;
/// How many tasks are checked at once.
const CONCURRENCY: usize = 8;

impl DoctorRun<'_> {
    pub(super) async fn swaps(&self) -> DoctorCheck {
        const NAME: &str = "swaps";
        let suspects = match self.suspects().await {
            Ok(suspects) => suspects,
            Err(error) => return DoctorCheck::new(NAME, Health::Failed, error.to_string()),
        };
        let checked = suspects.len();
        let refused: Vec<String> = futures_util::stream::iter(suspects)
            .map(|id| async move {
                let key = Key::Task(id).to_string();
                match self.refuses_swaps(&key).await {
                    Ok(true) => Some(key),
                    // A task that cannot be read or written at all is the business of other checks.
                    Ok(false) | Err(_) => None,
                }
            })
            .buffered(CONCURRENCY)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let check = if refused.is_empty() {
            let summary = format!("none of {checked} waiting tasks refuses a change");
            DoctorCheck::new(NAME, Health::Ok, summary)
        } else {
            let named: Vec<&str> = refused.iter().take(NAMED_MAX).map(String::as_str).collect();
            let summary = format!(
                "the store refuses every change of {} of {checked} waiting tasks, although nobody else changes them: {}",
                refused.len(),
                named.join(", ")
            );
            DoctorCheck::new(NAME, Health::Failed, summary).hint(
                "stop all workers, write each of these objects again without a condition (`aws s3 cp` to a file and back), and run `qo doctor` again; versioning was probably switched on while the bucket was in use",
            )
        };
        check
            .figure("checked", checked)
            .figure("refused", refused.len())
    }

    /// The tasks that should have been processed by now.
    async fn suspects(&self) -> Result<Vec<TaskId>, StoreError> {
        let overdue_ms = u64::try_from(self.options.overdue_after.as_millis()).unwrap_or(u64::MAX);
        let overdue = self.client.now().minus_millis(overdue_ms);
        let mut suspects = Vec::new();
        for prefix in [READY_PREFIX, LEASES_PREFIX] {
            let listing = self.list_prefix(prefix).await?;
            let ids = listing.keys().filter_map(|key| match key {
                Key::Ready(entry) if entry.available_at < overdue => Some(entry.id),
                Key::Lease { minute, id, .. } if minute < overdue.minute() => Some(id),
                _ => None,
            });
            suspects.extend(ids.take(CHECKED_MAX));
        }
        suspects.sort();
        suspects.dedup();
        Ok(suspects)
    }

    /// Whether the store refuses to replace an object by its own bytes while its tag stays the same.
    async fn refuses_swaps(&self, key: &str) -> Result<bool, StoreError> {
        let mut refused: Option<qo_store::client::Tag> = None;
        for _ in 0..=TRIES {
            let object = self.client.get(key).await?;
            if refused.is_some_and(|tag| !tag.matches(&object.tag)) {
                return Ok(false);
            }
            let Some(op) = decode(&object.body).ok().and_then(|task| task.op_id) else {
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
