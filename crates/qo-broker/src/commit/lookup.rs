//! Wishes that wait until something beyond the state was looked up.

use futures_util::{FutureExt, StreamExt};
use qo_engine::EngineError;

use super::CommitLoop;
use super::landing::refuse_all;
use crate::journal::{Found, Journal, Want};
use crate::message::Entry;

impl<J: Journal> CommitLoop<J> {
    pub(super) fn park(&mut self, want: Want, entry: Entry) {
        let waiters = self.parked.entry(want.clone()).or_default();
        waiters.push(entry);
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
    ) -> Vec<Entry> {
        let mut entries = self.unpark(want, found);
        while entries.len() < self.group_max
            && let Some(Some((want, found))) = self.fetches.next().now_or_never()
        {
            entries.extend(self.unpark(&want, found));
        }
        entries
    }

    /// Takes in what was looked up, and returns those who waited for it.
    pub(super) fn unpark(&mut self, want: &Want, found: Result<Found, EngineError>) -> Vec<Entry> {
        let mut entries = self.parked.remove(want).unwrap_or_default();
        match (found, want) {
            (Err(error), _) => {
                refuse_all(entries, &error);
                return Vec::new();
            }
            (Ok(Found::Task(task)), _) => {
                self.journal.took_in(&task);
                self.space.state.load(*task);
            }
            (Ok(Found::Holder(id)), _) => {
                if self.space.state.task(id).is_none() {
                    for mut entry in entries {
                        entry.absent.holder = Some(id);
                        self.park(Want::Task(id), entry);
                    }
                    return Vec::new();
                }
            }
            (Ok(Found::Nothing), Want::Key(_)) => {
                for entry in &mut entries {
                    entry.absent.key = true;
                }
            }
            (Ok(Found::Nothing), Want::Task(id)) => {
                for entry in &mut entries {
                    entry.absent.id |= entry.ask.task_id() == Some(*id);
                    // Who came by way of a key now knows that its task is gone.
                    entry.absent.key |= entry.absent.holder == Some(*id);
                }
            }
        }
        entries
    }
}
