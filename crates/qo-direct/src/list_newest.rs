//! Lists the newest tasks first, as far as the keys of a bucket allow it.
//!
//! A bucket can only be listed in the order of its keys. The ids that qo generates contain the time of their creation, after the shard. So
//! the tasks of a span of time are sixteen ranges of keys, one for each shard, and a list goes back in time, span by span: from a
//! few minutes to years where nothing was submitted.
//!
//! An id that a caller chose has no such time. Most of them sort behind all times of this century, where the list shows them last, in the
//! order of the ids; a few sort among the others. So the order is exact for tasks with generated ids only. No task is left out.
//!
//! | bucket | requests of a page |
//! | --- | --- |
//! | up to 1,000 tasks | one LIST, and a GET for each task that is read |
//! | more | 16 LISTs for each span (one with a shard in the filter), and the same GETs |
//!
//! The cursor names the last key that was read, and the time at which the first page began: tasks that were submitted after it are shown
//! at the end, with those whose ids have no time.

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use qo_core::keys::{Key, TASKS_PREFIX, tasks_prefix};
use qo_core::{Shard, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{NEWEST_CURSOR, TaskFilter, TaskPage, TaskQuery, invalid_cursor};
use qo_store::client::PAGE_LIMIT_MAX;

use super::DirectEngine;
use super::list::page_of;

/// How many tasks are read for one page, so that a filter that matches few tasks still returns.
const READ_MAX: usize = 10_000;
/// The first span, and how much larger the next one is if there were few tasks in it.
const SPAN_FIRST_MS: u64 = 5 * 60 * 1_000;
const SPAN_GROWTH: u64 = 8;
/// A span with fewer tasks is followed by a larger one.
const SPAN_FEW: usize = 500;
/// How many spans one page looks at.
const SPANS_MAX: usize = 16;
/// Clocks of submitters may be ahead by this much.
const AHEAD_MS: u64 = 60 * 60 * 1_000;

/// Where a list continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CursorPosition {
    /// Going back in time: at the ids whose order is below this.
    Below(u128),
    /// Behind all times: at the ids whose order is above this.
    Above(u128),
}

/// The position of a list, and the order below which ids have times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    position: CursorPosition,
    start: u128,
}

impl Cursor {
    /// The beginning of a list.
    fn begin(now: Timestamp) -> Self {
        let start = TaskId::time_order_from(now.plus_millis(AHEAD_MS));
        Self {
            position: CursorPosition::Below(start),
            start,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(NEWEST_CURSOR)?;
        let (start, rest) = rest.split_once('-')?;
        let (direction, id) = rest.split_once('-')?;
        let start = Timestamp::from_millis(start.parse().ok()?);
        let order = id.parse::<TaskId>().ok()?.time_order();
        let position = match direction {
            "below" => CursorPosition::Below(order),
            "above" => CursorPosition::Above(order),
            _ => return None,
        };
        let start = TaskId::time_order_from(start);
        Some(Self { position, start })
    }

    fn text(self) -> String {
        let (direction, order) = match self.position {
            CursorPosition::Below(order) => ("below", order),
            CursorPosition::Above(order) => ("above", order),
        };
        let start = time_of(self.start).as_millis();
        let id = TaskId::at_time_order(order);
        format!("{NEWEST_CURSOR}{start}-{direction}-{id}")
    }
}

/// The time that the order of an id stands for.
fn time_of(order: u128) -> Timestamp {
    let millis = i64::try_from(order >> 84).unwrap_or(i64::MAX);
    Timestamp::from_millis(millis)
}

/// The tasks read so far.
struct Read {
    tasks: Vec<Task>,
    count: usize,
}

impl Read {
    fn page(self, next: Option<String>) -> TaskPage {
        page_of(self.tasks, next, self.count)
    }
}

impl DirectEngine {
    pub(super) async fn list_newest(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        let TaskQuery { filter, limit, .. } = query;
        let mut cursor = match query.cursor {
            None => Cursor::begin(self.client().now()),
            Some(text) => Cursor::parse(text).ok_or_else(invalid_cursor)?,
        };
        let mut read = Read {
            tasks: Vec::new(),
            count: 0,
        };
        if let Some(ids) = self.all_of_few(filter).await? {
            let orders = in_order(&ids, cursor);
            let reached = self.read_in_order(orders, filter, limit, &mut read).await?;
            let next = reached.map(|order| cursor.moved_to(order).text());
            return Ok(read.page(next));
        }
        let mut span_ms = SPAN_FIRST_MS;
        for _ in 0..SPANS_MAX {
            let (orders, next) = match cursor.position {
                CursorPosition::Below(end) => {
                    let from = time_of(end).minus_millis(span_ms);
                    let begin = TaskId::time_order_from(from);
                    let Some(orders) = self.span(filter, begin, end).await? else {
                        // There are too many to sort. A span of one millisecond is never split.
                        span_ms = (span_ms / SPAN_GROWTH).max(1);
                        continue;
                    };
                    if orders.len() < SPAN_FEW {
                        span_ms = span_ms.saturating_mul(SPAN_GROWTH);
                    }
                    let next = match begin {
                        0 => CursorPosition::Above(cursor.start.saturating_sub(1)),
                        begin => CursorPosition::Below(begin),
                    };
                    (orders, Some(next))
                }
                CursorPosition::Above(last) => {
                    let (orders, reached) = self.ascending(filter, last).await?;
                    (orders, reached.map(CursorPosition::Above))
                }
            };
            let reached = self.read_in_order(orders, filter, limit, &mut read).await?;
            if let Some(order) = reached {
                return Ok(read.page(Some(cursor.moved_to(order).text())));
            }
            match next {
                Some(position) => cursor.position = position,
                None => return Ok(read.page(None)),
            }
        }
        Ok(read.page(Some(cursor.text())))
    }

