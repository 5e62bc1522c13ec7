//! Sending responses when a group is durable, or errors when it cannot be.

use std::time::Duration;

use qo_core::Action;
use qo_engine::EngineError;
use qo_store::StoreError;

use super::{CommitLoop, WrittenGroup};
use crate::journal::Journal;
use crate::message::{Call, Message, QueuedMessage};

impl<J: Journal> CommitLoop<J> {
    /// Refuses claims that have waited long enough while the store did not respond.
    pub(super) fn refuse_overdue(&mut self, error: &EngineError) {
        let at = self.applier.runtime.monotonic();
        for call in std::mem::take(&mut self.waiting) {
            if call.request.until > at {
                self.waiting.push_back(call);
            } else {
                call.refuse(error);
            }
        }
    }

    /// Sends the responses of a group whose write has finished, or its error.
    pub(super) fn finish_group(
        &mut self,
        (members, result): WrittenGroup,
    ) -> Result<(), EngineError> {
        match result {
            Ok(()) => {
                self.deliver(members);
                Ok(())
            }
            Err(error) => {
                refuse_all(members, &error);
                Err(error)
            }
        }
    }

    /// Sends the responses of a durable group. Tasks whose claimer has gone are released, so that another worker gets them.
    pub(super) fn deliver(&mut self, members: Vec<QueuedMessage>) {
        for queued in members {
            let unclaimed = queued.message.deliver().into_iter();
            let releases = unclaimed.filter_map(|task| {
                let release = Action::Release {
                    lease: task.lease_id?,
                };
                let call = Call::without_caller((task.id, release));
                Some(Message::Act(call).into())
            });
            self.own_messages.extend(releases);
        }
    }
}

/// Takes the messages of a batch that came before the first `Close`. The rest is refused when the loop ends.
pub(super) fn take_until_close(
    batch: &mut Vec<QueuedMessage>,
    closers: &mut Vec<Call<(), ()>>,
) -> Vec<QueuedMessage> {
    let is_close = |queued: &QueuedMessage| matches!(queued.message, Message::Close(_));
    let Some(first) = batch.iter().position(is_close) else {
        return std::mem::take(batch);
    };
    let rest = batch.split_off(first);
    let before = std::mem::take(batch);
    for QueuedMessage { message, absent } in rest {
        match message {
            Message::Close(call) => closers.push(call),
            message => batch.push(QueuedMessage { message, absent }),
        }
    }
    before
}

/// The error for a group whose own write may be durable although an earlier one failed.
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

pub(super) fn refuse_all(queued: impl IntoIterator<Item = QueuedMessage>, error: &EngineError) {
    for QueuedMessage { message, .. } in queued {
        message.refuse(error);
    }
}
