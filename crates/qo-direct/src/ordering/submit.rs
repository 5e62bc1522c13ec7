//! Submits tasks with an ordering key.

use futures_util::StreamExt;
use qo_core::task::OrderingLine;
use qo_core::{Rejection, Status, Task};
use qo_engine::EngineError;
use qo_engine::api::{SubmitRequest, Submitted};

use super::super::DirectEngine;
use super::super::submit::Admission;
use super::{LINE_MAX_TASKS, digest_of};

impl DirectEngine {
    /// Submits tasks with the same ordering key, in order. The results have the order of the requests.
    pub(in super::super) async fn submit_ordered(
        &self,
        line: &OrderingLine,
        requests: Vec<SubmitRequest>,
        admission: Admission,
    ) -> Vec<Result<Submitted, EngineError>> {
        let turn = self.shared.line_locks.lock(&digest_of(line)).await;
        let count = requests.len();
        let stored = match self.read_line(line).await {
            Ok(stored) => stored,
            Err(error) => return (0..count).map(|_| Err(error.clone())).collect(),
        };
        let room = LINE_MAX_TASKS.saturating_sub(stored.record.tasks.len());
        let mut results: Vec<Result<Submitted, EngineError>> =
            futures_util::stream::iter(requests.into_iter().enumerate())
                .map(|(index, request)| async move {
                    if index < room {
                        self.create_task(request, admission).await
                    } else {
                        let full = Rejection::LineFull {
                            limit: LINE_MAX_TASKS as u64,
                        };
                        self.find_submitted(&request, full).await
                    }
                })
                .buffered(self.config().concurrency)
                .collect()
                .await;
        let joining: Vec<Task> = (results.iter().flatten())
            .map(|submitted| &submitted.task)
            .filter(|task| task.status == Status::Pending)
            .filter(|task| task.ordering_line().as_ref() == Some(line))
            .cloned()
            .collect();
        let joined = self.join_line(line, stored, joining).await;
        drop(turn);
        match joined {
            Ok(head) => {
                if let Some(head) = head {
                    self.publish_entry(&head).await;
                }
                for submitted in results.iter().flatten() {
                    self.announce_ordered(line, submitted).await;
                }
            }
            // The tasks exist, but nobody may rely on their order.
            Err(error) => {
                for result in &mut results {
                    if result.is_ok() {
                        *result = Err(error.clone());
                    }
                }
            }
        }
        results
    }

    /// Notifies watchers of a new task, and publishes an existing one that turned out to have another ordering key, or none.
    async fn announce_ordered(&self, line: &OrderingLine, submitted: &Submitted) {
        let task = &submitted.task;
        if task.attempt == 0 && task.ordering_line().as_ref() != Some(line) {
            self.publish(task).await;
        }
        self.rank_is_published(task);
        if !submitted.duplicate {
            self.shared.watchers.notify("submit", task);
        }
    }
}
