//! The search language: one line of text that selects tasks.
//!
//! ```text
//! search      = alternative *( "or" alternative )
//! alternative = condition *( condition )              all of them must hold
//! condition   = [ "-" ] field ":" value *( "," value )
//! ```
//!
//! | field | value | several values, `-` |
//! | --- | --- | --- |
//! | `type`, `queue`, `tag`, `worker` | a name, or a prefix and a star: `mail*` | both |
//! | `status` | `pending`, `running`, `completed`, `failed`, `cancelled`, `archived`, `due`, `scheduled` | both |
//! | `id` | the beginning of an id; also without `id:` | neither |
//! | `shard` | a hexadecimal digit | neither |
//! | `text` | a text in the last error or in the input | neither |
//! | `since`, `until` | when the task was submitted: an age (`2h`), a date or a time | neither |
//!
//! A value in quotation marks may contain spaces, commas and stars. A part that is not understood is an error and never ignored: a search
//! with fewer conditions matches more tasks, and operations apply to everything that matches.
//!
//! A search has a limited size, so that comparing a task with it has a limited cost. The dashboard has the same language
//! (`search.js`) for buckets, where there is no server; both are tested with `crates/qo-ui/ui/tests/vectors/searches.json`.

mod parse;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use qo_core::{QueueName, Shard, Status, Tag, Task, TaskType, Timestamp};
use thiserror::Error;

use crate::api::{SearchText, TaskFilter};

/// The longest search, in bytes.
pub const SEARCH_EXPRESSION_MAX_BYTES: usize = 1024;
/// The most alternatives. Each may look for a text in an input of 64 KiB.
pub const SEARCH_ALTERNATIVES_MAX: usize = 16;

/// Why a text is not a search.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct InvalidTaskSearch {
    problem: String,
}

/// A search as it is written. Ages and the statuses `due` and `scheduled` are relative to a time that is not known yet; see [`Search::at`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    alternatives: Vec<Vec<Condition>>,
}

impl FromStr for Search {
    type Err = InvalidTaskSearch;

    fn from_str(text: &str) -> Result<Self, InvalidTaskSearch> {
        parse::search(text)
    }
}

impl Search {
    /// The search at a time.
    pub fn at(self, now: Timestamp) -> TaskSearch {
        TaskSearch { search: self, now }
    }
}

/// A search at a time. It selects the same tasks on every page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSearch {
    search: Search,
    now: Timestamp,
}

/// What a task must have, or must not have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Name {
        field: Field,
        patterns: Vec<Pattern>,
        is_excluded: bool,
    },
    Status {
        words: Vec<StatusWord>,
        is_excluded: bool,
    },
    Id(String),
    Shard(Shard),
    Text(SearchText),
    Since(Moment),
    Until(Moment),
}

/// A field with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Type,
    Queue,
    Tag,
    Worker,
}

impl Field {
    const ALL: [Self; 4] = [Self::Type, Self::Queue, Self::Tag, Self::Worker];

    fn as_str(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Queue => "queue",
            Self::Tag => "tag",
            Self::Worker => "worker",
        }
    }

    fn has(self, task: &Task, patterns: &[Pattern]) -> bool {
        let is_one = |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        match self {
            Self::Type => is_one(task.task_type.as_str()),
            Self::Queue => is_one(task.queue.as_str()),
            Self::Tag => task.tags.iter().any(|tag| is_one(tag.as_str())),
            Self::Worker => task
                .worker_id
                .as_ref()
                .is_some_and(|worker| is_one(worker.as_str())),
        }
    }
}

/// A name, or the beginning of one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Is(String),
    Starts(String),
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Is(wanted) => name == wanted,
            Self::Starts(beginning) => name.starts_with(beginning),
        }
    }
}

/// A status, or one of the two kinds of pending tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusWord {
    Is(Status),
    Due,
    Scheduled,
}

impl StatusWord {
    fn status(self) -> Status {
        match self {
            Self::Is(status) => status,
            Self::Due | Self::Scheduled => Status::Pending,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Is(status) => status.as_str(),
            Self::Due => "due",
            Self::Scheduled => "scheduled",
        }
    }

    fn matches(self, task: &Task, now: Timestamp) -> bool {
        task.status == self.status()
            && match self {
                Self::Is(_) => true,
                Self::Due => task.available_at <= now,
                Self::Scheduled => task.available_at > now,
            }
    }
}

/// A time, absolute or relative to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    At(Timestamp),
    AgoMs(u64),
}

impl Moment {
    fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::AgoMs(age_ms) => now.minus_millis(age_ms),
        }
    }
}

impl Condition {
    fn matches(&self, task: &Task, now: Timestamp) -> bool {
        match self {
            Self::Name {
                field,
                patterns,
                is_excluded,
            } => field.has(task, patterns) != *is_excluded,
            Self::Status { words, is_excluded } => {
                words.iter().any(|word| word.matches(task, now)) != *is_excluded
            }
            Self::Id(beginning) => task.id.to_string().starts_with(beginning),
            Self::Shard(shard) => task.shard == *shard,
            Self::Text(text) => text.matches(task),
            Self::Since(since) => task.created_at >= since.at(now),
            Self::Until(until) => task.created_at < until.at(now),
        }
    }

    /// The statuses that it asks for.
    fn statuses(&self) -> Option<&[StatusWord]> {
        match self {
            Self::Status {
                words,
                is_excluded: false,
            } => Some(words),
            _ => None,
        }
    }
}

impl TaskSearch {
    /// The search that selects all tasks: its only alternative has no condition.
    fn everything() -> Self {
        let search = Search {
            alternatives: vec![Vec::new()],
        };
        // No condition depends on the time.
        search.at(Timestamp::MIN)
    }

