//! Writes batches to the database in order, concurrently with the commit loop.
//!
//! Writing a batch costs the database about as much as building it costs the loop. So the loop continues with the next group
//! meanwhile. A single task writes the batches in the order in which it receives them: the database never sees a group before the one
//! that it builds on.
//!
//! A finished task leaves the state while its batch may still wait for the database. So a lookup of such a task, or of a key, first waits
//! until all earlier batches are written to SlateDB's memory ([`SlateWriter::drained`]).

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use qo_engine::EngineError;
use qo_store::runtime::{BoxFuture, Runtime};
use slatedb::{CloseReason, Db, WriteBatch, WriteHandle};
use tokio::sync::{mpsc, oneshot};

use super::clock;
use super::config::SlateConfig;
use super::database::batch_of;
use super::error::from_slate;
use super::fence::WriterFence;
use crate::rows::{RowGroup, RowWriter, WriterCheck};

/// How long a clean close may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(20);

type BatchResult = Result<WriteHandle, EngineError>;

/// A message to the writer task.
enum WriterMessage {
    Batch(WriteBatch, oneshot::Sender<BatchResult>),
    /// Reports when all earlier batches are written.
    Barrier(oneshot::Sender<()>),
}

/// Sends batches to the writer task. The number of groups in flight bounds the batches that wait.
pub(super) struct SlateWriter {
    messages: mpsc::UnboundedSender<WriterMessage>,
    db: Db,
    fence: WriterFence,
    runtime: Arc<dyn Runtime>,
    in_flight_max: usize,
    leader_interval: Duration,
}

impl SlateWriter {
    pub(super) fn start(
        db: Db,
        fence: WriterFence,
        runtime: &Arc<dyn Runtime>,
        config: &SlateConfig,
    ) -> Self {
        let (messages, mut receiver) = mpsc::unbounded_channel();
        let writer_db = db.clone();
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
                    None => writer_db
                        .write(batch)
                        .await
                        .map_err(|error| from_slate(&error)),
                };
                failure = failure.or_else(|| result.as_ref().err().cloned());
                // The receiver is gone if the loop has ended.
                let _ = reply.send(result);
            }
        }));
        Self {
            messages,
            db,
            fence,
            runtime: Arc::clone(runtime),
            in_flight_max: config.in_flight_max,
            leader_interval: config.leader_interval,
        }
    }
}

#[async_trait]
impl RowWriter for SlateWriter {
    /// Sends a batch to the writer task. The future resolves when the batch is durable.
    fn write(&mut self, group: RowGroup) -> BoxFuture<Result<Option<NonZeroU64>, EngineError>> {
        let batch = batch_of(group.writes);
        let (reply, result) = oneshot::channel();
        // If the writer task has ended, `reply` is dropped and `result` fails.
        let _ = self.messages.send(WriterMessage::Batch(batch, reply));
        Box::pin(async move {
            let handle = result.await.unwrap_or(Err(EngineError::Closed))?;
            handle
                .await_durable()
                .await
                .map_err(|error| from_slate(&error))?;
            Ok(None)
        })
    }

    /// Resolves when all batches that were sent before this call are written to SlateDB, or never will be.
    fn drained(&self) -> BoxFuture<()> {
        let (reached, barrier) = oneshot::channel();
        // If the writer task has ended, `reached` is dropped, which also resolves the barrier.
        let _ = self.messages.send(WriterMessage::Barrier(reached));
        Box::pin(async move {
            let _ = barrier.await;
        })
    }

    fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    fn ended(&self) -> BoxFuture<EngineError> {
        let mut status = self.db.subscribe();
        let fence = self.fence.clone();
        let runtime = Arc::clone(&self.runtime);
        let interval = self.leader_interval;
        Box::pin(async move {
            loop {
                let sleep = runtime.sleep(interval);
                tokio::select! {
                    biased;
                    changed = status.changed() => {
                        let reason = status.borrow_and_update().close_reason;
                        match reason {
                            Some(CloseReason::Fenced) => return EngineError::NotLeader,
                            Some(_) => return EngineError::Closed,
                            None if changed.is_err() => return EngineError::Closed,
                            None => {}
                        }
                    }
                    () = sleep => {
                        if fence.check().await == Err(EngineError::NotLeader) {
                            return EngineError::NotLeader;
                        }
                    }
                }
            }
        })
    }

    async fn close(&mut self) {
        let limit = self.runtime.sleep(CLOSE_LIMIT);
        tokio::select! {
            biased;
            closed = self.db.close() => {
                if let Err(error) = closed {
                    tracing::debug!(%error, "the database was closed already");
                }
            }
            () = limit => tracing::warn!("the database did not close in time; no data is lost"),
        }
    }
}
