//! Sending responses when a group is durable, or errors when it cannot be.

use std::num::NonZeroU64;
use std::time::Duration;

use qo_core::Action;
use qo_engine::EngineError;
use qo_store::StoreError;

use super::{CommitLoop, WrittenGroup};
use crate::journal::Journal;
use crate::message::{Call, Message, QueuedMessage};

impl<J: Journal> CommitLoop<J> {
    /// Sends the responses of a group whose write has finished, or its error.
    pub(super) fn finish_group(&mut self, written: WrittenGroup) -> Result<(), EngineError> {
        self.tasks_in_flight -= written.tasks;
        self.bytes_in_flight -= written.bytes;
        match written.result {
            Ok(index) => {
                self.deliver(written.members, index);
                Ok(())
            }
            Err(error) => {
                refuse_all(written.members, &error);
                Err(error)
            }
        }
    }

    /// Sends the responses of a durable group, claims with the index of the group. Tasks whose claimer has gone are released, so that
    /// another worker gets them.
    pub(super) fn deliver(&mut self, members: Vec<QueuedMessage>, index: Option<NonZeroU64>) {
        for queued in members {
            let unclaimed = queued.message.deliver(index).into_iter();
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

/// If a batch contains a `Close`, leaves in it what the loop refuses when it ends: what came after the `Close`, and all claims, because
/// nobody could work on their tasks. Returns the rest.
pub(super) fn take_until_close(
    batch: &mut Vec<QueuedMessage>,
    closers: &mut Vec<Call<(), ()>>,
) -> Vec<QueuedMessage> {
    let is_close = |queued: &QueuedMessage| matches!(queued.message, Message::Close(_));
    let Some(first) = batch.iter().position(is_close) else {
        return std::mem::take(batch);
    };
    let mut before = Vec::with_capacity(first);
    for (index, queued) in std::mem::take(batch).into_iter().enumerate() {
        match queued.message {
            Message::Close(call) => closers.push(call),
            Message::Claim(_) => batch.push(queued),
            _ if index < first => before.push(queued),
            _ => batch.push(queued),
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
