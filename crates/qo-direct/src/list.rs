//! Which tasks there are. Pages of the tasks themselves, in the order of their ids.
//!
//! A list costs a LIST per thousand tasks and a GET per task that it looks at, because only the record says what a task is.

use futures_util::StreamExt;
use qo_core::Task;
use qo_core::keys::{Key, TASKS_PREFIX, tasks_prefix};
use qo_engine::EngineError;
use qo_engine::api::{TaskFilter, TaskPage};
use qo_store::client::PAGE_LIMIT_MAX;

use super::DirectEngine;

/// How many tasks a list looks at before it returns what it has found, so that a filter that matches little still answers.
const LOOKED_AT_MAX: usize = 10_000;
/// The most tasks in one page.
const LIMIT_MAX: usize = 1_000;

impl DirectEngine {
    pub(super) async fn list_tasks(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, EngineError> {
        let limit = limit.clamp(1, LIMIT_MAX);
        let prefix = filter
            .shard
            .map_or_else(|| TASKS_PREFIX.to_owned(), tasks_prefix);
        let mut after = match cursor {
            None => None,
            Some(cursor) => Some(check_cursor(cursor)?),
        };
        let mut tasks = Vec::new();
        let mut looked_at = 0;
        loop {
            let page = self
                .client()
                .page(&prefix, after.as_deref(), PAGE_LIMIT_MAX.min(limit * 4))
                .await?;
            let keys = page.entries.into_iter().map(|entry| entry.key);
            let mut records = futures_util::stream::iter(keys)
                .map(|key| async move {
                    let task = self.look_at(&key).await;
                    (key, task)
                })
                .buffered(self.config().concurrency);
            while let Some((key, task)) = records.next().await {
                looked_at += 1;
                if let Some(task) = task?.filter(|task| filter.matches(task)) {
                    tasks.push(task);
                }
                after = Some(key);
                if tasks.len() >= limit || looked_at >= LOOKED_AT_MAX {
                    return Ok(TaskPage { tasks, next: after });
                }
            }
            if page.next.is_none() {
                return Ok(TaskPage { tasks, next: None });
            }
        }
    }

    /// The task under a key; nothing, if it has gone or cannot be read.
    pub(super) async fn look_at(&self, key: &str) -> Result<Option<Task>, EngineError> {
        let Ok(Key::Task(id)) = key.parse() else {
            return Ok(None);
        };
        match self.read(id).await {
            Ok(stored) => Ok(Some(stored.task)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error @ EngineError::Unreadable { .. }) => {
                tracing::warn!(%error, "left out of the list");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// A cursor is the key of the last task that was looked at. It comes from outside, so it is checked.
fn check_cursor(cursor: &str) -> Result<String, EngineError> {
    match cursor.parse() {
        Ok(Key::Task(_)) => Ok(cursor.to_owned()),
        _ => Err(EngineError::BadRequest(
            "this is not a cursor: use the one that the page before gave, unchanged".to_owned(),
        )),
    }
}
