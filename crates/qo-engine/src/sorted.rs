//! Lists sorted by a column for which no engine has an index.
//!
//! The orders by time of submit and by id have indexes, or keys in that order, and such lists continue page by page. For every other column, the
//! newest matching tasks are read, up to [`SORTED_MAX`], and the first of them by the column are returned. So the result says how many tasks were
//! sorted, and whether these were all.

use std::cmp::{Ordering, Reverse};

use qo_core::{Status, Task, Timestamp};
use serde::{Deserialize, Serialize};

use crate::api::{TaskFilter, TaskOrder, TaskQuery};
use crate::engine::Engine;
use crate::error::EngineError;

/// The most tasks that are read and sorted.
pub const SORTED_MAX: usize = 1_000;
/// How many tasks are in memory in addition to those that are returned.
const PART: usize = 100;
/// The most pages that are read, if few of the tasks in each of them match.
const PARTS_MAX: usize = 100;

/// A column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortColumn {
    /// When the task last changed; the latest first.
    Changed,
    /// When it ended; the latest first, and unfinished tasks last.
    Finished,
    /// When it is due; the earliest first.
    Due,
    /// Its type.
    Type,
    /// Its queue.
    Queue,
    /// Its status, in the order of a task's life.
    Status,
    /// The number of attempts; the highest first.
    Attempts,
    /// Its priority; the most urgent first.
    Priority,
}

impl SortColumn {
    fn compare(self, one: &Task, other: &Task) -> Ordering {
        let by = |task: &Task| match self {
            Self::Changed => Key::Time(Reverse(Some(task.updated_at))),
            Self::Finished => Key::Time(Reverse(task.completed_at)),
            Self::Due => Key::Due(task.available_at),
            Self::Type => Key::Name(task.task_type.to_string()),
            Self::Queue => Key::Name(task.queue.to_string()),
            Self::Status => Key::Place(Status::ALL.iter().position(|one| *one == task.status)),
            Self::Attempts => Key::Number(-i64::from(task.attempt)),
            Self::Priority => Key::Number(i64::from(task.priority)),
        };
        by(one).cmp(&by(other))
    }
}

/// What tasks are compared by. Those of one list have the same kind.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Time(Reverse<Option<Timestamp>>),
    Due(Timestamp),
    Name(String),
    Number(i64),
    Place(Option<usize>),
}

/// An order by a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnOrder {
    /// The column.
    pub column: SortColumn,
    /// Whether the order is the opposite one.
    pub reverse: bool,
}

/// The first tasks by a column.
#[derive(Debug, Clone, PartialEq)]
pub struct SortedTasks {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Among how many tasks they are the first: the newest that match.
    pub among: usize,
    /// Whether these are all tasks that match.
    pub is_complete: bool,
}

/// Returns the first `limit` tasks by a column, among the newest [`SORTED_MAX`] that match. Tasks that are equal in the column are in the order
/// of their submit, the newest first.
pub async fn list_sorted(
    engine: &dyn Engine,
    filter: &TaskFilter,
    order: ColumnOrder,
    limit: usize,
) -> Result<SortedTasks, EngineError> {
    let filter = TaskFilter {
        order: TaskOrder::Newest,
        ..filter.clone()
    };
    let mut sorted = SortedTasks {
        tasks: Vec::new(),
        among: 0,
        is_complete: false,
    };
    let mut cursor: Option<String> = None;
    for _ in 0..PARTS_MAX {
        let count = PART.min(SORTED_MAX - sorted.among);
        let query = TaskQuery::first(&filter, count).at(cursor.as_deref());
        let part = engine.list(query).await?;
        sorted.among += part.tasks.len();
        let part_tasks = part.tasks.into_iter().map(Task::without_logs);
        sorted.tasks.extend(part_tasks);
        sorted.tasks.sort_by(|one, other| {
            let compared = order.column.compare(one, other);
            if order.reverse {
                compared.reverse()
            } else {
                compared
            }
        });
        sorted.tasks.truncate(limit);
        cursor = part.next;
        if cursor.is_none() {
            sorted.is_complete = true;
            break;
        }
        if sorted.among >= SORTED_MAX {
            break;
        }
    }
    Ok(sorted)
}
