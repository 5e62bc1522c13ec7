//! Broker mode on SlateDB: who opens the queue, who serves it, and how everybody else finds that one.
//!
//! `?engine=slate` is written by one process at a time. Which one that is says `meta/broker.json` in the store
//! ([`qo_broker::election`]); this module is how processes go by it:
//!
//! - [`Broker`]: a process that serves the queue to others, or stands by to do so. It names its address in the record.
//! - [`find`]: where a client finds the broker, when it connects and whenever the broker has changed.
//! - [`embedded`]: a client that finds nobody opens the queue itself, without an address, until it closes it.

mod embedded;
mod find;
mod serving;

use std::sync::Arc;

use async_trait::async_trait;
use qo_broker::BrokerEngine;
use qo_broker::SlateConfig;
use qo_broker::election::{ElectionConfig, Elector, IsAlive};
use qo_engine::EngineError;
use qo_remote::Ping;
use qo_store::client::ClientConfig;
use qo_store::runtime::Runtime;
use qo_store::{OpenOptions, Store, StoreClient};

pub use serving::{Broker, BrokerHandle};

use crate::connect::variables;
use crate::error::Error;
use crate::queue::Queue;
use crate::remote;

/// Asks a leader over HTTP whether it is alive.
struct HttpPing(Ping);

#[async_trait]
impl IsAlive for HttpPing {
    async fn is_alive(&self, address: &str, id: &str) -> bool {
        self.0.reaches(address, id).await
    }
}

/// What opening the queue takes, each time anew.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) store: Store,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) client: ClientConfig,
    pub(crate) slate: SlateConfig,
    pub(crate) leadership: ElectionConfig,
    pinger: Arc<dyn IsAlive>,
}

impl Place {
    pub(crate) fn new(
        store: Store,
        runtime: Arc<dyn Runtime>,
        client: ClientConfig,
        slate: SlateConfig,
        options: &OpenOptions,
    ) -> Result<Self, Error> {
        let ca_pem = remote::certificates(options)?;
        let leadership = ElectionConfig::from_env(&variables(options))?;
        Ok(Self {
            store,
            runtime,
            client,
            slate,
            leadership,
            pinger: Arc::new(HttpPing(Ping::new(ca_pem.as_deref())?)),
        })
    }

    fn store_client(&self) -> StoreClient {
        StoreClient::new(
            Arc::clone(&self.store.objects),
            Arc::clone(&self.store.clock),
            Arc::clone(&self.runtime),
            self.client.clone(),
        )
    }

    fn elector(&self) -> Elector {
        Elector::new(
            self.store_client(),
            Arc::clone(&self.runtime),
            self.leadership.clone(),
            Arc::clone(&self.pinger),
            None,
        )
    }

    /// Opens the queue. Whoever does so has a leadership, and is the only one.
    async fn slate(&self) -> Result<BrokerEngine, EngineError> {
        // Opening SlateDB is a large future, and not every caller should carry it.
        Box::pin(BrokerEngine::slate(
            Arc::clone(&self.store.objects),
            Arc::clone(&self.store.clock),
            Arc::clone(&self.runtime),
            self.client.clone(),
            self.slate.clone(),
        ))
        .await
    }
}

/// The queue for a client: through the broker if there is one, else opened here.
pub(crate) async fn connect(place: &Place, options: &OpenOptions) -> Result<Queue, Error> {
    // One name for all tries: a write of an earlier one may arrive late, and is recognised.
    let elector = place.elector();
    let seeker = find::Seeker::new(place, elector.id());
    let started = place.runtime.monotonic();
    loop {
        match seeker.seek().await? {
            find::Sought::Broker(found) => {
                let discovery = Arc::new(find::InStore::new(place.store_client()));
                return remote::open_found(&found, discovery, options, Arc::clone(&place.runtime))
                    .await;
            }
            find::Sought::Nobody => {
                if let Some(queue) = embedded::open(place, &elector).await? {
                    return Ok(queue);
                }
            }
        }
        // Somebody else was faster, again and again.
        if place.runtime.monotonic().saturating_sub(started) > find::PATIENCE_MAX {
            return Err(Error::Engine(EngineError::NotLeader));
        }
    }
}
