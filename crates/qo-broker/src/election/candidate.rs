//! A candidate: stands by, leads, and stands by again, for as long as its process lives.
//!
//! ```text
//! stand by ──► acquire the leadership ──► open the engine ──► serve ──► the leadership or the engine ends ──► leave the gate ──► stand by
//! ```
//!
//! [`LeaderGate`] documents the state that a crash after each step leaves behind.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use qo_engine::EngineError;
use qo_store::runtime::{BoxFuture, Runtime};

use super::{ElectionError, Elector, LeaderGate, Leadership};
use crate::BrokerEngine;

/// Pause after a failure, so that another process can take over.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// How long a process that no longer leads, or whose engine failed, waits for its engine before it stands by. An engine that waits for a
/// response that never comes takes half a minute to close, and meanwhile nobody would take over.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Opens the engine. Only the leader calls it.
pub type OpenEngine = Box<dyn Fn() -> BoxFuture<Result<BrokerEngine, EngineError>> + Send + Sync>;

/// A process that serves a queue while it leads.
pub struct Candidate {
    elector: Elector,
    gate: Arc<LeaderGate>,
    runtime: Arc<dyn Runtime>,
    open: OpenEngine,
}

impl Candidate {
    /// A candidate on standby, which serves through this gate.
    pub fn new(
        elector: Elector,
        gate: Arc<LeaderGate>,
        runtime: Arc<dyn Runtime>,
        open: OpenEngine,
    ) -> Self {
        Self {
            elector,
            gate,
            runtime,
            open,
        }
    }

    /// The gate through which it serves.
    pub fn gate(&self) -> &Arc<LeaderGate> {
        &self.gate
    }

    /// Its elector.
    pub fn elector(&self) -> &Elector {
        &self.elector
    }

    /// Takes part in the election forever. Drop the future to stop, then call [`Candidate::close`] to hand over.
    ///
    /// `address` is where clients and standbys reach this process.
    pub async fn run(&mut self, address: &str) {
        self.elector.set_address(Some(address.to_owned()));
        loop {
            let is_healthy = match self.elector.acquire().await {
                Ok(leadership) => self.lead(Arc::new(leadership), address).await,
                Err(error) => {
                    tracing::error!(%error, "cannot determine the leader; trying again");
                    false
                }
            };
            // The second future updates the address that clients are redirected to.
            let leave = self.gate.leave_within(self.runtime.as_ref(), CLOSE_MAX);
            let _ = tokio::join!(leave, self.elector.current());
            if !is_healthy {
                self.runtime.sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Leads until the leadership or the engine ends. Returns false if this process failed.
    async fn lead(&self, leadership: Arc<Leadership>, address: &str) -> bool {
        self.gate.begin(Arc::clone(&leadership));
        let epoch = leadership.epoch();
        let opened = tokio::select! {
            biased;
            error = leadership.ended() => {
                tracing::warn!(epoch, %error, "lost the leadership before the queue was open");
                return true;
            }
            opened = (self.open)() => opened,
        };
        let engine = match opened {
            Ok(engine) => engine,
            Err(error) => {
                tracing::error!(epoch, %error, "cannot open the queue; releasing the leadership");
                return false;
            }
        };
        self.gate.serve(Arc::new(engine.clone()));
        tracing::info!(epoch, address, "serving as the leader");
        tokio::select! {
            biased;
            error = leadership.ended() => {
                tracing::warn!(epoch, %error, "standing down");
                true
            }
            error = engine.ended() => {
                // A fenced engine may notice before the leadership does that another process leads.
                if let Err(lost @ ElectionError::Lost { .. }) = leadership.confirm().await {
                    tracing::warn!(epoch, error = %lost, "standing down");
                    return true;
                }
                tracing::error!(epoch, %error, "the engine failed; releasing the leadership");
                false
            }
        }
    }

    /// Closes the queue and releases the leadership, so that a standby takes over at once.
    pub async fn close(&self) {
        self.gate.leave().await;
        // A run that was dropped during a takeover may have written this process into the record.
        tokio::select! {
            biased;
            () = self.release() => {}
            () = self.runtime.sleep(RETRY_PAUSE) => {}
        }
    }

    async fn release(&self) {
        let id = self.elector.id();
        let record = self.elector.current().await.ok().flatten();
        let is_held = record
            .and_then(|record| record.holder)
            .is_some_and(|holder| holder.id == id);
        if is_held && let Ok(leadership) = self.elector.acquire().await {
            leadership.release().await;
        }
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("elector", &self.elector)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
