//! Queries for tasks, queues and workers.

use std::collections::BTreeMap;

use qo_core::{QueueName, Shard, Status, Tag, Task, TaskType, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{
    InvalidSearch, NEWEST_CURSOR, SearchText, Stats, TaskFilter, TaskOrder, TaskPage, TaskQuery,
    VersionedTask,
};
use qo_engine::search::{InvalidTaskSearch, Search};
use qo_engine::sorted::{ColumnOrder, SortColumn};
use serde::{Deserialize, Serialize};

use super::{PAGE_MAX, PausesResponse};

#[cfg(feature = "openapi")]
use super::schema;

/// The default size of a page.
pub const PAGE_DEFAULT: usize = 100;

/// Which tasks to list, and where to start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ListQuery {
    /// Statuses, separated by commas; all but archived by default.
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
    /// In this shard: the first hexadecimal digit of the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::ShardDigit>))]
    pub shard: Option<Shard>,
    /// Submitted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::Time>))]
    pub since: Option<Timestamp>,
    /// Submitted before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::Time>))]
    pub until: Option<Timestamp>,
    /// With this text in its last error, or in its input if that has at most 64 KiB, in any case of letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 256))]
    pub text: Option<String>,
    /// That match this search: conditions such as `type:mail*,sms -queue:bulk status:due since:2h`, with `or` between alternatives. All other
    /// parameters must match, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 1024))]
    pub search: Option<String>,
    /// The order. `newest` by default; with a cursor, the order of the list that it belongs to. `newest` and `id` continue page by page. The
    /// others sort the newest 1,000 tasks that match, and return the first of them, without a next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<Sort>,
    /// The opposite order; not with `newest` and `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<bool>,
    /// Names of top-level fields of a task, separated by commas; the others are left out of the response. All by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        param(pattern = "^[a-z_]+(,[a-z_]+)*$", max_length = 1024)
    )]
    pub fields: Option<String>,
    /// Where to continue: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The most tasks to return; 100 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Sort {
    /// The task that was submitted last comes first.
    Newest,
    /// By id.
    Id,
    /// The task that changed last comes first.
    Changed,
    /// The task that ended last comes first.
    Finished,
    /// The task that is due first comes first.
    Due,
    /// By type.
    Type,
    /// By queue.
    Queue,
    /// By status, in the order of a task's life.
    Status,
    /// The task with the most attempts comes first.
    Attempts,
    /// The most urgent task comes first.
    Priority,
}

impl Sort {
    /// The column, if the order has no index.
    pub fn column(self) -> Option<SortColumn> {
        Some(match self {
            Self::Newest | Self::Id => return None,
            Self::Changed => SortColumn::Changed,
            Self::Finished => SortColumn::Finished,
            Self::Due => SortColumn::Due,
            Self::Type => SortColumn::Type,
            Self::Queue => SortColumn::Queue,
            Self::Status => SortColumn::Status,
            Self::Attempts => SortColumn::Attempts,
            Self::Priority => SortColumn::Priority,
        })
    }
}

impl ListQuery {
    /// The parameters of a query.
    pub fn new(query: TaskQuery<'_>) -> Self {
        let filter = query.filter;
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
            until: filter.until,
            // The newest first is the default, and servers of earlier versions refuse the parameter.
            sort: (filter.order == TaskOrder::Id).then_some(Sort::Id),
            reverse: None,
            text: filter.text.as_ref().map(|text| text.as_str().to_owned()),
            search: filter.search.as_ref().map(ToString::to_string),
            fields: None,
            cursor: query.cursor.map(str::to_owned),
            limit: Some(query.limit.clamp(1, PAGE_MAX)),
        }
    }

    /// The names and values of the query string.
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
            ("until", text(self.until.as_ref())),
            ("text", self.text.clone()),
            ("search", self.search.clone()),
            ("sort", self.sort.map(|_| "id".to_owned())),
            ("fields", self.fields.clone()),
            ("cursor", self.cursor.clone()),
            ("limit", text(self.limit.as_ref())),
        ];
        pairs
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// The filter. Ages in a search are relative to `now`.
    pub fn filter(&self, now: Timestamp) -> Result<TaskFilter, EngineError> {
        let statuses = match &self.status {
            None => Vec::new(),
            Some(text) => statuses_of(text.split(','))?,
        };
        let filter = TaskFilter {
            statuses,
            queue: self.queue.clone(),
            task_type: self.task_type.clone(),
            tag: self.tag.clone(),
            shard: self.shard,
            since: self.since,
            until: self.until,
            order: self.order(),
            text: self.text.as_deref().map(search_text).transpose()?,
            search: None,
        };
        with_search(filter, self.search.as_deref(), now)
    }

    /// The order by a column, if the list is sorted by one.
    pub fn column_order(&self) -> Result<Option<ColumnOrder>, EngineError> {
        let reverse = self.reverse.unwrap_or(false);
        let Some(column) = self.sort.and_then(Sort::column) else {
            if reverse {
                let text = "reverse needs a sort by a column, such as sort=due";
                return Err(EngineError::BadRequest(text.to_owned()));
            }
            return Ok(None);
        };
        if self.cursor.is_some() {
            let text = "a list that is sorted by a column has no pages, so it takes no cursor";
            return Err(EngineError::BadRequest(text.to_owned()));
        }
        Ok(Some(ColumnOrder { column, reverse }))
    }

    /// The order. A cursor of a list without a sort belongs to the order in which that list began: an earlier version listed by id.
    fn order(&self) -> TaskOrder {
        let is_newest = match (self.sort, &self.cursor) {
            (Some(sort), _) => sort != Sort::Id,
            (None, Some(cursor)) => cursor.starts_with(NEWEST_CURSOR),
            (None, None) => true,
        };
        if is_newest {
            TaskOrder::Newest
        } else {
            TaskOrder::Id
        }
    }

    /// The most tasks to return.
    pub fn limit(&self) -> Result<usize, EngineError> {
        match self.limit.unwrap_or(PAGE_DEFAULT) {
            limit @ 1..=PAGE_MAX => Ok(limit),
            _ => Err(EngineError::BadRequest(format!(
                "limit must be 1 to {PAGE_MAX}"
            ))),
        }
    }
}

