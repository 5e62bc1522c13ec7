//! Lists tasks in the order of their ids. Lists of the newest are in [`super::list_newest`].
//!
//! It costs a LIST per thousand tasks and a GET per task that it reads, because only the record has the task's fields.

use futures_util::StreamExt;
use qo_core::Task;
use qo_core::keys::{Key, TASKS_PREFIX, tasks_prefix};
use qo_engine::EngineError;
use qo_engine::api::{TaskOrder, TaskPage, TaskQuery, invalid_cursor};
use qo_store::client::PAGE_LIMIT_MAX;

use super::DirectEngine;

/// How many tasks are read for one page, so that a filter that matches few tasks still returns.
const READ_MAX: usize = 10_000;
/// The largest page size.
const LIMIT_MAX: usize = 1_000;

impl DirectEngine {
    pub(super) async fn list_tasks(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        let limit = query.limit.clamp(1, LIMIT_MAX);
        let TaskQuery { filter, cursor, .. } = query;
        if filter.order == TaskOrder::Newest {
            return self.list_newest(TaskQuery { limit, ..query }).await;
        }
        let prefix = filter
            .shard
            .map_or_else(|| TASKS_PREFIX.to_owned(), tasks_prefix);
        let mut after = match cursor {
            None => None,
            Some(cursor) => Some(check_cursor(cursor)?),
        };
        let mut tasks = Vec::new();
        let mut read_count = 0;
        loop {
            let page = self
                .client()
                .page(&prefix, after.as_deref(), PAGE_LIMIT_MAX.min(limit * 4))
                .await?;
            let keys = page.entries.into_iter().map(|entry| entry.key);
            let mut records = futures_util::stream::iter(keys)
                .map(|key| async move {
                    let task = self.read_listed(&key).await;
                    (key, task)
                })
                .buffered(self.config().concurrency);
            while let Some((key, task)) = records.next().await {
                read_count += 1;
                if let Some(task) = task?.filter(|task| filter.matches(task)) {
                    tasks.push(task);
                }
                after = Some(key);
                if tasks.len() >= limit || read_count >= READ_MAX {
                    return Ok(page_of(tasks, after, read_count));
                }
            }
            if page.next.is_none() {
                return Ok(page_of(tasks, None, read_count));
            }
        }
    }

    /// Reads a listed task; `None` if it was deleted or cannot be parsed.
    pub(super) async fn read_listed(&self, key: &str) -> Result<Option<Task>, EngineError> {
        let Ok(Key::Task(id)) = key.parse() else {
            return Ok(None);
        };
        match self.read(id).await {
            Ok(stored) => Ok(Some(stored.task)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error @ EngineError::Unreadable { .. }) => {
                tracing::warn!(%error, "skipping a task whose record cannot be parsed");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// A page for which this many tasks were read.
pub(super) fn page_of(tasks: Vec<Task>, next: Option<String>, read_count: usize) -> TaskPage {
    TaskPage {
        tasks,
        next,
        examined: u64::try_from(read_count).ok(),
    }
}

/// Validates a cursor, which is the key of the last task that was read. It comes from the caller.
fn check_cursor(cursor: &str) -> Result<String, EngineError> {
    match cursor.parse() {
        Ok(Key::Task(_)) => Ok(cursor.to_owned()),
        _ => Err(invalid_cursor()),
    }
}
