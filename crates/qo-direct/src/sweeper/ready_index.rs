//! Walks the ready index, one queue and type after another.
//!
//! A walk over all of it at once would depend on the order in which a store lists the folders of names such as `a` and `a-b`,
//! which differs, so that such a walk could miss some or be refused. Within a queue and a type all parts of a key have a
//! fixed width, and the order is the same everywhere.

use std::str::FromStr;

use qo_core::keys::{READY_PREFIX, ready_prefix};
use qo_core::{QueueName, TaskType};
use qo_engine::EngineError;
use qo_store::client::Page;

use super::super::DirectEngine;

type QueueAndType = (QueueName, TaskType);

/// Where the walk is.
#[derive(Debug, PartialEq, Eq)]
enum ReadyCursor<'a> {
    /// At this key.
    Within(QueueAndType, &'a str),
    /// Behind this queue and type.
    Behind(QueueAndType),
}

impl<'a> ReadyCursor<'a> {
    /// Reads what the cursor says: a key, or the prefix of a queue and type that is done.
    fn read(after: &'a str) -> Option<Self> {
        let mut parts = after.splitn(4, '/').skip(1);
        let lane = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(match parts.next() {
            Some(_) => Self::Within(lane, after),
            None => Self::Behind(lane),
        })
    }
}

impl DirectEngine {
    /// The next page of the ready index after the place that the cursor names; nothing, if that was all.
    pub(super) async fn ready_page(
        &self,
        after: Option<&str>,
        page_size: usize,
    ) -> Result<Option<Page>, EngineError> {
        let (lane, after) = match after.and_then(ReadyCursor::read) {
            Some(ReadyCursor::Within(lane, key)) => (lane, Some(key)),
            Some(ReadyCursor::Behind(lane)) => match self.lane_behind(Some(lane)).await? {
                Some(lane) => (lane, None),
                None => return Ok(None),
            },
            None => match self.lane_behind(None).await? {
                Some(lane) => (lane, None),
                None => return Ok(None),
            },
        };
        let prefix = ready_prefix(&lane.0, &lane.1);
        let mut page = self.client().page(&prefix, after, page_size).await?;
        page.next.get_or_insert(prefix);
        Ok(Some(page))
    }

    /// The first queue and type behind another one, by name.
    async fn lane_behind(
        &self,
        lane: Option<QueueAndType>,
    ) -> Result<Option<QueueAndType>, EngineError> {
        if let Some((queue, task_type)) = &lane {
            let types = self.names_in(&format!("{READY_PREFIX}/{queue}")).await?;
            if let Some(next) = types.into_iter().find(|name| name > task_type) {
                return Ok(Some((queue.clone(), next)));
            }
        }
        let last = lane.map(|(queue, _)| queue);
        for queue in self.names_in(READY_PREFIX).await? {
            if last.as_ref().is_some_and(|last| queue <= *last) {
                continue;
            }
            let types = self.names_in(&format!("{READY_PREFIX}/{queue}")).await?;
            if let Some(first) = types.into_iter().next() {
                return Ok(Some((queue, first)));
            }
        }
        Ok(None)
    }

    /// The valid names directly below a prefix, in order.
    async fn names_in<Name: FromStr + Ord>(&self, prefix: &str) -> Result<Vec<Name>, EngineError> {
        let folders = self.client().folders(prefix).await?;
        let mut names: Vec<Name> = folders
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_key_or_what_is_done() {
        let lane: QueueAndType = ("q".parse().unwrap(), "t".parse().unwrap());
        assert_eq!(
            ReadyCursor::read("ready/q/t"),
            Some(ReadyCursor::Behind(lane.clone()))
        );
        let key = "ready/q/t/5/001763238840123/550e8400-e29b-41d4-a716-446655440000";
        assert_eq!(ReadyCursor::read(key), Some(ReadyCursor::Within(lane, key)));
        for bad in ["", "ready", "ready/q", "ready/../t"] {
            assert_eq!(ReadyCursor::read(bad), None, "{bad}");
        }
    }
}
