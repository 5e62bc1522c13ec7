//! Listing and counting tasks.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use qo_core::{Pauses, QueueName, Shard, Status, Tag, Task, TaskId, TaskType, Timestamp};

use crate::error::EngineError;
use crate::search::TaskSearch;

/// The beginning of the cursors of lists that show the newest tasks first.
pub const NEWEST_CURSOR: &str = "newest-";

/// The order of a list of tasks. Any of them stays the same from page to page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TaskOrder {
    /// The order that costs the engine least.
    #[default]
    Any,
    /// By id.
    Id,
    /// The task that was submitted last comes first. In direct mode this is the order of the times in the ids that qo generates; tasks
    /// with ids that callers chose come where those ids happen to be.
    Newest,
}

/// A place in a list: behind one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListPosition {
    /// When the task was submitted. The same for all tasks in a list by id.
    pub at: Timestamp,
    /// The task.
    pub id: TaskId,
}

impl TaskOrder {
    /// The place behind a task.
    pub fn position(self, at: Timestamp, id: TaskId) -> ListPosition {
        match self {
            Self::Newest => ListPosition { at, id },
            Self::Any | Self::Id => ListPosition {
                at: Timestamp::MIN,
                id,
            },
        }
    }

    /// The place behind a task.
    pub fn position_of(self, task: &Task) -> ListPosition {
        self.position(task.created_at, task.id)
    }

    /// Which of two places comes first.
    pub fn compare(self, one: ListPosition, other: ListPosition) -> Ordering {
        let order = (one.at, one.id).cmp(&(other.at, other.id));
        match self {
            Self::Newest => order.reverse(),
            Self::Any | Self::Id => order,
        }
    }

    /// The cursor of a place.
    pub fn cursor(self, position: ListPosition) -> String {
        match self {
            Self::Newest => format!("{NEWEST_CURSOR}{}-{}", position.at.as_millis(), position.id),
            Self::Any | Self::Id => position.id.to_string(),
        }
    }

    /// The place of a cursor, which comes from the caller.
    pub fn parse_cursor(self, cursor: &str) -> Result<ListPosition, EngineError> {
        let parsed = match self {
            Self::Any | Self::Id => cursor
                .parse()
                .ok()
                .map(|id| self.position(Timestamp::MIN, id)),
            Self::Newest => cursor.strip_prefix(NEWEST_CURSOR).and_then(|rest| {
                let (millis, id) = rest.split_once('-')?;
                let at = Timestamp::from_millis(millis.parse().ok()?);
                Some(ListPosition {
                    at,
                    id: id.parse().ok()?,
                })
            }),
        };
        parsed.ok_or_else(invalid_cursor)
    }
}

/// The error that a cursor does not belong to a list.
pub fn invalid_cursor() -> EngineError {
    EngineError::BadRequest(
        "invalid cursor: use the cursor of the previous page unchanged, with the same order"
            .to_owned(),
    )
}

/// The longest text to search for, in bytes.
pub const SEARCH_MAX_BYTES: usize = 256;

/// A text to search for in errors and inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchText {
    text: String,
    lower: String,
}

/// The error for a text that cannot be searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSearch;

impl std::fmt::Display for InvalidSearch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a text to search for has 1 to {SEARCH_MAX_BYTES} bytes")
    }
}

impl std::error::Error for InvalidSearch {}

impl SearchText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a text contains it.
    fn is_in(&self, text: &str) -> bool {
        // Most errors and inputs are ASCII, whose case can be ignored without a copy.
        if text.is_ascii() && self.lower.is_ascii() {
            let wanted = self.lower.as_bytes();
            return text
                .as_bytes()
                .windows(wanted.len())
                .any(|part| part.eq_ignore_ascii_case(wanted));
        }
        text.to_lowercase().contains(&self.lower)
    }

    pub(crate) fn matches(&self, task: &Task) -> bool {
        let error = task.last_error.as_deref();
        error.is_some_and(|error| self.is_in(error))
            || task
                .inline_input()
                .is_some_and(|input| self.is_in(input.as_str()))
    }
}

impl std::str::FromStr for SearchText {
    type Err = InvalidSearch;

    fn from_str(text: &str) -> Result<Self, InvalidSearch> {
        if !(1..=SEARCH_MAX_BYTES).contains(&text.len()) {
            return Err(InvalidSearch);
        }
        Ok(Self {
            text: text.to_owned(),
            lower: text.to_lowercase(),
        })
    }
}

/// Selects tasks, and the order in which a list shows them. A task matches if it meets all conditions that are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// Has one of these statuses; any status except archived if empty.
    pub statuses: Vec<Status>,
    /// Is in this queue.
    pub queue: Option<QueueName>,
    /// Has this type.
    pub task_type: Option<TaskType>,
    /// Has this tag.
    pub tag: Option<Tag>,
    /// Is in this shard.
    pub shard: Option<Shard>,
    /// Was submitted at this time or later.
    pub since: Option<Timestamp>,
    /// Was submitted before this time.
    pub until: Option<Timestamp>,
    /// The order of a list.
    pub order: TaskOrder,
    /// Has this text in its last error, or in its input if that is in the record (up to 64 KiB), in any case of letters.
    pub text: Option<SearchText>,
    /// Matches this search. Set it with [`TaskFilter::with_search`], which also lets engines use their indexes.
    pub search: Option<TaskSearch>,
}

