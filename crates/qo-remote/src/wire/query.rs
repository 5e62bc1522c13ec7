//! Looking at tasks, queues and workers.

use std::collections::BTreeMap;

use qo_core::{QueueName, Shard, Status, Tag, Task, TaskType, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{QueueStats, Stats, TaskFilter, TaskPage, VersionedTask};
use serde::{Deserialize, Serialize};

use super::PAGE_MAX;

#[cfg(feature = "openapi")]
use super::schema;

/// How many tasks a page holds where the query names no number.
pub const PAGE_DEFAULT: usize = 100;

/// Which tasks to list, and from where on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ListQuery {
    /// Statuses, separated by commas; any but archived, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        param(
            pattern = "^(pending|running|completed|failed|cancelled|archived)(,(pending|running|completed|failed|cancelled|archived)){0,5}$"
        )
    )]
    pub status: Option<String>,
    /// In this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::Name>))]
    pub queue: Option<QueueName>,
    /// Of this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::Name>))]
    pub task_type: Option<TaskType>,
    /// With this tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::Label>))]
    pub tag: Option<Tag>,
    /// In this part of the store: the first hexadecimal digit of the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::ShardDigit>))]
    pub shard: Option<Shard>,
    /// Submitted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::Time>))]
    pub since: Option<Timestamp>,
    /// Where to go on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How many tasks at the most; 100, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
}

impl ListQuery {
    /// A filter, a cursor and a limit as a query.
    pub fn new(filter: &TaskFilter, cursor: Option<&str>, limit: usize) -> Self {
        let statuses: Vec<_> = filter
            .statuses
            .iter()
            .map(|status| status.as_str())
            .collect();
        Self {
            status: (!statuses.is_empty()).then(|| statuses.join(",")),
            queue: filter.queue.clone(),
            task_type: filter.task_type.clone(),
            tag: filter.tag.clone(),
            shard: filter.shard,
            since: filter.since,
            cursor: cursor.map(str::to_owned),
            limit: Some(limit.clamp(1, PAGE_MAX)),
        }
    }

    /// The query as names and values, to be written behind a path.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        fn text(value: Option<&impl ToString>) -> Option<String> {
            value.map(ToString::to_string)
        }
        let pairs = [
            ("status", self.status.clone()),
            ("queue", text(self.queue.as_ref())),
            ("task_type", text(self.task_type.as_ref())),
            ("tag", text(self.tag.as_ref())),
            ("shard", text(self.shard.as_ref())),
            ("since", text(self.since.as_ref())),
            ("cursor", self.cursor.clone()),
            ("limit", text(self.limit.as_ref())),
        ];
        pairs
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// The filter.
    pub fn filter(&self) -> Result<TaskFilter, EngineError> {
        let statuses = match &self.status {
            None => Vec::new(),
            Some(text) => statuses_of(text.split(','))?,
        };
        Ok(TaskFilter {
            statuses,
            queue: self.queue.clone(),
            task_type: self.task_type.clone(),
            tag: self.tag.clone(),
            shard: self.shard,
            since: self.since,
        })
    }

    /// How many tasks at the most.
    pub fn limit(&self) -> Result<usize, EngineError> {
        match self.limit.unwrap_or(PAGE_DEFAULT) {
            limit @ 1..=PAGE_MAX => Ok(limit),
            _ => Err(EngineError::BadRequest(format!(
                "limit must be 1 to {PAGE_MAX}"
            ))),
        }
    }
}

fn statuses_of<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<Status>, EngineError> {
    let mut statuses = Vec::new();
    for word in words {
        let status: Status = word
            .parse()
            .map_err(|error| EngineError::BadRequest(format!("{error}")))?;
        if !statuses.contains(&status) {
            statuses.push(status);
        }
    }
    Ok(statuses)
}

/// A part of a list of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PageAnswer {
    /// The tasks.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::TaskRecord>))]
    pub tasks: Vec<Task>,
    /// The `cursor` of the next part, if there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<TaskPage> for PageAnswer {
    fn from(page: TaskPage) -> Self {
        Self {
            tasks: page.tasks,
            next: page.next,
        }
    }
}

impl From<PageAnswer> for TaskPage {
    fn from(page: PageAnswer) -> Self {
        Self {
            tasks: page.tasks,
            next: page.next,
        }
    }
}

/// How many versions to show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct VersionsQuery {
    /// The newest so many; 100, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
}

