//! Hands batches to the database beside the commit loop, in order.
//!
//! Taking a batch in costs the database about as much as making it cost the loop. So the loop goes on with the next group
//! meanwhile. There is one task that writes, and it writes in the order in which it was given: the database never sees a group
//! before the one that it was built upon.
//!
//! What the state lets go of is in a batch that may still be on its way to the database. So whoever looks there for what the
//! state does not hold waits first until all batches that came before are taken in ([`Writer::taken_in`]).

use std::sync::Arc;

use qo_engine::EngineError;
use qo_store::runtime::{BoxFuture, Runtime};
use slatedb::{Db, WriteBatch, WriteHandle};
use tokio::sync::{mpsc, oneshot};

use super::error::from_slate;

type Taken = Result<WriteHandle, EngineError>;

/// What is handed over.
enum Handed {
    Batch(WriteBatch, oneshot::Sender<Taken>),
    /// Somebody waits until all that came before is taken in.
    Mark(oneshot::Sender<()>),
}

/// Where batches are handed over. What waits there is bounded by the groups that the loop has on their way.
pub(super) struct Writer {
    batches: mpsc::UnboundedSender<Handed>,
}

impl Writer {
    pub(super) fn start(db: Db, runtime: &Arc<dyn Runtime>) -> Self {
        let (batches, mut handed_over) = mpsc::unbounded_channel();
        runtime.spawn(Box::pin(async move {
            let mut over = None;
            while let Some(handed) = handed_over.recv().await {
                let (batch, taken) = match handed {
                    Handed::Batch(batch, taken) => (batch, taken),
                    Handed::Mark(reached) => {
                        let _ = reached.send(());
                        continue;
                    }
                };
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
        let _ = self.batches.send(Handed::Batch(batch, taken));
        Box::pin(async move {
            let handle = answer.await.unwrap_or(Err(EngineError::Closed))?;
            handle
                .await_durable()
                .await
                .map_err(|error| from_slate(&error))
        })
    }

    /// Resolves when all batches that were handed over before this call are taken in, or never will be.
    pub(super) fn taken_in(&self) -> BoxFuture<()> {
        let (reached, mark) = oneshot::channel();
        // If the writer has ended, the sender is dropped, and that is an answer, too.
        let _ = self.batches.send(Handed::Mark(reached));
        Box::pin(async move {
            let _ = mark.await;
        })
    }
}
