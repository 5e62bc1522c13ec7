//! Messages that wait for a lookup in the journal.

use futures_util::{FutureExt, StreamExt};
use qo_engine::EngineError;

use super::CommitLoop;
use super::responses::refuse_all;
use crate::journal::{Journal, LookedUp, Lookup};
use crate::message::QueuedMessage;

/// The number of a lookup, and what it found.
pub(super) type LookupResult = (u64, Result<LookedUp, EngineError>);

impl<J: Journal> CommitLoop<J> {
    pub(super) fn park(&mut self, lookup: Lookup, message: QueuedMessage) {
        if let Some(number) = self.parked.add(lookup.clone(), message) {
            let found = self.journal.look_up(lookup);
            self.lookups
                .push(Box::pin(async move { (number, found.await) }));
        }
    }

    /// Processes a finished lookup and all others that have finished by now, so that many lookups share one write. Returns the messages
    /// that waited for them. They are applied before anything that was found can leave the state again.
    pub(super) fn unpark_finished(&mut self, result: LookupResult) -> Vec<QueuedMessage> {
        let mut queued = self.unpark(result);
        while queued.len() < self.group_max
            && let Some(Some(result)) = self.lookups.next().now_or_never()
        {
            queued.extend(self.unpark(result));
        }
        queued
    }

    fn unpark(&mut self, (number, found): LookupResult) -> Vec<QueuedMessage> {
        let (queued, is_outdated) = self.parked.finish(number);
        let found = match found {
            Err(error) => {
                refuse_all(queued, &error);
                return Vec::new();
            }
            // The messages are not marked, so they are looked up again, unless the state holds what they need by now.
            Ok(_) if is_outdated => return queued,
            Ok(found) => found,
        };
        for task in found.tasks {
            if self.applier.state.task(task.id).is_none() {
                self.journal.task_loaded(&task);
                self.applier.state.load(task);
            }
        }
        let (mut readable, mut refused) = (Vec::with_capacity(queued.len()), Vec::new());
        for mut message in queued {
            message.is_looked_up = true;
            match message.message.mark_unreadable(&found.unreadable) {
                None => readable.push(message),
                Some(error) => refused.push((message, error)),
            }
        }
        for (message, error) in refused {
            refuse_all(vec![message], &error);
        }
        readable
    }
}