/// One stored version of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionAnswer {
    /// The store's name for the version.
    pub version: String,
    /// When it was written, by the store's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub stored_at: Timestamp,
    /// The task as it was; nothing, for a deletion or for bytes that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::TaskRecord>))]
    pub task: Option<Task>,
}

/// The stored versions of a task, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionsAnswer {
    /// The versions.
    pub versions: Vec<VersionAnswer>,
}

impl From<Vec<VersionedTask>> for VersionsAnswer {
    fn from(versions: Vec<VersionedTask>) -> Self {
        let versions = versions.into_iter().map(|version| VersionAnswer {
            version: version.version,
            stored_at: version.stored_at,
            task: version.task,
        });
        Self {
            versions: versions.collect(),
        }
    }
}

impl From<VersionsAnswer> for Vec<VersionedTask> {
    fn from(answer: VersionsAnswer) -> Self {
        let versions = answer.versions.into_iter().map(|version| VersionedTask {
            version: version.version,
            stored_at: version.stored_at,
            task: version.task,
        });
        versions.collect()
    }
}

/// How many tasks there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatsAnswer {
    /// By queue.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, QueueStatsAnswer>))]
    pub queues: BTreeMap<QueueName, QueueStatsAnswer>,
    /// Whether only a part of the tasks was looked at, so that the true numbers are larger.
    pub partial: bool,
}

/// How many tasks there are in one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueStatsAnswer {
    /// By status.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, u64>))]
    pub statuses: BTreeMap<Status, u64>,
    /// By type.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, u64>))]
    pub types: BTreeMap<TaskType, u64>,
    /// By type and status.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, std::collections::HashMap<String, u64>>))]
    pub types_by_status: BTreeMap<TaskType, BTreeMap<Status, u64>>,
    /// When the oldest of the pending tasks that are due was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub oldest_due: Option<Timestamp>,
    /// Whether claims pass it by.
    pub paused: bool,
}

impl From<Stats> for StatsAnswer {
    fn from(stats: Stats) -> Self {
        let queues = stats.queues.into_iter().map(|(name, queue)| {
            let answer = QueueStatsAnswer {
                statuses: queue.statuses,
                types: queue.types,
                types_by_status: queue.types_by_status,
                oldest_due: queue.oldest_due,
                paused: queue.paused,
            };
            (name, answer)
        });
        Self {
            queues: queues.collect(),
            partial: stats.partial,
        }
    }
}

impl From<StatsAnswer> for Stats {
    fn from(answer: StatsAnswer) -> Self {
        let queues = answer.queues.into_iter().map(|(name, queue)| {
            let stats = QueueStats {
                statuses: queue.statuses,
                types: queue.types,
                types_by_status: queue.types_by_status,
                oldest_due: queue.oldest_due,
                paused: queue.paused,
            };
            (name, stats)
        });
        Self {
            queues: queues.collect(),
            partial: answer.partial,
        }
    }
}

/// Who answers, and what the caller may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Info {
    /// Always `qo`.
    pub service: String,
    /// The server's version.
    pub version: String,
    /// The queue's time.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub now: Timestamp,
    /// What the caller's token allows; everything, where the server has no tokens.
    pub scopes: Vec<String>,
    /// The longest time that a claim waits.
    pub wait_max_ms: u64,
    /// The largest body that is taken.
    pub body_max_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_come_back_as_they_were() {
        let filter = TaskFilter {
            statuses: vec![Status::Failed, Status::Archived],
            queue: Some("q".parse().unwrap()),
            task_type: Some("t".parse().unwrap()),
            tag: Some("a b&c".parse().unwrap()),
            shard: Some("f".parse().unwrap()),
            since: Some(Timestamp::from_millis(1_763_238_840_123)),
        };
        let query = ListQuery::new(&filter, Some("c"), 5_000);
        assert_eq!(query.filter().unwrap(), filter);
        assert_eq!(query.limit().unwrap(), PAGE_MAX);
        assert_eq!(query.pairs().len(), 8);
        assert_eq!(
            ListQuery::default().filter().unwrap(),
            TaskFilter::default()
        );
    }

    #[test]
    fn unknown_statuses_and_limits_are_refused() {
        let query = |status: &str, limit| ListQuery {
            status: Some(status.to_owned()),
            limit: Some(limit),
            ..ListQuery::default()
        };
        for status in ["", "done", "failed,", "Failed"] {
            assert!(query(status, 1).filter().is_err(), "{status}");
        }
        for limit in [0, PAGE_MAX + 1] {
            assert!(query("failed", limit).limit().is_err());
        }
    }
}
