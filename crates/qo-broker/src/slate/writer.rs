//! Writes batches to the database in order, concurrently with the commit loop.
//!
//! Writing a batch costs the database about as much as building it costs the loop. So the loop continues with the next group
//! meanwhile. A single task writes the batches in the order in which it receives them: the database never sees a group before the one
//! that it builds on.
//!
//! A finished task leaves the state while its batch may still wait for the database. So a lookup in the database first waits until
//! all earlier batches are written to SlateDB's memory ([`BatchWriter::drained`]).

use std::sync::Arc;

use qo_engine::EngineError;
use qo_store::runtime::{BoxFuture, Runtime};
use slatedb::{Db, WriteBatch, WriteHandle};
use tokio::sync::{mpsc, oneshot};

use super::clock;
use super::error::from_slate;

type BatchResult = Result<WriteHandle, EngineError>;

/// A message to the writer task.
enum WriterMessage {
    Batch(WriteBatch, oneshot::Sender<BatchResult>),
    /// Reports when all earlier batches are written.
    Barrier(oneshot::Sender<()>),
}

/// Sends batches to the writer task. The number of groups in flight bounds the batches that wait.
pub(super) struct BatchWriter {
    messages: mpsc::UnboundedSender<WriterMessage>,
}

impl BatchWriter {
    pub(super) fn start(db: Db, runtime: &Arc<dyn Runtime>) -> Self {
        let (messages, mut receiver) = mpsc::unbounded_channel();
        runtime.spawn(Box::pin(async move {
            let mut failure = None;
            while let Some(message) = receiver.recv().await {
                let (mut batch, reply) = match message {
                    WriterMessage::Batch(batch, reply) => (batch, reply),
                    WriterMessage::Barrier(reached) => {
                        let _ = reached.send(());
                        continue;
                    }
                };
                // A batch that builds on a failed batch must not be written.
                clock::stamp(&mut batch);
                let result = match &failure {
                    Some(error) => Err(EngineError::clone(error)),
                    None => db.write(batch).await.map_err(|error| from_slate(&error)),
                };
                failure = failure.or_else(|| result.as_ref().err().cloned());
                // The receiver is gone if the loop has ended.
                let _ = reply.send(result);
            }
        }));
        Self { messages }
    }

    /// Sends a batch to the writer task. The future resolves when the batch is durable.
    pub(super) fn write(&self, batch: WriteBatch) -> BoxFuture<Result<(), EngineError>> {
        let (reply, result) = oneshot::channel();
        // If the writer task has ended, `reply` is dropped and `result` fails.
        let _ = self.messages.send(WriterMessage::Batch(batch, reply));
        Box::pin(async move {
            let handle = result.await.unwrap_or(Err(EngineError::Closed))?;
            handle
                .await_durable()
                .await
                .map_err(|error| from_slate(&error))
        })
    }

    /// Resolves when all batches that were sent before this call are written to SlateDB, or never will be.
    pub(super) fn drained(&self) -> BoxFuture<()> {
        let (reached, barrier) = oneshot::channel();
        // If the writer task has ended, `reached` is dropped, which also resolves the barrier.
        let _ = self.messages.send(WriterMessage::Barrier(reached));
        Box::pin(async move {
            let _ = barrier.await;
        })
    }
}
