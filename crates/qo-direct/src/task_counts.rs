//! Counts tasks again and again at a bounded cost: for metrics, which are scraped for as long as a server runs.
//!
//! A count lists the tasks and reads only those that have changed since the last one, which their tags show. It lists at most
//! [`PAGES_MAX`] pages and reads at most as many tasks as its caller allows. The first counts of a large queue are therefore partial:
//! each reads another part of the tasks. What is remembered is bounded by the number of listed tasks.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use qo_core::keys::TASKS_PREFIX;
use qo_core::{QueueName, Status, Task, TaskType, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::Stats;
use qo_store::client::{Entry, PAGE_LIMIT_MAX, Tag};

use super::DirectEngine;

/// The maximum number of pages that a count lists.
const PAGES_MAX: usize = 20;

/// The tasks of the last count, by key.
#[derive(Default)]
pub(super) struct TaskCounts {
    known: tokio::sync::Mutex<BTreeMap<String, KnownTask>>,
}

/// What a count needs to know of a task.
struct KnownTask {
    /// The tag in the listing. A task that is changed between the listing and its read is read again by the next count.
    tag: Tag,
    /// `None` if the record cannot be parsed.
    counted: Option<CountedTask>,
}

struct CountedTask {
    queue: QueueName,
    task_type: TaskType,
    status: Status,
    available_at: Timestamp,
    started_at: Option<Timestamp>,
}

impl CountedTask {
    fn of(task: &Task) -> Self {
        Self {
            queue: task.queue.clone(),
            task_type: task.task_type.clone(),
            status: task.status,
            available_at: task.available_at,
            started_at: task.started_at,
        }
    }

    fn add_to(&self, stats: &mut Stats, now: Timestamp) {
        let queue = stats.queues.entry(self.queue.clone()).or_default();
        queue.add(&self.task_type, self.status, 1);
        if self.status == Status::Pending && self.available_at <= now {
            let oldest = queue.oldest_due.get_or_insert(self.available_at);
            *oldest = self.available_at.min(*oldest);
        }
        if let (Status::Running, Some(at)) = (self.status, self.started_at) {
            queue.add_claim(at);
        }
    }
}

impl DirectEngine {
    /// Counts tasks with at most [`PAGES_MAX`] LISTs and `reads_max` GETs of tasks.
    pub(super) async fn count_within(&self, reads_max: usize) -> Result<Stats, EngineError> {
        let mut known = self.shared.task_counts.known.lock().await;
        let mut stats = Stats::default();
        let mut next = BTreeMap::new();
        let mut unread = Vec::new();
        let mut after: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let page = self
                .client()
                .page(TASKS_PREFIX, after.as_deref(), PAGE_LIMIT_MAX)
                .await?;
            for entry in page.entries {
                match known.remove(&entry.key) {
                    Some(task) if task.tag.matches(&entry.tag) => {
                        next.insert(entry.key, task);
                    }
                    _ => unread.push(entry),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        stats.partial = after.is_some() || unread.len() > reads_max;
        unread.truncate(reads_max);
        let mut read = futures_util::stream::iter(unread)
            .map(|Entry { key, tag, .. }| async move {
                let task = self.read_listed(&key).await?;
                let counted = task.as_ref().map(CountedTask::of);
                Ok::<_, EngineError>((key, KnownTask { tag, counted }))
            })
            .buffer_unordered(self.config().concurrency);
        let mut failure = None;
        while let Some(result) = read.next().await {
            match result {
                Ok((key, task)) => drop(next.insert(key, task)),
                Err(error) => failure = Some(error),
            }
        }
        drop(read);
        // What was read is not read again, even if something else failed.
        *known = next;
        if let Some(error) = failure {
            return Err(error);
        }
        let now = self.client().now();
        for task in known.values().filter_map(|task| task.counted.as_ref()) {
            task.add_to(&mut stats, now);
        }
        stats.set_pauses((*self.known_pauses().await?).clone());
        Ok(stats)
    }
}
