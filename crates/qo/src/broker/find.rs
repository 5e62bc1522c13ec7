//! Finds the broker.
//!
//! | the record names | the client |
//! | --- | --- |
//! | no leader, or does not exist | opens the queue itself |
//! | a leader with an address, which responds | connects to it |
//! | a leader with an address, which does not respond | waits [`BROKER_TIMEOUT`] for it or a standby, then challenges it, as a standby would |
//! | a leader without an address | waits [`HOLDER_TIMEOUT`], in case it is a short command, then challenges it; if it answers, fails with [`Error::QueueHeld`] |
//! | the same, with an old heartbeat | challenges it at once |

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use qo_broker::election::{BrokerRecord, Holder};
use qo_remote::{BrokerAddress, Discovery};
use qo_store::StoreClient;

use super::BrokerSetup;
use crate::error::Error;

/// How long a client waits for a broker that does not respond. A standby takes over sooner, and a service manager restarts a dead
/// broker sooner: a faster client would keep both from serving.
const BROKER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client waits for a process that holds the queue for itself.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client tries to connect in total.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The result of a search.
pub(super) enum BrokerSearch {
    /// A broker that responds.
    Found(BrokerAddress),
    /// No process leads, or the leader seems to be dead.
    NoLeader,
    /// A process has the queue for itself, unless it is dead. The error is for the caller if it is alive.
    Held(Error),
}

/// Searches for a broker.
pub(super) struct BrokerFinder<'a> {
    setup: &'a BrokerSetup,
    /// The id of this process.
    id: &'a str,
    client: StoreClient,
}

impl<'a> BrokerFinder<'a> {
    pub(super) fn new(setup: &'a BrokerSetup, id: &'a str) -> Self {
        Self {
            setup,
            id,
            client: setup.store_client(),
        }
    }

    pub(super) async fn search(&self) -> Result<BrokerSearch, Error> {
        let runtime = &self.setup.runtime;
        let started = runtime.monotonic();
        let mut has_warned = false;
        loop {
            let record = BrokerRecord::read(&self.client).await?;
            let holder = record.and_then(|record| record.holder);
            let Some(holder) = holder.filter(|holder| holder.id != self.id) else {
                return Ok(BrokerSearch::NoLeader);
            };
            let waited = runtime.monotonic().saturating_sub(started);
            if let Some(broker) = address_of(&holder) {
                if self.is_alive(&broker).await {
                    return Ok(BrokerSearch::Found(broker));
                }
                if waited >= BROKER_TIMEOUT {
                    return Ok(BrokerSearch::NoLeader);
                }
                if !has_warned {
                    let timeout = BROKER_TIMEOUT.as_secs();
                    tracing::warn!(
                        broker = broker.url,
                        "the broker does not respond; waiting up to {timeout} s for it or a standby"
                    );
                    has_warned = true;
                }
            } else {
                let age = self.client.now().since(holder.heartbeat);
                if age >= self.setup.election.heartbeat_timeout() {
                    return Ok(BrokerSearch::NoLeader);
                }
                if waited >= HOLDER_TIMEOUT {
                    return Ok(BrokerSearch::Held(Error::QueueHeld {
                        since: holder.since,
                        heartbeat_age: age,
                    }));
                }
            }
            runtime.sleep(POLL_INTERVAL).await;
        }
    }

    async fn is_alive(&self, broker: &BrokerAddress) -> bool {
        tokio::select! {
            biased;
            is_alive = self.setup.pinger.is_alive(&broker.url, &broker.id) => is_alive,
            () = self.setup.runtime.sleep(self.setup.election.ping_timeout) => false,
        }
    }
}

/// The address of a leader, if it serves other processes.
fn address_of(holder: &Holder) -> Option<BrokerAddress> {
    Some(BrokerAddress {
        url: holder.address.clone()?,
        id: holder.id.clone(),
    })
}

/// Reads the broker's address from the store: one GET each time.
pub(super) struct StoreDiscovery {
    client: StoreClient,
}

impl StoreDiscovery {
    pub(super) fn new(client: StoreClient) -> Self {
        Self { client }
    }
}

#[async_trait]
impl Discovery for StoreDiscovery {
    async fn find(&self) -> Result<BrokerAddress, String> {
        let record = match BrokerRecord::read(&self.client).await {
            Ok(record) => record,
            Err(error) => return Err(error.to_string()),
        };
        match record.and_then(|record| record.holder) {
            None => Err("no broker serves this queue; start one with `qo serve`".to_owned()),
            Some(holder) => address_of(&holder).ok_or_else(|| {
                "another process holds this queue for itself; stop it, and start `qo serve`"
                    .to_owned()
            }),
        }
    }
}

impl fmt::Debug for StoreDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreDiscovery")
    }
}