/// The text to search for.
pub(super) fn search_text(text: &str) -> Result<SearchText, EngineError> {
    text.parse()
        .map_err(|error: InvalidSearch| EngineError::BadRequest(format!("text: {error}")))
}

/// The filter with a search.
pub(super) fn with_search(
    filter: TaskFilter,
    search: Option<&str>,
    now: Timestamp,
) -> Result<TaskFilter, EngineError> {
    let Some(text) = search else {
        return Ok(filter);
    };
    let search: Search = text
        .parse()
        .map_err(|error: InvalidTaskSearch| EngineError::BadRequest(format!("search: {error}")))?;
    Ok(filter.with_search(search.at(now)))
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

/// A page of a list of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PageResponse {
    /// The tasks.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::TaskRecord>))]
    pub tasks: Vec<Task>,
    /// The `cursor` of the next page, if there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// What was sorted, if the list is sorted by a column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sorted: Option<SortedAmong>,
    /// How many tasks the server read to find these. A search reads at most about 10,000 per page, and `next` continues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examined: Option<u64>,
}

/// What a list that is sorted by a column was sorted among.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SortedAmong {
    /// The number of tasks: the newest that match.
    pub among: usize,
    /// Whether these are all tasks that match.
    pub complete: bool,
}

impl From<TaskPage> for PageResponse {
    fn from(page: TaskPage) -> Self {
        Self {
            tasks: page.tasks,
            next: page.next,
            sorted: None,
            examined: page.examined,
        }
    }
}

impl From<PageResponse> for TaskPage {
    fn from(page: PageResponse) -> Self {
        Self {
            tasks: page.tasks,
            next: page.next,
            examined: page.examined,
        }
    }
}

/// How many versions to return.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct VersionsQuery {
    /// The number of newest versions to return; 100 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
}

/// One stored version of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionEntry {
    /// The store's id of the version.
    pub version: String,
    /// When it was written, by the store's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub stored_at: Timestamp,
    /// The task at that time. Absent for a deletion or an unreadable version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::TaskRecord>))]
    pub task: Option<Task>,
}

/// The stored versions of a task, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionsResponse {
    /// The versions.
    pub versions: Vec<VersionEntry>,
}

impl From<Vec<VersionedTask>> for VersionsResponse {
    fn from(versions: Vec<VersionedTask>) -> Self {
        let versions = versions.into_iter().map(|version| VersionEntry {
            version: version.version,
            stored_at: version.stored_at,
            task: version.task,
        });
        Self {
            versions: versions.collect(),
        }
    }
}

impl From<VersionsResponse> for Vec<VersionedTask> {
    fn from(response: VersionsResponse) -> Self {
        let versions = response.versions.into_iter().map(|version| VersionedTask {
            version: version.version,
            stored_at: version.stored_at,
            task: version.task,
        });
        versions.collect()
    }
}

/// Task counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatsResponse {
    /// By queue.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, QueueStatsEntry>))]
    pub queues: BTreeMap<QueueName, QueueStatsEntry>,
    /// Whether only some of the tasks were counted, so that the true numbers are larger.
    pub partial: bool,
    /// The paused queues and types.
    #[serde(default)]
    pub pauses: PausesResponse,
}

