//! Hands batches to the database beside the commit loop, in order.
//!
//! Taking a batch in costs the database about as much as making it cost the loop. So the loop goes on with the next group
//! meanwhile. There is one task that writes, and it writes in the order in which it was given: the database never sees a group
//! before the one that it was built upon.

use std::sync::Arc;

use qo_store::world::{BoxFuture, World};
use slatedb::{Db, WriteBatch, WriteHandle};
use tokio::sync::{mpsc, oneshot};

use super::error::from_slate;
use crate::error::EngineError;

type Taken = Result<WriteHandle, EngineError>;

/// Where batches are handed over. What waits there is bounded by the groups that the loop has on their way.
pub(super) struct Writer {
    batches: mpsc::UnboundedSender<(WriteBatch, oneshot::Sender<Taken>)>,
}

impl Writer {
    pub(super) fn start(db: Db, world: &Arc<dyn World>) -> Self {
        let (batches, mut handed_over) =
            mpsc::unbounded_channel::<(WriteBatch, oneshot::Sender<Taken>)>();
        world.spawn(Box::pin(async move {
            let mut over = None;
            while let Some((batch, taken)) = handed_over.recv().await {
                // What was built upon a batch that is not there must not be written either.
                let written = match &over {
                    Some(error) => Err(EngineError::clone(error)),
                    None => db.write(batch).await.map_err(|error| from_slate(&error)),
                };
                over = over.or_else(|| written.as_ref().err().cloned());
                // A loop that has gone need not be told.
                let _ = taken.send(written);
            }
        }));
        Self { batches }
    }

    /// Hands a batch over. What comes back resolves when the batch is durable.
    pub(super) fn write(&self, batch: WriteBatch) -> BoxFuture<Result<(), EngineError>> {
        let (taken, answer) = oneshot::channel();
        // If the writer has ended, the sender is dropped, and the answer tells.
        let _ = self.batches.send((batch, taken));
        Box::pin(async move {
            let handle = answer.await.unwrap_or(Err(EngineError::Closed))?;
            handle
                .await_durable()
                .await
                .map_err(|error| from_slate(&error))
        })
    }
}
