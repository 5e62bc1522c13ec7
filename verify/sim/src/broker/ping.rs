//! Pings between brokers. They stand for `GET /healthz` with the name of the broker that is meant.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use qo_broker::election::LeaderPing;
use tokio::sync::oneshot;

use super::Hub;
use crate::faults::{Reach, Trouble};
use crate::sched::{ProcessId, Scheduler};

/// The pings of one life of a broker.
pub struct SimPing {
    scheduler: Scheduler,
    trouble: Arc<Trouble>,
    hub: Arc<Hub>,
    process: ProcessId,
    life_number: u64,
    pings: AtomicU64,
}

impl SimPing {
    /// The pings of a process.
    pub fn new(
        scheduler: &Scheduler,
        trouble: &Arc<Trouble>,
        hub: &Arc<Hub>,
        process: ProcessId,
        life_number: u64,
    ) -> Self {
        Self {
            scheduler: scheduler.clone(),
            trouble: Arc::clone(trouble),
            hub: Arc::clone(hub),
            process,
            life_number,
            pings: AtomicU64::new(0),
        }
    }
}

#[async_trait]
impl LeaderPing for SimPing {
    async fn is_alive(&self, address: &str, id: &str) -> bool {
        let number = self.pings.fetch_add(1, Ordering::Relaxed);
        let mut dice = self.trouble.dice(&[0x9146, self.life_number, number]);
        self.scheduler.sleep(self.trouble.latency(&mut dice)).await;
        if self.trouble.is_cut_off(self.process, Reach::Brokers) {
            return std::future::pending().await;
        }
        let Some(broker) = self.hub.at(address) else {
            // The connection is refused.
            return false;
        };
        if self.trouble.is_cut_off(broker.process, Reach::Brokers) {
            return std::future::pending().await;
        }
        let (answer, answered) = oneshot::channel();
        let is_meant = broker.id == id;
        self.scheduler.spawn(
            broker.process,
            Box::pin(async move {
                // Who asks may have given up.
                let _ = answer.send(is_meant && broker.gate.is_confirmed());
            }),
        );
        let is_alive = answered.await.unwrap_or(false);
        self.scheduler.sleep(self.trouble.latency(&mut dice)).await;
        is_alive
    }
}

impl fmt::Debug for SimPing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimPing({})", self.process)
    }
}
