//! Pages, counts and workers of all partitions.
//!
//! A list in any order shows the tasks of one partition after the other. Its cursor is the number of the partition and the cursor within it,
//! separated by a full stop: `2.` begins the third partition. A list of the newest tasks asks all partitions for the same place, and merges
//! their pages up to the place that all of them have reached.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use qo_core::WorkerId;

use super::PartitionedEngine;
use crate::api::{QueueStats, Stats, TaskOrder, TaskPage, TaskQuery, WorkerInfo, invalid_cursor};
use crate::error::EngineError;

/// The most tasks in one page.
const LIMIT_MAX: usize = 1_000;

/// A place in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cursor {
    partition: usize,
    /// The cursor within the partition; its beginning if absent.
    within: Option<String>,
}

impl Cursor {
    fn parse(text: Option<&str>, partitions: usize) -> Result<Self, EngineError> {
        let Some(text) = text else {
            return Ok(Self {
                partition: 0,
                within: None,
            });
        };
        let parsed = text.split_once('.').and_then(|(partition, within)| {
            let is_number = !partition.is_empty() && partition.bytes().all(|b| b.is_ascii_digit());
            let partition = is_number.then(|| partition.parse().ok()).flatten()?;
            let within = Some(within.to_owned()).filter(|within| !within.is_empty());
            (partition < partitions).then_some(Self { partition, within })
        });
        parsed.ok_or_else(invalid_cursor)
    }

    fn text(&self) -> String {
        format!(
            "{}.{}",
            self.partition,
            self.within.as_deref().unwrap_or("")
        )
    }
}

impl PartitionedEngine {
    pub(super) async fn page(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        let limit = query.limit.clamp(1, LIMIT_MAX);
        if query.filter.order == TaskOrder::Newest {
            return self.newest(TaskQuery { limit, ..query }).await;
        }
        let mut cursor = Cursor::parse(query.cursor, self.partitions.len())?;
        let mut tasks = Vec::new();
        let mut examined = Some(0);
        loop {
            let engine = self.partition(cursor.partition);
            let rest = limit - tasks.len();
            let part = TaskQuery::first(query.filter, rest).at(cursor.within.as_deref());
            let page = engine.list(part).await?;
            examined = examined.zip(page.examined).map(|(sum, more)| sum + more);
            tasks.extend(page.tasks);
            if let Some(next) = page.next {
                // A page that is not full although there may be more has read as much as one request should.
                cursor.within = Some(next);
            } else {
                cursor = Cursor {
                    partition: cursor.partition + 1,
                    within: None,
                };
                if cursor.partition == self.partitions.len() {
                    return Ok(TaskPage {
                        tasks,
                        next: None,
                        examined,
                    });
                }
                if tasks.len() < limit {
                    continue;
                }
            }
            let next = Some(cursor.text());
            return Ok(TaskPage {
                tasks,
                next,
                examined,
            });
        }
    }

    /// The newest tasks of all partitions.
    async fn newest(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        let (order, limit) = (query.filter.order, query.limit);
        let lists = self.partitions.iter();
        let pages = try_join_all(lists.map(|engine| engine.list(query))).await?;
        let mut tasks = Vec::new();
        let mut reached = None;
        let examined = pages.iter().map(|page| page.examined).sum();
        for page in pages {
            tasks.extend(page.tasks);
            if let Some(next) = page.next {
                let place = order.parse_cursor(&next)?;
                let first = reached.filter(|first| order.compare(*first, place).is_lt());
                reached = Some(first.unwrap_or(place));
            }
        }
        tasks.sort_by(|one, other| order.compare(order.position_of(one), order.position_of(other)));
        if let Some(reached) = reached {
            tasks.retain(|task| order.compare(order.position_of(task), reached).is_le());
        }
        if tasks.len() > limit {
            tasks.truncate(limit);
            reached = tasks.last().map(|task| order.position_of(task));
        }
        Ok(TaskPage {
            tasks,
            next: reached.map(|place| order.cursor(place)),
            examined,
        })
    }

    /// The sum of the counts.
    pub(super) fn sum(parts: Vec<Stats>) -> Stats {
        let mut sum = Stats::default();
        for part in parts {
            sum.partial |= part.partial;
            sum.pauses.merge(part.pauses);
            for (name, queue) in part.queues {
                add(sum.queues.entry(name).or_default(), queue);
            }
        }
        sum
    }

    /// All workers, by id. A worker is registered in one partition.
    pub(super) async fn all_workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        let lists = self.partitions.iter().map(|engine| engine.workers());
        let mut workers: BTreeMap<WorkerId, WorkerInfo> = BTreeMap::new();
        for worker in try_join_all(lists).await?.into_iter().flatten() {
            let known = workers.get(&worker.worker_id);
            if known.is_none_or(|known| known.last_heartbeat < worker.last_heartbeat) {
                workers.insert(worker.worker_id.clone(), worker);
            }
        }
        Ok(workers.into_values().collect())
    }
}

fn add(sum: &mut QueueStats, part: QueueStats) {
    for (task_type, counts) in part.types_by_status {
        for (status, count) in counts {
            sum.add(&task_type, status, count);
        }
    }
    sum.oldest_due = sum.oldest_due.into_iter().chain(part.oldest_due).min();
    sum.oldest_claim = sum.oldest_claim.into_iter().chain(part.oldest_claim).min();
    sum.paused |= part.paused;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_others_are_rejected() {
        for (text, within) in [("0.", None), ("2.abc", Some("abc")), ("1.a.b", Some("a.b"))] {
            let cursor = Cursor::parse(Some(text), 3).unwrap();
            assert_eq!(cursor.within.as_deref(), within);
            assert_eq!(cursor.text(), text);
        }
        assert_eq!(Cursor::parse(None, 3).unwrap().text(), "0.");
        for bad in [
            "",
            "x",
            "3.",
            "-1.",
            "+1.",
            "1",
            ".",
            "99999999999999999999.",
            "../..",
        ] {
            let error = Cursor::parse(Some(bad), 3).unwrap_err().to_string();
            assert!(error.contains("cursor"), "{bad}: {error}");
        }
    }
}
