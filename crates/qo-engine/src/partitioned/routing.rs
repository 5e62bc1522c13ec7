//! The partition of a task, and splitting many tasks by partition.
//!
//! | submit with | partition | id |
//! | --- | --- | --- |
//! | nothing | of the id | generated |
//! | an id | of the id | the given one |
//! | an idempotency key | of the key | generated, with the route of the key |
//! | an ordering key | of the key | generated, with the route of the key |
//! | an id and a key | of both | the given one, if its partition is also the key's; otherwise the submit is refused |
//! | both keys | of both | generated, if both keys lead to one partition; otherwise the submit is refused |
//!
//! The line with an id concerns only ids that the caller made up: clients that generate an id for a task with a key give it the key's
//! route. To accept any id, a key and an id would have to be checked in two partitions, which is no longer one atomic step. The same
//! holds for two keys.

use futures_util::future::{BoxFuture, join_all};
use qo_core::{Route, TaskId};
use qo_store::runtime::RuntimeExt;

use super::PartitionedEngine;
use crate::api::SubmitRequest;
use crate::engine::Engine;
use crate::error::EngineError;

impl PartitionedEngine {
    /// The partition of a task.
    pub fn partition_of(&self, id: TaskId) -> usize {
        id.route().partition(self.partitions.len())
    }

    /// Gives a submit its id, and returns its partition.
    pub(super) fn route(&self, request: &mut SubmitRequest) -> Result<usize, EngineError> {
        let route = request.route();
        let id = match (request.id, route) {
            (Some(id), _) => id,
            (None, None) => self.runtime.new_task_id(),
            (None, Some(route)) => self.runtime.new_task_id().with_route(route),
        };
        let partition = self.partition_of(id);
        let is_elsewhere = |route: Route| route.partition(self.partitions.len()) != partition;
        if request
            .scoped_key()
            .is_some_and(|key| is_elsewhere(key.route()))
        {
            return Err(EngineError::BadRequest(format!(
                "the idempotency key and the id {id}, or the ordering key, belong to different partitions of this queue; leave out the id, and do not give both keys"
            )));
        }
        if route.is_some_and(is_elsewhere) {
            return Err(EngineError::BadRequest(format!(
                "the id {id} and the key belong to different partitions of this queue; leave out the id, and the task gets one that matches its key"
            )));
        }
        request.id = Some(id);
        Ok(partition)
    }

    /// Calls each partition once with its items, concurrently, and returns the results in the order of the items. Items without a
    /// partition keep their error.
    pub(super) async fn split<'a, I, O>(
        &'a self,
        items: Vec<Result<(usize, I), EngineError>>,
        call: impl Fn(&'a dyn Engine, Vec<I>) -> BoxFuture<'a, Vec<Result<O, EngineError>>>,
    ) -> Vec<Result<O, EngineError>> {
        let mut results: Vec<Option<Result<O, EngineError>>> = Vec::with_capacity(items.len());
        let mut parts: Vec<(Vec<usize>, Vec<I>)> = Vec::new();
        parts.resize_with(self.partitions.len(), Default::default);
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Err(error) => results.push(Some(Err(error))),
                Ok((partition, item)) => {
                    results.push(None);
                    if let Some((indexes, items)) = parts.get_mut(partition) {
                        indexes.push(index);
                        items.push(item);
                    }
                }
            }
        }
        let calls = parts
            .into_iter()
            .enumerate()
            .filter(|(_, (indexes, _))| !indexes.is_empty())
            .map(|(partition, (indexes, items))| {
                let replies = call(self.partition(partition), items);
                async move { (indexes, replies.await) }
            });
        for (indexes, replies) in join_all(calls).await {
            for (index, reply) in indexes.into_iter().zip(replies) {
                if let Some(result) = results.get_mut(index) {
                    *result = Some(reply);
                }
            }
        }
        // An engine that returns fewer results than it got items has lost them.
        results
            .into_iter()
            .map(|result| result.unwrap_or(Err(EngineError::Closed)))
            .collect()
    }
}
