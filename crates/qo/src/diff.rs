//! What changed between two states of a task, field by field of the stored record.
//!
//! The fields are compared as the JSON text that is stored, so that a number of thirty digits differs from its neighbour, and a
//! field that this version does not know is compared like any other.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{Json, Task, TaskId, Timestamp};

use crate::error::Error;
use crate::queue::Queue;

/// One field that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    /// Its name in the stored record.
    pub field: String,
    /// What it was; nothing, if it was not there.
    pub before: Option<Json>,
    /// What it is; nothing, if it is gone.
    pub after: Option<Json>,
}

/// One stored version of a task, and how it differs from the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionStep {
    /// The store's name for the version.
    pub version: String,
    /// When it was written, by the store's clock.
    pub stored_at: Timestamp,
    /// The task as it was; nothing, for a deletion or for bytes that cannot be read.
    pub task: Option<Task>,
    /// What differs from the version before, by the order of field names. The oldest version that is shown, and one without
    /// a readable neighbour before it, have none.
    pub changes: Vec<FieldChange>,
}

/// What differs between two states of a task, by the order of field names.
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
    /// The newest `limit` stored versions of a task, oldest first, each with what changed since the one before.
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