impl TaskFilter {
    /// Whether a task matches.
    pub fn matches(&self, task: &Task) -> bool {
        let status = if self.statuses.is_empty() {
            task.status != Status::Archived
        } else {
            self.statuses.contains(&task.status)
        };
        status
            && self.queue.as_ref().is_none_or(|queue| *queue == task.queue)
            && self
                .task_type
                .as_ref()
                .is_none_or(|task_type| *task_type == task.task_type)
            && self.tag.as_ref().is_none_or(|tag| task.tags.contains(tag))
            && self.shard.is_none_or(|shard| shard == task.shard)
            && self.since.is_none_or(|since| task.created_at >= since)
            && self.until.is_none_or(|until| task.created_at < until)
            && self.text.as_ref().is_none_or(|text| text.matches(task))
            && self
                .search
                .as_ref()
                .is_none_or(|search| search.matches(task))
    }
}

/// Asks for one page of a list of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskQuery<'a> {
    /// Selects and orders the tasks.
    pub filter: &'a TaskFilter,
    /// Where the page starts: the cursor that the previous page returned. The beginning if absent.
    pub cursor: Option<&'a str>,
    /// The most tasks in the page.
    pub limit: usize,
}

impl<'a> TaskQuery<'a> {
    /// Asks for the first page.
    pub fn first(filter: &'a TaskFilter, limit: usize) -> Self {
        Self {
            filter,
            cursor: None,
            limit,
        }
    }

    /// Asks for the page that starts at a cursor.
    #[must_use]
    pub fn at(self, cursor: Option<&'a str>) -> Self {
        Self { cursor, ..self }
    }
}

/// One page of a list of tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The cursor of the next page, if there may be one.
    pub next: Option<String>,
    /// How many tasks were read to find these, if the engine says so. One request reads at most about 10,000.
    pub examined: Option<u64>,
}

/// One stored version of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedTask {
    /// The version id that the store assigned.
    pub version: String,
    /// When it was written, by the store's clock.
    pub stored_at: Timestamp,
    /// The task in this version; `None` for a delete marker or a record that cannot be parsed.
    pub task: Option<Task>,
}

/// Task counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// By queue.
    pub queues: BTreeMap<QueueName, QueueStats>,
    /// Whether only part of the tasks were counted, so that the true counts are higher.
    pub partial: bool,
    /// The paused queues and types.
    pub pauses: Pauses,
}

/// Task counts of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueueStats {
    /// By status.
    pub statuses: BTreeMap<Status, u64>,
    /// By type.
    pub types: BTreeMap<TaskType, u64>,
    /// By type and status.
    pub types_by_status: BTreeMap<TaskType, BTreeMap<Status, u64>>,
    /// The earliest due time of the pending tasks that are due.
    pub oldest_due: Option<Timestamp>,
    /// When the oldest running attempt was claimed. Brokers and clusters look at the 10,000 attempts whose leases end first.
    pub oldest_claim: Option<Timestamp>,
    /// Whether the queue is paused, so that claims skip it.
    pub paused: bool,
}

impl Stats {
    /// Sets what is paused, and marks the paused queues.
    pub fn set_pauses(&mut self, pauses: Pauses) {
        for queue in pauses.queues.keys() {
            self.queues.entry(queue.clone()).or_default().paused = true;
        }
        self.pauses = pauses;
    }
}

impl QueueStats {
    /// Adds `count` tasks to the counts.
    pub fn add(&mut self, task_type: &TaskType, status: Status, count: u64) {
        let of_type = self.types_by_status.entry(task_type.clone()).or_default();
        // Stored counts may have any value, so an overflow must not panic.
        for sum in [
            self.statuses.entry(status).or_default(),
            self.types.entry(task_type.clone()).or_default(),
            of_type.entry(status).or_default(),
        ] {
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds a running attempt that was claimed at this time.
    pub fn add_claim(&mut self, at: Timestamp) {
        self.oldest_claim = self.oldest_claim.into_iter().chain([at]).min();
    }

    /// Removes one task from the counts.
    pub fn subtract_one(&mut self, task_type: &TaskType, status: Status) {
        let of_type = self.types_by_status.get_mut(task_type);
        let counts = [
            self.statuses.get_mut(&status),
            self.types.get_mut(task_type),
            of_type.and_then(|of_type| of_type.get_mut(&status)),
        ];
        for count in counts.into_iter().flatten() {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_those_of_other_orders_are_refused() {
        let id: TaskId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        let at = Timestamp::from_millis(1_763_238_840_123);
        for order in [TaskOrder::Any, TaskOrder::Id, TaskOrder::Newest] {
            let place = order.position(at, id);
            assert_eq!(order.parse_cursor(&order.cursor(place)).unwrap(), place);
        }
        let by_id = TaskOrder::Id.cursor(TaskOrder::Id.position(at, id));
        let newest = TaskOrder::Newest.cursor(TaskOrder::Newest.position(at, id));
        assert!(TaskOrder::Newest.parse_cursor(&by_id).is_err());
        assert!(TaskOrder::Id.parse_cursor(&newest).is_err());
        for bad in ["", "newest-", "newest-1", "newest-x-y", "newest-1-2-3"] {
            assert!(TaskOrder::Newest.parse_cursor(bad).is_err(), "{bad}");
        }
    }
}
