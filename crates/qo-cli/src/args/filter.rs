//! Selection of tasks, by id or by filter.

use clap::Args;
use qo::{QueueName, Shard, Status, Tag, TaskFilter, TaskId, TaskType, Timestamp};

use super::values::{self, Since};

/// A filter. A task matches if it meets every condition given.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filter")]
pub struct FilterArgs {
    /// Only tasks with one of these statuses: pending, running, completed, failed, cancelled, archived
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = values::status)]
    pub status: Vec<Status>,
    /// Only tasks in this queue
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// Only tasks of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub task_type: Option<TaskType>,
    /// Only tasks with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<Tag>,
    /// Only tasks whose id starts with this hexadecimal digit
    #[arg(long, value_name = "0-f")]
    pub shard: Option<Shard>,
    /// Only tasks submitted since this time: a timestamp, a date or an age (2026-01-31, 2h)
    #[arg(long, value_name = "WHEN", value_parser = values::since)]
    pub since: Option<Since>,
    /// Only tasks submitted before this time: a timestamp, a date or an age
    #[arg(long, value_name = "WHEN", value_parser = values::since)]
    pub until: Option<Since>,
    /// Only tasks with this text, ignoring case, in the last error or in an input of up to 64 KiB
    #[arg(long, value_name = "TEXT")]
    pub text: Option<qo::SearchText>,
    /// Only tasks that match this search, such as 'type:mail*,sms -queue:bulk status:due since:2h'; `or` separates alternatives
    #[arg(long, value_name = "SEARCH", allow_hyphen_values = true, long_help = SEARCH_HELP)]
    pub search: Option<qo::Search>,
}

/// The search language in short.
const SEARCH_HELP: &str = "\
Only tasks that match this search. All conditions must hold; `or` separates alternatives:
  type:mail*,sms         one of these types; also queue:, tag: and worker:. A trailing * matches any ending
  -queue:bulk            not in this queue; also -type:, -tag:, -worker: and -status:
  status:failed,due      one of these statuses; pending tasks are due or scheduled
  since:2h until:5m      submitted within this time; also a date or a time
  text:\"no route\"        with this text in the last error or the input
  id:7f shard:7          whose id starts with these digits
An unknown field is an error.";

impl FilterArgs {
    /// Converts to the library's filter. Ages are relative to `now`.
    pub fn to_filter(&self, now: Timestamp) -> TaskFilter {
        let filter = TaskFilter {
            statuses: self.status.clone(),
            queue: self.queue.clone(),
            task_type: self.task_type.clone(),
            tag: self.tag.clone(),
            shard: self.shard,
            since: self.since.map(|since| since.resolve(now)),
            until: self.until.map(|until| until.resolve(now)),
            text: self.text.clone(),
            ..TaskFilter::default()
        };
        match &self.search {
            Some(search) => filter.with_search(search.clone().at(now)),
            None => filter,
        }
    }

    /// Whether no condition was given.
    pub fn is_empty(&self) -> bool {
        self.status.is_empty()
            && self.queue.is_none()
            && self.task_type.is_none()
            && self.tag.is_none()
            && self.shard.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && self.text.is_none()
            && self.search.is_none()
    }
}

/// Tasks to change, selected by ids or by a filter.
#[derive(Debug, Clone, Default, Args)]
pub struct BulkArgs {
    /// Task ids
    #[arg(value_name = "ID")]
    pub ids: Vec<TaskId>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// Only count the matching tasks; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// A filter, instead of ids.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Every task that this command applies to
    #[arg(long, conflicts_with = "ids", help_heading = "Filter")]
    pub all: bool,
}
