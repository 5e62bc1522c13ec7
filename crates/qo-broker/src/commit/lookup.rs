//! Wishes that wait until something beyond the state was looked up.

use futures_util::{FutureExt, StreamExt};
use qo_engine::EngineError;

use super::CommitLoop;
use super::landing::refuse_all;
use crate::journal::{Found, Journal, Want};
use crate::message::QueuedMessage;

impl<J: Journal> CommitLoop<J> {
    pub(super) fn park(&mut self, want: Want, message: QueuedMessage) {
        let waiters = self.parked.entry(want.clone()).or_default();
        waiters.push(message);
        // Only one look at a time: as long as it goes on, nobody can change what is looked for.
        if waiters.len() == 1 {
            let fetch = self.journal.fetch(want.clone());
            self.fetches
                .push(Box::pin(async move { (want, fetch.await) }));
        }
    }

    /// Takes in what was looked up, with all else that was found by now, so that a crowd of looks shares one write.
    pub(super) fn unpark_landed(
        &mut self,
        want: &Want,
        found: Result<Found, EngineError>,
    ) -> Vec<QueuedMessage> {
        let mut queued = self.unpark(want, found);
        while queued.len() < self.group_max
            && let Some(Some((want, found))) = self.fetches.next().now_or_never()
        {
            queued.extend(self.unpark(&want, found));
        }
        queued
    }

    /// Takes in what was looked up, and returns those who waited for it.
    pub(super) fn unpark(
        &mut self,
        want: &Want,
        found: Result<Found, EngineError>,
    ) -> Vec<QueuedMessage> {
        let mut queued = self.parked.remove(want).unwrap_or_default();
        match (found, want) {
            (Err(error), _) => {
                refuse_all(queued, &error);
                return Vec::new();
            }
            (Ok(Found::Task(task)), _) => {
                self.journal.took_in(&task);
                self.space.state.load(*task);
            }
            (Ok(Found::Holder(id)), _) => {
                if self.space.state.task(id).is_none() {
                    for mut message in queued {
                        message.absent.holder = Some(id);
                        self.park(Want::Task(id), message);
                    }
                    return Vec::new();
                }
            }
            (Ok(Found::Nothing), Want::Key(_)) => {
                for message in &mut queued {
                    message.absent.key = true;
                }
            }
            (Ok(Found::Nothing), Want::Task(id)) => {
                for message in &mut queued {
                    message.absent.id |= message.message.task_id() == Some(*id);
                    // Who came by way of a key now knows that its task is gone.
                    message.absent.key |= message.absent.holder == Some(*id);
                }
            }
        }
        queued
    }
}
