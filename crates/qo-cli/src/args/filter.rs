//! Which tasks are meant: by their ids, or by what they have in common.

use clap::Args;
use qo::{QueueName, Shard, Status, Tag, TaskFilter, TaskId, TaskType, Timestamp};

use super::values::{self, Since};

/// What tasks have in common. Everything that is given must hold.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which tasks")]
pub struct FilterArgs {
    /// Only tasks in one of these statuses: pending, running, completed, failed, cancelled, archived
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
    /// Only tasks in this part of the store, 0 to f: the first digit of the id
    #[arg(long, value_name = "0-f")]
    pub shard: Option<Shard>,
    /// Only tasks submitted since then: a time, a day, or how long ago (2026-01-31, 2h)
    #[arg(long, value_name = "WHEN", value_parser = values::since)]
    pub since: Option<Since>,
}

impl FilterArgs {
    /// The filter, as seen at `now`.
    pub fn to_filter(&self, now: Timestamp) -> TaskFilter {
        TaskFilter {
            statuses: self.status.clone(),
            queue: self.queue.clone(),
            task_type: self.task_type.clone(),
            tag: self.tag.clone(),
            shard: self.shard,
            since: self.since.map(|since| since.resolve(now)),
        }
    }

    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.status.is_empty()
            && self.queue.is_none()
            && self.task_type.is_none()
            && self.tag.is_none()
            && self.shard.is_none()
            && self.since.is_none()
    }
}

/// Tasks to do something with.
#[derive(Debug, Clone, Default, Args)]
pub struct BulkArgs {
    /// The tasks
    #[arg(value_name = "ID")]
    pub ids: Vec<TaskId>,
    /// Do not ask before many tasks are changed
    #[arg(long, short)]
    pub yes: bool,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// What they have in common, instead of ids.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// All tasks that this command can do something with
    #[arg(long, conflicts_with = "ids", help_heading = "Which tasks")]
    pub all: bool,
}
