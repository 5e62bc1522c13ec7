//! Counts tasks by reading each one, up to a limit.

use futures_util::StreamExt;
use qo_core::keys::TASKS_PREFIX;
use qo_core::{Status, Task};
use qo_engine::EngineError;
use qo_engine::api::Stats;
use qo_store::client::PAGE_LIMIT_MAX;

use super::DirectEngine;

impl DirectEngine {
    pub(super) async fn count(&self) -> Result<Stats, EngineError> {
        let mut stats = Stats::default();
        let mut after: Option<String> = None;
        let mut counted = 0;
        loop {
            let page = self
                .client()
                .page(TASKS_PREFIX, after.as_deref(), PAGE_LIMIT_MAX)
                .await?;
            counted += page.entries.len();
            let keys = page.entries.into_iter().map(|entry| entry.key);
            let mut tasks = futures_util::stream::iter(keys)
                .map(|key| async move { self.read_listed(&key).await })
                .buffer_unordered(self.config().concurrency);
            let now = self.client().now();
            while let Some(task) = tasks.next().await {
                if let Some(task) = task? {
                    add(&mut stats, &task, now);
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
            if counted >= self.config().stats_tasks_max {
                stats.partial = true;
                break;
            }
        }
        stats.set_pauses((*self.pauses_now().await?).clone());
        Ok(stats)
    }
}

fn add(stats: &mut Stats, task: &Task, now: qo_core::Timestamp) {
    let queue = stats.queues.entry(task.queue.clone()).or_default();
    queue.add(&task.task_type, task.status, 1);
    if task.status == Status::Pending && task.available_at <= now {
        let oldest = queue.oldest_due.get_or_insert(task.available_at);
        *oldest = task.available_at.min(*oldest);
    }
    if let (Status::Running, Some(at)) = (task.status, task.started_at) {
        queue.add_claim(at);
    }
}