    /// The ids of all tasks, if one LIST returns them.
    async fn all_of_few(&self, filter: &TaskFilter) -> Result<Option<Vec<TaskId>>, EngineError> {
        let prefix = filter
            .shard
            .map_or_else(|| TASKS_PREFIX.to_owned(), tasks_prefix);
        let page = self.client().page(&prefix, None, PAGE_LIMIT_MAX).await?;
        if page.next.is_some() {
            return Ok(None);
        }
        let ids = page.entries.iter().filter_map(|entry| id_of(&entry.key));
        Ok(Some(ids.collect()))
    }

    /// The tasks from `begin` to before `end`, the newest first. `None` if a shard has more than one LIST returns, and the span is longer
    /// than a millisecond.
    async fn span(
        &self,
        filter: &TaskFilter,
        begin: u128,
        end: u128,
    ) -> Result<Option<Vec<u128>>, EngineError> {
        let is_short = time_of(end).minus_millis(1) <= time_of(begin);
        let lists = shards(filter).map(|shard| async move {
            let mut orders = Vec::new();
            let mut after = before_first(shard, begin);
            loop {
                let prefix = tasks_prefix(shard);
                let page = self
                    .client()
                    .page(&prefix, after.as_deref(), PAGE_LIMIT_MAX)
                    .await?;
                let found = page.entries.iter().filter_map(|entry| id_of(&entry.key));
                let found: Vec<_> = found.map(|id| id.time_order()).collect();
                let is_past = found.last().is_some_and(|last| *last >= end);
                orders.extend(
                    found
                        .into_iter()
                        .filter(|order| (begin..end).contains(order)),
                );
                if page.next.is_none() || is_past {
                    return Ok(Some(orders));
                }
                if !is_short {
                    return Ok(None);
                }
                after = page.next;
            }
        });
        let lists: Vec<Result<Option<Vec<u128>>, EngineError>> =
            futures_util::future::join_all(lists).await;
        let mut orders = Vec::new();
        for list in lists {
            match list? {
                Some(list) => orders.extend(list),
                None => return Ok(None),
            }
        }
        orders.sort_unstable_by(|one, other| other.cmp(one));
        Ok(Some(orders))
    }

    /// Some tasks after `last`, in ascending order, and the last order up to which they are complete, if there may be more.
    async fn ascending(
        &self,
        filter: &TaskFilter,
        last: u128,
    ) -> Result<(Vec<u128>, Option<u128>), EngineError> {
        let lists = shards(filter).map(|shard| async move {
            let after = before_first(shard, last.saturating_add(1));
            let prefix = tasks_prefix(shard);
            let client = self.client();
            client.page(&prefix, after.as_deref(), PAGE_LIMIT_MAX).await
        });
        let mut orders = Vec::new();
        let mut reached: Option<u128> = None;
        for page in try_join_all(lists).await? {
            let found = page.entries.iter().filter_map(|entry| id_of(&entry.key));
            let found: Vec<_> = found.map(|id| id.time_order()).collect();
            if page.next.is_some()
                && let Some(last) = found.last()
            {
                reached = Some(reached.map_or(*last, |reached| reached.min(*last)));
            }
            orders.extend(found.into_iter().filter(|order| *order > last));
        }
        orders.retain(|order| reached.is_none_or(|reached| *order <= reached));
        orders.sort_unstable();
        Ok((orders, reached))
    }

