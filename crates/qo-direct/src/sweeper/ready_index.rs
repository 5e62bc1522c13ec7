//! Walks the ready index, one queue and type after another.
//!
//! Listing the whole index at once would depend on the order in which a store lists folders with names such as `a` and `a-b`. The
//! order differs between stores, so the walk could miss entries or be rejected. Within a queue and type all parts of a key have a
//! fixed width, and the order is the same in all stores.

use std::str::FromStr;

use qo_core::keys::{READY_PREFIX, ready_prefix};
use qo_core::{QueueName, TaskType};
use qo_engine::EngineError;
use qo_store::client::Page;

use super::super::DirectEngine;

type QueueAndType = (QueueName, TaskType);

/// The position of the walk.
#[derive(Debug, PartialEq, Eq)]
enum ReadyCursor<'a> {
    /// After this key.
    Within(QueueAndType, &'a str),
    /// After all entries of this queue and type.
    After(QueueAndType),
}

impl<'a> ReadyCursor<'a> {
    /// Parses the stored cursor: a key, or the prefix of a queue and type that is done.
    fn parse(after: &'a str) -> Option<Self> {
        let mut parts = after.splitn(4, '/').skip(1);
        let list = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(match parts.next() {
            Some(_) => Self::Within(list, after),
            None => Self::After(list),
        })
    }
}

impl DirectEngine {
    /// The next page of the ready index after the cursor; `None` at the end.
    pub(super) async fn ready_page(
        &self,
        after: Option<&str>,
        page_size: usize,
    ) -> Result<Option<Page>, EngineError> {
        let (list, after) = match after.and_then(ReadyCursor::parse) {
            Some(ReadyCursor::Within(list, key)) => (list, Some(key)),
            Some(ReadyCursor::After(list)) => match self.next_ready_list(Some(list)).await? {
                Some(list) => (list, None),
                None => return Ok(None),
            },
            None => match self.next_ready_list(None).await? {
                Some(list) => (list, None),
                None => return Ok(None),
            },
        };
        let prefix = ready_prefix(&list.0, &list.1);
        let mut page = self.client().page(&prefix, after, page_size).await?;
        page.next.get_or_insert(prefix);
        Ok(Some(page))
    }

    /// The queue and type that follows `current` by name; the first one if `current` is absent.
    async fn next_ready_list(
        &self,
        current: Option<QueueAndType>,
    ) -> Result<Option<QueueAndType>, EngineError> {
        if let Some((queue, task_type)) = &current {
            let types = self.names_in(&format!("{READY_PREFIX}/{queue}")).await?;
            if let Some(next) = types.into_iter().find(|name| name > task_type) {
                return Ok(Some((queue.clone(), next)));
            }
        }
        let last = current.map(|(queue, _)| queue);
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
    fn a_cursor_is_a_key_or_a_finished_prefix() {
        let list: QueueAndType = ("q".parse().unwrap(), "t".parse().unwrap());
        assert_eq!(
            ReadyCursor::parse("ready/q/t"),
            Some(ReadyCursor::After(list.clone()))
        );
        let key = "ready/q/t/5/001763238840123/550e8400-e29b-41d4-a716-446655440000";
        assert_eq!(
            ReadyCursor::parse(key),
            Some(ReadyCursor::Within(list, key))
        );
        for bad in ["", "ready", "ready/q", "ready/../t"] {
            assert_eq!(ReadyCursor::parse(bad), None, "{bad}");
        }
    }
}
