//! Messages that wait for a lookup in the journal.

use futures_util::{FutureExt, StreamExt};
use qo_engine::EngineError;

use super::CommitLoop;
use super::responses::refuse_all;
use crate::journal::{Journal, LookupKey, LookupResult};
use crate::message::QueuedMessage;

impl<J: Journal> CommitLoop<J> {
    pub(super) fn park(&mut self, key: LookupKey, message: QueuedMessage) {
        let waiters = self.parked.entry(key.clone()).or_default();
        waiters.push(message);
        // One lookup per key at a time: the result cannot change while messages wait for it.
        if waiters.len() == 1 {
            let lookup = self.journal.look_up(key.clone());
            self.lookups
                .push(Box::pin(async move { (key, lookup.await) }));
        }
    }

    /// Processes a finished lookup and all others that have finished by now, so that many lookups share one write.
    pub(super) fn unpark_finished(
        &mut self,
        key: &LookupKey,
        result: Result<LookupResult, EngineError>,
    ) -> Vec<QueuedMessage> {
        let mut queued = self.unpark(key, result);
        while queued.len() < self.group_max
            && let Some(Some((key, result))) = self.lookups.next().now_or_never()
        {
            queued.extend(self.unpark(&key, result));
        }
        queued
    }

    /// Processes the result of a lookup, and returns the messages that waited for it.
    fn unpark(
        &mut self,
        key: &LookupKey,
        result: Result<LookupResult, EngineError>,
    ) -> Vec<QueuedMessage> {
        let mut queued = self.parked.remove(key).unwrap_or_default();
        match (result, key) {
            (Err(error), _) => {
                refuse_all(queued, &error);
                return Vec::new();
            }
            (Ok(LookupResult::Task(task)), _) => {
                self.journal.task_loaded(&task);
                self.applier.state.load(*task);
            }
            (Ok(LookupResult::Holder(id)), _) => {
                if self.applier.state.task(id).is_none() {
                    for mut message in queued {
                        message.absent.holder = Some(id);
                        self.park(LookupKey::Task(id), message);
                    }
                    return Vec::new();
                }
            }
            (Ok(LookupResult::NotFound), LookupKey::Idempotency(_)) => {
                for message in &mut queued {
                    message.absent.key = true;
                }
            }
            (Ok(LookupResult::NotFound), LookupKey::Task(id)) => {
                for message in &mut queued {
                    message.absent.id |= message.message.task_id() == Some(*id);
                    // The task that held the idempotency key no longer exists.
                    message.absent.key |= message.absent.holder == Some(*id);
                }
            }
        }
        queued
    }
}
