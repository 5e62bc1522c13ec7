//! Lists of tasks, page by page or as a stream.

use std::collections::VecDeque;

use futures_util::Stream;
use futures_util::stream::try_unfold;
use qo_core::Task;
use qo_engine::api::{TaskFilter, TaskPage, TaskQuery};
use qo_engine::sorted::{ColumnOrder, SortedTasks, list_sorted};

use super::Queue;
use crate::error::Error;

/// Page size of [`Queue::list_all`].
const PAGE_LIMIT: usize = 500;

impl Queue {
    /// Lists one page of the tasks that match, at most `limit`. `cursor` is [`TaskPage::next`] of the page before.
    pub async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, Error> {
        let query = TaskQuery {
            filter,
            cursor,
            limit,
        };
        let page = self.engine.list(query).await?;
        Ok(self.open_page(page))
    }

    /// Lists the first `limit` tasks by a column, among the newest 1,000 that match: columns have no index.
    pub async fn list_sorted(
        &self,
        filter: &TaskFilter,
        order: ColumnOrder,
        limit: usize,
    ) -> Result<SortedTasks, Error> {
        let engine = self.engine().as_ref();
        let mut sorted = list_sorted(engine, filter, order, limit).await?;
        let tasks = sorted.tasks.into_iter();
        sorted.tasks = tasks.map(|task| self.sealer.open_task(task)).collect();
        Ok(sorted)
    }

    fn open_page(&self, page: TaskPage) -> TaskPage {
        let tasks = page.tasks.into_iter();
        TaskPage {
            tasks: tasks.map(|task| self.sealer.open_task(task)).collect(),
            ..page
        }
    }

    /// Lists all tasks that match, as a stream that reads page by page. The stream ends after an error.
    pub fn list_all(&self, filter: TaskFilter) -> impl Stream<Item = Result<Task, Error>> + Send {
        let start = Pages {
            queue: self.clone(),
            filter,
            tasks: VecDeque::new(),
            cursor: None,
            at_end: false,
        };
        try_unfold(start, |mut pages| async move {
            while pages.tasks.is_empty() && !pages.at_end {
                pages.turn().await?;
            }
            Ok(pages.tasks.pop_front().map(|task| (task, pages)))
        })
    }
}

/// Position in a list.
struct Pages {
    queue: Queue,
    filter: TaskFilter,
    tasks: VecDeque<Task>,
    cursor: Option<String>,
    at_end: bool,
}

impl Pages {
    async fn turn(&mut self) -> Result<(), Error> {
        let page = self
            .queue
            .list(&self.filter, self.cursor.as_deref(), PAGE_LIMIT)
            .await?;
        self.tasks.extend(page.tasks);
        self.at_end = page.next.is_none();
        self.cursor = page.next;
        Ok(())
    }
}