    /// Whether a task matches.
    pub fn matches(&self, task: &Task) -> bool {
        self.search.alternatives.iter().any(|conditions| {
            conditions
                .iter()
                .all(|condition| condition.matches(task, self.now))
        })
    }

    /// The statuses that it asks for; none if it leaves them open. Either all alternatives name statuses, or none does.
    fn statuses(&self) -> Vec<Status> {
        let mut statuses = Vec::new();
        let conditions = self.search.alternatives.iter().flatten();
        for word in conditions.filter_map(Condition::statuses).flatten() {
            if !statuses.contains(&word.status()) {
                statuses.push(word.status());
            }
        }
        statuses
    }
}

impl TaskFilter {
    /// Restricts the filter to the tasks that match a search. What the search says in the filter's own words is set there, too, so that
    /// engines can use their indexes. A search without a status leaves the filter's statuses as they are.
    #[must_use]
    pub fn with_search(mut self, search: TaskSearch) -> Self {
        if self.statuses.is_empty() {
            self.statuses = search.statuses();
        }
        if let [conditions] = search.search.alternatives.as_slice() {
            for condition in conditions {
                self.narrow(condition, search.now);
            }
        }
        self.search = Some(search);
        self
    }

    /// Restricts the filter to the tasks of these queues and types; of all if they are empty. The filter itself has room for one queue and
    /// one type, so these become a condition of each alternative of its search.
    #[must_use]
    pub fn within(mut self, queues: &BTreeSet<QueueName>, types: &BTreeSet<TaskType>) -> Self {
        let one_of = |field: Field, names: Vec<&str>| {
            let patterns = names.into_iter().map(|name| Pattern::Is(name.to_owned()));
            Condition::Name {
                field,
                patterns: patterns.collect(),
                is_excluded: false,
            }
        };
        let mut conditions = Vec::new();
        if !queues.is_empty() {
            let names = queues.iter().map(QueueName::as_str).collect();
            conditions.push(one_of(Field::Queue, names));
        }
        if !types.is_empty() {
            let names = types.iter().map(TaskType::as_str).collect();
            conditions.push(one_of(Field::Type, names));
        }
        if conditions.is_empty() {
            return self;
        }
        let search = self.search.get_or_insert_with(TaskSearch::everything);
        for alternative in &mut search.search.alternatives {
            alternative.extend(conditions.iter().cloned());
        }
        self
    }

    fn narrow(&mut self, condition: &Condition, now: Timestamp) {
        match condition {
            Condition::Name {
                field,
                patterns,
                is_excluded: false,
            } => {
                let [Pattern::Is(name)] = patterns.as_slice() else {
                    return;
                };
                // A text that is no name stays a condition of the search, which then matches nothing.
                match field {
                    Field::Type => {
                        self.task_type = self.task_type.take().or(named::<TaskType>(name));
                    }
                    Field::Queue => self.queue = self.queue.take().or(named::<QueueName>(name)),
                    Field::Tag => self.tag = self.tag.take().or(named::<Tag>(name)),
                    Field::Worker => {}
                }
            }
            Condition::Shard(shard) => self.shard = self.shard.or(Some(*shard)),
            Condition::Id(beginning) => {
                let shard = beginning.get(..1).and_then(|digit| digit.parse().ok());
                self.shard = self.shard.or(shard);
            }
            Condition::Since(since) => self.since = self.since.max(Some(since.at(now))),
            Condition::Until(until) => {
                let until = until.at(now);
                self.until = Some(self.until.map_or(until, |other| other.min(until)));
            }
            Condition::Name { .. } | Condition::Status { .. } | Condition::Text(_) => {}
        }
    }
}

fn named<T: FromStr>(name: &str) -> Option<T> {
    name.parse().ok()
}

impl fmt::Display for TaskSearch {
    /// The search as text, with times instead of ages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, conditions) in self.search.alternatives.iter().enumerate() {
            if index > 0 {
                f.write_str(" or ")?;
            }
            for (index, condition) in conditions.iter().enumerate() {
                if index > 0 {
                    f.write_str(" ")?;
                }
                self.fmt_condition(condition, f)?;
            }
        }
        Ok(())
    }
}

impl TaskSearch {
    fn fmt_condition(&self, condition: &Condition, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minus = |is_excluded: bool| if is_excluded { "-" } else { "" };
        match condition {
            Condition::Name {
                field,
                patterns,
                is_excluded,
            } => {
                write!(f, "{}{}:", minus(*is_excluded), field.as_str())?;
                for (index, pattern) in patterns.iter().enumerate() {
                    if index > 0 {
                        f.write_str(",")?;
                    }
                    match pattern {
                        Pattern::Starts(beginning) => write!(f, "{beginning}*")?,
                        Pattern::Is(name) if needs_quotes(name) => write!(f, "\"{name}\"")?,
                        Pattern::Is(name) => f.write_str(name)?,
                    }
                }
                Ok(())
            }
            Condition::Status { words, is_excluded } => {
                let words: Vec<_> = words.iter().map(|word| word.as_str()).collect();
                write!(f, "{}status:{}", minus(*is_excluded), words.join(","))
            }
            Condition::Id(beginning) => write!(f, "id:{beginning}"),
            Condition::Shard(shard) => write!(f, "shard:{shard}"),
            Condition::Text(text) => write!(f, "text:\"{}\"", text.as_str()),
            Condition::Since(since) => write!(f, "since:{}", since.at(self.now)),
            Condition::Until(until) => write!(f, "until:{}", until.at(self.now)),
        }
    }
}

fn needs_quotes(name: &str) -> bool {
    name.contains(|letter: char| letter.is_whitespace() || letter == ',' || letter == '*')
}

#[cfg(test)]
mod tests;
