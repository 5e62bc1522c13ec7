//! What callers are told when their group has landed, or cannot.

use std::time::Duration;

use qo_core::Action;
use qo_engine::EngineError;
use qo_store::StoreError;

use super::{CommitLoop, Landed, Member};
use crate::journal::Journal;
use crate::message::{Answer, Ask, Entry};

impl<J: Journal> CommitLoop<J> {
    /// Tells claims that have waited long enough that the store does not answer.
    pub(super) fn refuse_overdue(&mut self, error: &EngineError) {
        let at = self.space.runtime.monotonic();
        for entry in std::mem::take(&mut self.waiting) {
            match &entry.ask {
                Ask::Claim(wish) if wish.until > at => self.waiting.push_back(entry),
                _ => entry.refuse(error),
            }
        }
    }

    pub(super) fn land(&mut self, (members, result): Landed) -> Result<(), EngineError> {
        match result {
            Ok(()) => {
                self.deliver(members);
                Ok(())
            }
            Err(error) => {
                refuse_all(members.into_iter().map(|(entry, _)| entry), &error);
                Err(error)
            }
        }
    }

    pub(super) fn deliver(&mut self, members: Vec<Member>) {
        for (entry, answer) in members {
            if let Err(Answer::Tasks(Ok(tasks))) = entry.answer(answer) {
                // Whoever wanted this work has gone, so that somebody else may have it.
                let releases = tasks.into_iter().filter_map(|task| {
                    let (id, lease) = (task.id, task.lease_id?);
                    let action = Action::Release { lease };
                    Some(Entry::unasked(Ask::Act { id, action }))
                });
                self.own.extend(releases);
            }
        }
    }
}

/// Takes the wishes of a batch that came before the first wish to close. What is left is refused when the loop ends.
pub(super) fn take_until_close(batch: &mut Vec<Entry>, closers: &mut Vec<Entry>) -> Vec<Entry> {
    let is_close = |entry: &Entry| matches!(entry.ask, Ask::Close);
    let Some(first) = batch.iter().position(is_close) else {
        return std::mem::take(batch);
    };
    let rest = batch.split_off(first);
    let entries = std::mem::take(batch);
    for entry in rest {
        if is_close(&entry) {
            closers.push(entry);
        } else {
            batch.push(entry);
        }
    }
    entries
}

/// What those are told whose own writes may have become durable when another was not.
pub(super) fn in_doubt(error: &EngineError) -> EngineError {
    match error {
        EngineError::NotLeader => EngineError::NotLeader,
        error => EngineError::Store(StoreError::Unavailable {
            key: "the queue".to_owned(),
            detail: error.to_string(),
            attempts: 1,
            elapsed: Duration::ZERO,
            in_doubt: true,
        }),
    }
}

/// Whether an answer only says that there is nothing to claim.
pub(super) fn tells_of_nothing(answer: &Answer) -> bool {
    matches!(answer, Answer::Tasks(Ok(tasks)) if tasks.is_empty())
}

pub(super) fn refuse_all(entries: impl IntoIterator<Item = Entry>, error: &EngineError) {
    for entry in entries {
        entry.refuse(error);
    }
}
