//! A process that serves the queue, or stands by to do so.
//!
//! ```text
//! stand by ──► acquire a leadership ──► open the queue ──► serve ──► the leadership or the engine is over ──► leave the gate ──► stand by
//! ```
//!
//! [`LeaderGate`] has the table of what a crash after each step leaves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use qo_broker::election::{BrokerRecord, ElectionError, Elector, LeaderGate, Leadership};
use tokio::sync::watch;

use super::Place;
use crate::error::Error;
use crate::queue::Queue;

/// How long after something went wrong until the next try: another process may do better meanwhile.
const PAUSE: Duration = Duration::from_secs(2);

/// A process that serves a queue in broker mode, or stands by to do so.
pub struct Broker {
    place: Place,
    elector: Elector,
    gate: Arc<LeaderGate>,
}

impl Broker {
    /// A broker that stands by. The record is read, so that one that cannot be read is noticed here.
    pub(crate) async fn new(place: Place) -> Result<Self, Error> {
        let elector = place.elector();
        elector.current().await?;
        let gate = Arc::new(LeaderGate::new(place.store_client()));
        Ok(Self {
            place,
            elector,
            gate,
        })
    }

    /// The queue. It answers while this process leads, and otherwise with [`NotLeader`](qo_engine::EngineError::NotLeader).
    pub fn queue(&self) -> Queue {
        let gate = Arc::clone(&self.gate);
        Queue::new(gate, Arc::clone(&self.place.runtime))
    }

    /// What a server asks before it answers for the queue.
    pub fn handle(&self) -> BrokerHandle {
        BrokerHandle {
            id: self.elector.id().to_owned(),
            gate: Arc::clone(&self.gate),
            known: self.elector.last_record(),
        }
    }

    /// Stands by, leads, stands by again, and so on. It never ends by itself; once it was dropped, [`Broker::close`] hands over.
    ///
    /// `address` is where clients and standbys reach the server that asks this broker's handle. It must serve already.
    pub async fn run(&mut self, address: &str) {
        self.elector.set_address(Some(address.to_owned()));
        loop {
            let went_well = match self.elector.acquire().await {
                Ok(leadership) => self.lead(Arc::new(leadership), address).await,
                Err(error) => {
                    tracing::error!(%error, "cannot find out who leads; trying again");
                    false
                }
            };
            // Meanwhile clients are told who leads now, as far as that can be read.
            let _ = tokio::join!(self.gate.leave(), self.elector.current());
            if !went_well {
                self.place.runtime.sleep(PAUSE).await;
            }
        }
    }

    /// Leads until the leadership is over, or the engine. Tells whether that was no failure of this process.
    async fn lead(&self, leadership: Arc<Leadership>, address: &str) -> bool {
        self.gate.begin(Arc::clone(&leadership));
        let epoch = leadership.epoch();
        let opened = tokio::select! {
            biased;
            error = leadership.ended() => {
                tracing::warn!(epoch, %error, "lost the leadership before the queue was open");
                return true;
            }
            opened = self.place.slate() => opened,
        };
        let engine = match opened {
            Ok(engine) => engine,
            Err(error) => {
                tracing::error!(epoch, %error, "cannot open the queue; giving up the leadership");
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
                // An engine that was fenced out may know before the leadership does that another process leads.
                if let Err(lost @ ElectionError::Lost { .. }) = leadership.confirm().await {
                    tracing::warn!(epoch, error = %lost, "standing down");
                    return true;
                }
                tracing::error!(epoch, %error, "the queue cannot go on here; giving up the leadership");
                false
            }
        }
    }

    /// Closes the queue and gives the leadership up, so that a standby takes over at once.
    pub async fn close(&self) {
        self.gate.leave().await;
        // A run that was dropped in the middle of a takeover may have written that this process leads.
        tokio::select! {
            biased;
            () = self.give_up() => {}
            () = self.place.runtime.sleep(PAUSE) => {}
        }
    }

    async fn give_up(&self) {
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

/// What a server asks before it answers for the queue. Clones share everything.
#[derive(Debug, Clone)]
pub struct BrokerHandle {
    id: String,
    gate: Arc<LeaderGate>,
    known: watch::Receiver<Option<BrokerRecord>>,
}

impl BrokerHandle {
    /// Names this process.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Makes sure that this process leads at this moment, and says in which epoch.
    pub async fn confirm(&self) -> Option<u64> {
        self.gate.confirm().await
    }

    /// Returns once this process does not lead in this epoch any more.
    pub async fn over(&self, epoch: u64) {
        self.gate.epoch_ended(epoch).await;
    }

    /// Where the leader is, if it is another process and says where.
    pub fn elsewhere(&self) -> Option<String> {
        let known = self.known.borrow();
        let holder = known.as_ref()?.holder.as_ref()?;
        (holder.id != self.id)
            .then(|| holder.address.clone())
            .flatten()
    }
}