/// Task counts of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueStatsEntry {
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
    /// The due time of the oldest pending task that is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub oldest_due: Option<Timestamp>,
    /// When the oldest running attempt was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub oldest_claim: Option<Timestamp>,
    /// Whether the queue is paused, so that its tasks cannot be claimed.
    pub paused: bool,
}

impl From<Stats> for StatsResponse {
    fn from(stats: Stats) -> Self {
        let queues = stats.queues.into_iter().map(|(name, queue)| {
            let stats = QueueStatsEntry {
                statuses: queue.statuses,
                types: queue.types,
                types_by_status: queue.types_by_status,
                oldest_due: queue.oldest_due,
                oldest_claim: queue.oldest_claim,
                paused: queue.paused,
            };
            (name, stats)
        });
        Self {
            queues: queues.collect(),
            partial: stats.partial,
            pauses: stats.pauses.into(),
        }
    }
}

impl From<StatsResponse> for Stats {
    fn from(response: StatsResponse) -> Self {
        let mut stats = Self::default();
        stats.partial = response.partial;
        stats.pauses = response.pauses.into();
        for (name, queue) in response.queues {
            let counts = stats.queues.entry(name).or_default();
            counts.statuses = queue.statuses;
            counts.types = queue.types;
            counts.types_by_status = queue.types_by_status;
            counts.oldest_due = queue.oldest_due;
            counts.oldest_claim = queue.oldest_claim;
            counts.paused = queue.paused;
        }
        stats
    }
}

/// The server, and what the caller may do.
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
    /// The scopes of the caller's token; all scopes if the server has no tokens.
    pub scopes: Vec<String>,
    /// The longest wait of a claim.
    pub wait_max_ms: u64,
    /// The largest accepted body.
    pub body_max_bytes: u64,
    /// Whether the server is a node of a cluster.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub cluster: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_round_trip() {
        let filter = TaskFilter {
            statuses: vec![Status::Failed, Status::Archived],
            queue: Some("q".parse().unwrap()),
            task_type: Some("t".parse().unwrap()),
            tag: Some("a b&c".parse().unwrap()),
            shard: Some("f".parse().unwrap()),
            since: Some(Timestamp::from_millis(1_763_238_840_123)),
            until: Some(Timestamp::from_millis(1_763_238_850_456)),
            order: TaskOrder::Id,
            text: Some("no route".parse().unwrap()),
            search: None,
        };
        let search: Search = "worker:w-* or -queue:bulk since:2h".parse().unwrap();
        let now = Timestamp::from_millis(1_763_238_860_000);
        let filter = filter.with_search(search.at(now));
        let later = now.plus_millis(5_000);
        let query = ListQuery::new(TaskQuery::first(&filter, 5_000).at(Some("c")));
        let read = query.filter(later).unwrap();
        assert_eq!(
            read.search.as_ref().map(ToString::to_string),
            filter.search.as_ref().map(ToString::to_string),
            "an age is the same on the next page"
        );
        let search = filter.search.clone();
        assert_eq!(TaskFilter { search, ..read }, filter);
        assert_eq!(query.limit().unwrap(), PAGE_MAX);
        assert_eq!(query.pairs().len(), 12);
        let newest = TaskFilter {
            order: TaskOrder::Newest,
            ..TaskFilter::default()
        };
        assert_eq!(ListQuery::default().filter(now).unwrap(), newest);
        let query = ListQuery::new(TaskQuery::first(&newest, 1));
        assert_eq!(query.filter(now).unwrap(), newest);
        assert_eq!(query.pairs().len(), 1);
    }

    #[test]
    fn a_cursor_keeps_the_order_of_its_list() {
        let order = |cursor: &str| {
            let query = ListQuery {
                cursor: Some(cursor.to_owned()),
                ..ListQuery::default()
            };
            query.filter(Timestamp::MIN).unwrap().order
        };
        assert_eq!(order("newest-1-2"), TaskOrder::Newest);
        assert_eq!(order("550e8400-e29b-41d4-a716-446655440000"), TaskOrder::Id);
        assert_eq!(order(""), TaskOrder::Id);
    }

    #[test]
    fn unknown_statuses_and_limits_are_rejected() {
        let query = |status: &str, limit| ListQuery {
            status: Some(status.to_owned()),
            limit: Some(limit),
            ..ListQuery::default()
        };
        for status in ["", "done", "failed,", "Failed"] {
            assert!(query(status, 1).filter(Timestamp::MIN).is_err(), "{status}");
        }
        for limit in [0, PAGE_MAX + 1] {
            assert!(query("failed", limit).limit().is_err());
        }
    }
}
