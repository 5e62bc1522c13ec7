//! Finding the broker.
//!
//! | what the record says | what a client does |
//! | --- | --- |
//! | nobody leads, or there never was a broker | opens the queue itself |
//! | a leader with an address, which answers | asks it |
//! | a leader with an address, which does not answer | waits for it, or for a standby, for [`BROKER_PATIENCE`]; then takes over by a challenge, as a standby would |
//! | a leader without an address, with a fresh heartbeat | waits a little, in case it is a short command; then says that the queue is taken |
//! | a leader without an address, whose heartbeat is old | takes over by a challenge |

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use qo_broker::election::{BrokerRecord, Holder};
use qo_remote::{BrokerAddress, Discovery};
use qo_store::StoreClient;

use super::Place;
use crate::error::Error;

/// How long a broker that does not answer is waited for. A standby takes over in less, and a service manager starts a broker
/// that died again: a client that were faster than both would keep them from serving.
const BROKER_PATIENCE: Duration = Duration::from_secs(10);
/// How long a process that holds the queue for itself is waited for.
const HOLDER_PATIENCE: Duration = Duration::from_secs(5);
/// How long a client tries in all.
pub(super) const PATIENCE_MAX: Duration = Duration::from_mins(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// What a client found.
pub(super) enum Sought {
    /// A broker that answers.
    Broker(BrokerAddress),
    /// Nobody who leads.
    Nobody,
}

/// Looks for a broker.
pub(super) struct Seeker<'a> {
    place: &'a Place,
    /// Who looks.
    id: &'a str,
    client: StoreClient,
}

impl<'a> Seeker<'a> {
    pub(super) fn new(place: &'a Place, id: &'a str) -> Self {
        Self {
            place,
            id,
            client: place.store_client(),
        }
    }

    pub(super) async fn seek(&self) -> Result<Sought, Error> {
        let runtime = &self.place.runtime;
        let started = runtime.monotonic();
        let mut told = false;
        loop {
            let record = BrokerRecord::read(&self.client).await?;
            let holder = record.and_then(|record| record.holder);
            let Some(holder) = holder.filter(|holder| holder.id != self.id) else {
                return Ok(Sought::Nobody);
            };
            let waited = runtime.monotonic().saturating_sub(started);
            if let Some(found) = found(&holder) {
                if self.is_alive(&found).await {
                    return Ok(Sought::Broker(found));
                }
                if waited >= BROKER_PATIENCE {
                    return Ok(Sought::Nobody);
                }
                if !told {
                    let patience = BROKER_PATIENCE.as_secs();
                    tracing::warn!(
                        broker = found.url,
                        "the broker does not answer; waiting up to {patience} s for it or a standby"
                    );
                    told = true;
                }
            } else {
                let age = self.client.now().since(holder.heartbeat);
                if age >= self.place.leadership.heartbeat_timeout() {
                    return Ok(Sought::Nobody);
                }
                if waited >= HOLDER_PATIENCE {
                    return Err(Error::QueueHeld {
                        since: holder.since,
                        heartbeat_age: age,
                    });
                }
            }
            runtime.sleep(LOOK_INTERVAL).await;
        }
    }

    async fn is_alive(&self, found: &BrokerAddress) -> bool {
        tokio::select! {
            biased;
            heard = self.place.pinger.is_alive(&found.url, &found.id) => heard,
            () = self.place.runtime.sleep(self.place.leadership.ping_timeout) => false,
        }
    }
}

/// Where a leader is reached.
fn found(holder: &Holder) -> Option<BrokerAddress> {
    Some(BrokerAddress {
        url: holder.address.clone()?,
        id: holder.id.clone(),
    })
}

/// The broker, as the store names it: one GET each time.
pub(super) struct InStore {
    client: StoreClient,
}

impl InStore {
    pub(super) fn new(client: StoreClient) -> Self {
        Self { client }
    }
}

#[async_trait]
impl Discovery for InStore {
    async fn find(&self) -> Result<BrokerAddress, String> {
        let record = match BrokerRecord::read(&self.client).await {
            Ok(record) => record,
            Err(error) => return Err(error.to_string()),
        };
        match record.and_then(|record| record.holder) {
            None => Err("no broker serves this queue now; start one with `qo serve`".to_owned()),
            Some(holder) => found(&holder).ok_or_else(|| {
                "a process that serves nobody else holds this queue now; stop it, and start `qo serve`"
                    .to_owned()
            }),
        }
    }
}

impl fmt::Debug for InStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InStore")
    }
}
