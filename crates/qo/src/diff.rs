//! Differences between versions of a task, by field of the stored record.
//!
//! Fields are compared as stored JSON text. This keeps the precision of long numbers, and includes fields that this version of qo
//! does not know.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{Json, Task, TaskId, Timestamp};

use crate::error::Error;
use crate::queue::Queue;

/// A changed field of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldChange {
    /// Name in the stored record.
    pub field: String,
    /// Earlier value, or `None` if the field was absent.
    pub before: Option<Json>,
    /// Later value, or `None` if the field is absent.
    pub after: Option<Json>,
}

/// A stored version of a task, and its changes from the version before.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VersionStep {
    /// The version id that the store assigned.
    pub version: String,
    /// When the version was written, by the store's clock.
    pub stored_at: Timestamp,
    /// The task, or `None` for a deletion or an unreadable object.
    pub task: Option<Task>,
    /// Changes from the version before, ordered by field name. Empty for the oldest version shown and after an unreadable version.
    pub changes: Vec<FieldChange>,
}

/// Returns the fields that differ between two versions of a task, ordered by name.
pub fn diff(before: &Task, after: &Task) -> Result<Vec<FieldChange>, Error> {
    let (mut before, mut after) = (fields(before)?, fields(after)?);
    let names: BTreeSet<String> = before.keys().chain(after.keys()).cloned().collect();
    let changes = names.into_iter().map(|field| FieldChange {
        before: before.remove(&field),
        after: after.remove(&field),
        field,
    });
    Ok(changes
        .filter(|change| change.before != change.after)
        .collect())
}

fn fields(task: &Task) -> Result<BTreeMap<String, Json>, Error> {
    Ok(Json::from_value(task)?.to_value()?)
}

impl Queue {
    /// Returns the newest `limit` stored versions of a task, oldest first, each with its changes. Requires a versioned store.
    pub async fn version_steps(&self, id: TaskId, limit: usize) -> Result<Vec<VersionStep>, Error> {
        let mut steps: Vec<VersionStep> = Vec::new();
        for version in self.versions(id, limit).await? {
            let before = steps.last().and_then(|step| step.task.as_ref());
            let changes = match (before, &version.task) {
                (Some(before), Some(after)) => diff(before, after)?,
                _ => Vec::new(),
            };
            steps.push(VersionStep {
                version: version.version,
                stored_at: version.stored_at,
                task: version.task,
                changes,
            });
        }
        Ok(steps)
    }
}