    /// Reads tasks in this order until the page is full, or enough were read. Returns the order of the last one, if so.
    async fn read_in_order(
        &self,
        orders: Vec<u128>,
        filter: &TaskFilter,
        limit: usize,
        read: &mut Read,
    ) -> Result<Option<u128>, EngineError> {
        let mut records = futures_util::stream::iter(orders)
            .map(|order| async move {
                let key = Key::Task(TaskId::at_time_order(order)).to_string();
                (order, self.read_listed(&key).await)
            })
            .buffered(self.config().concurrency.min(limit));
        while let Some((order, task)) = records.next().await {
            read.count += 1;
            if let Some(task) = task?.filter(|task| filter.matches(task)) {
                read.tasks.push(task);
            }
            if read.tasks.len() >= limit || read.count >= READ_MAX {
                return Ok(Some(order));
            }
        }
        Ok(None)
    }
}

impl Cursor {
    /// The cursor behind an id that was read.
    fn moved_to(self, order: u128) -> Self {
        let position = if order < self.start {
            CursorPosition::Below(order)
        } else {
            CursorPosition::Above(order)
        };
        Self { position, ..self }
    }
}

/// The ids from a position on, in the order of the list.
fn in_order(ids: &[TaskId], cursor: Cursor) -> Vec<u128> {
    let orders: Vec<u128> = ids.iter().map(TaskId::time_order).collect();
    let (below, above) = match cursor.position {
        CursorPosition::Below(end) => (end, Some(cursor.start)),
        CursorPosition::Above(last) => (0, last.checked_add(1)),
    };
    let mut timed: Vec<u128> = orders
        .iter()
        .copied()
        .filter(|order| *order < below)
        .collect();
    timed.sort_unstable_by(|one, other| other.cmp(one));
    let mut others: Vec<u128> = orders
        .into_iter()
        .filter(|order| above.is_some_and(|above| *order >= above))
        .collect();
    others.sort_unstable();
    timed.extend(others);
    timed
}

fn shards(filter: &TaskFilter) -> impl Iterator<Item = Shard> {
    let wanted = filter.shard;
    Shard::all().filter(move |shard| wanted.is_none_or(|wanted| wanted == *shard))
}

/// The key after which the first id of a shard with at least this order comes; `None` for the beginning of the shard.
fn before_first(shard: Shard, order: u128) -> Option<String> {
    let (rest, digit) = (order >> 4, order & 0xf);
    let index = u128::from(shard.index());
    // The lowest order of the shard that is not below: with the same rest, or the next one.
    let first = if index >= digit {
        rest
    } else {
        rest.checked_add(1)?
    };
    let last = first.checked_sub(1)?;
    let id = TaskId::at_time_order((last << 4) | index);
    Some(Key::Task(id).to_string())
}

fn id_of(key: &str) -> Option<TaskId> {
    match key.parse() {
        Ok(Key::Task(id)) => Some(id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip() {
        let now = Timestamp::from_millis(1_763_238_840_123);
        let begin = Cursor::begin(now);
        assert_eq!(Cursor::parse(&begin.text()), Some(begin));
        let id: TaskId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        for position in [
            CursorPosition::Below(id.time_order()),
            CursorPosition::Above(id.time_order()),
        ] {
            let cursor = Cursor { position, ..begin };
            assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
        }
        for bad in [
            "",
            "newest-",
            "newest-1-2",
            "newest-1-beside-550e8400-e29b-41d4-a716-446655440000",
        ] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_shard_begins_at_the_same_time() {
        let at = Timestamp::from_millis(1_763_238_840_123);
        for shard in Shard::all() {
            let random = u128::from(shard.index()) << 124;
            let first = TaskId::from_time(at, random);
            let before = before_first(shard, TaskId::time_order_from(at)).unwrap();
            assert!(before < Key::Task(first).to_string());
            let earlier = TaskId::from_time(at.minus_millis(1), random | (1 << 60));
            assert!(Key::Task(earlier).to_string() <= before);
        }
        let shard = Shard::all().next().unwrap();
        assert_eq!(before_first(shard, 0), None);
    }

    #[test]
    fn a_list_goes_back_in_time_and_ends_with_the_ids_without_times() {
        let now = Timestamp::from_millis(1_763_238_840_123);
        let old = TaskId::from_time(now.minus_millis(5), 1 << 124);
        let new = TaskId::from_time(now, 7 << 124);
        let chosen: TaskId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        let begin = Cursor::begin(now);
        let orders = in_order(&[chosen, old, new], begin);
        let expected = [new, old, chosen].map(|id| id.time_order());
        assert_eq!(orders, expected);
        for (index, order) in orders.iter().enumerate() {
            let rest = in_order(&[chosen, old, new], begin.moved_to(*order));
            assert_eq!(rest, expected[index + 1..]);
        }
    }
}
