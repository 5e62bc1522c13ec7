//! Serves the queue, or stands by.
//!
//! ```text
//! stand by ──► acquire the leadership ──► open the queue ──► serve ──► the leadership or the engine ends ──► close the gate ──► stand by
//! ```
//!
//! [`LeaderGate`] documents the state that a crash after each step leaves behind.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use qo_broker::election::{BrokerRecord, ElectionError, Elector, LeaderGate, Leadership};
use tokio::sync::watch;

use super::BrokerSetup;
use crate::error::Error;
use crate::queue::Queue;

/// Pause after a failure, so that another process can take over.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Serves a queue in broker mode, or stands by.
///
/// [`Connect::open_broker`](crate::Connect::open_broker) opens one. [`Broker::run`] takes part in the election; a server checks
/// [`Broker::handle`] before it serves a request with [`Broker::queue`].
pub struct Broker {
    setup: BrokerSetup,
    elector: Elector,
    gate: Arc<LeaderGate>,
}

impl Broker {
    /// Creates a broker on standby. Reads the record, so that an unreadable one fails here.
    pub(crate) async fn new(setup: BrokerSetup) -> Result<Self, Error> {
        let elector = setup.elector();
        elector.current().await?;
        let gate = Arc::new(LeaderGate::new(setup.store_client()));
        Ok(Self {
            setup,
            elector,
            gate,
        })
    }

    /// The queue. Its operations fail with [`EngineError::NotLeader`](crate::EngineError::NotLeader) while another process leads.
    pub fn queue(&self) -> Queue {
        let gate = Arc::clone(&self.gate);
        Queue::new(gate, Arc::clone(&self.setup.runtime))
    }

    /// A handle with which a server checks the leadership.
    pub fn handle(&self) -> BrokerHandle {
        BrokerHandle {
            id: self.elector.id().to_owned(),
            gate: Arc::clone(&self.gate),
            record: self.elector.last_record(),
        }
    }

    /// Takes part in the election for ever: stands by, leads, stands by again. Drop the future to stop, then call [`Broker::close`]
    /// to hand over.
    ///
    /// `address` is where clients and standbys reach the server that uses this broker's handle. The server must be listening.
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
            let _ = tokio::join!(self.gate.leave(), self.elector.current());
            if !is_healthy {
                self.setup.runtime.sleep(RETRY_PAUSE).await;
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
            opened = self.setup.open_slate() => opened,
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
            () = self.setup.runtime.sleep(RETRY_PAUSE) => {}
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

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("elector", &self.elector)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

/// Tells a server whether this process leads. Clones share everything.
#[derive(Debug, Clone)]
pub struct BrokerHandle {
    id: String,
    gate: Arc<LeaderGate>,
    record: watch::Receiver<Option<BrokerRecord>>,
}

impl BrokerHandle {
    /// The id of this process.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The epoch of this process, if it leads at this moment.
    pub async fn confirm(&self) -> Option<u64> {
        self.gate.confirm().await
    }

    /// Waits until this process no longer leads in `epoch`.
    pub async fn over(&self, epoch: u64) {
        self.gate.epoch_ended(epoch).await;
    }

    /// The address of the leader, if another process leads and serves others.
    pub fn elsewhere(&self) -> Option<String> {
        let record = self.record.borrow();
        let holder = record.as_ref()?.holder.as_ref()?;
        (holder.id != self.id)
            .then(|| holder.address.clone())
            .flatten()
    }
}
