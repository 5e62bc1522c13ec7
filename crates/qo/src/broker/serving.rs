//! Serves the queue to other processes, or stands by: a [`Candidate`] of the election, and what a server needs to know about it.

use std::fmt;
use std::sync::Arc;

use qo_broker::election::{BrokerRecord, Candidate, LeaderGate};
use tokio::sync::watch;

use super::BrokerSetup;
use crate::error::Error;
use crate::queue::Queue;

/// Serves a queue in broker mode, or stands by.
///
/// [`Connect::open_broker`](crate::Connect::open_broker) opens one. [`Broker::run`] takes part in the election; a server checks
/// [`Broker::handle`] before it serves a request with [`Broker::queue`].
pub struct Broker {
    setup: BrokerSetup,
    candidate: Candidate,
}

impl Broker {
    /// Creates a broker on standby. Reads the record, so that an unreadable one fails here.
    pub(crate) async fn new(setup: BrokerSetup) -> Result<Self, Error> {
        let elector = setup.elector();
        elector.current().await?;
        let gate = Arc::new(LeaderGate::new(setup.store_client()));
        let opener = setup.clone();
        let open = Box::new(move || {
            let setup = opener.clone();
            Box::pin(async move { setup.open_slate().await }) as _
        });
        let candidate = Candidate::new(elector, gate, Arc::clone(&setup.runtime), open);
        Ok(Self { setup, candidate })
    }

    /// The queue. Its operations fail with [`EngineError::NotLeader`](crate::EngineError::NotLeader) while another process leads.
    pub fn queue(&self) -> Queue {
        let gate = Arc::clone(self.candidate.gate());
        let queue = Queue::new(gate, Arc::clone(&self.setup.runtime));
        queue.with_blobs(Arc::clone(&self.setup.blobs) as _)
    }

    /// A handle with which a server checks the leadership.
    pub fn handle(&self) -> BrokerHandle {
        BrokerHandle {
            id: self.candidate.elector().id().to_owned(),
            gate: Arc::clone(self.candidate.gate()),
            record: self.candidate.elector().last_record(),
        }
    }

    /// Takes part in the election forever: stands by, leads, stands by again. Drop the future to stop, then call [`Broker::close`]
    /// to hand over.
    ///
    /// `address` is where clients and standbys reach the server that uses this broker's handle. The server must be listening.
    pub async fn run(&mut self, address: &str) {
        self.candidate.run(address).await;
    }

    /// Closes the queue and releases the leadership, so that a standby takes over at once.
    pub async fn close(&self) {
        self.candidate.close().await;
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("candidate", &self.candidate)
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

    /// Whether it is known, without a request, that this process leads. A leader that does not know it counts as silent.
    pub fn is_confirmed(&self) -> bool {
        self.gate.is_confirmed()
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
