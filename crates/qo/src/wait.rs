//! Waits for a task to finish.

use std::time::Duration;

use qo_core::{Task, TaskId};

use crate::error::Error;
use crate::queue::Queue;

/// Poll intervals: a short task is noticed soon, and a long one costs one read every two seconds.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

impl Queue {
    /// Waits until a task has finished, for at most `timeout`, and returns it. Reads the task at least once.
    ///
    /// Fails with [`Error::StillRunning`] when the time has passed; the task itself continues.
    pub async fn wait(&self, id: TaskId, timeout: Duration) -> Result<Task, Error> {
        let started = self.runtime().monotonic();
        let mut pause = PAUSE_MIN;
        loop {
            let task = self.get(id).await?;
            if task.status.is_terminal() {
                return Ok(task);
            }
            let waited = self.runtime().monotonic().saturating_sub(started);
            let left = timeout.saturating_sub(waited);
            if left.is_zero() {
                return Err(Error::StillRunning {
                    id,
                    status: task.status,
                    waited,
                });
            }
            self.runtime().sleep(pause.min(left)).await;
            pause = (pause * 3 / 2).min(PAUSE_MAX);
        }
    }
}
