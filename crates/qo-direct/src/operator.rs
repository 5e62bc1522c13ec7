//! What people do to tasks.

use qo_core::{Action, Task, TaskId};
use qo_engine::EngineError;

use super::DirectEngine;

impl DirectEngine {
    /// Changes a task that nobody has to hold.
    pub(super) async fn operate(&self, id: TaskId, action: Action) -> Result<Task, EngineError> {
        Ok(self.change(id, None, action).await?.task)
    }
}
