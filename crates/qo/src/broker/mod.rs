//! Broker mode on SlateDB: election, serving, and finding the broker.
//!
//! One process at a time writes a queue with `?engine=slate`. The object `meta/broker.json` in the store names it
//! ([`qo_broker::election`]).
//!
//! - [`Broker`]: serves the queue to other processes, or stands by. It writes its address into the record.
//! - [`find`]: reads the broker's address, at connection and after each change of the leader.
//! - [`embedded`]: without a broker, a client opens the queue itself, without an address, until it closes it.

mod embedded;
mod find;
mod serving;

use std::sync::Arc;

use async_trait::async_trait;
use qo_blob::Blobs;
use qo_broker::election::{ElectionConfig, Elector, LeaderPing, Leadership};
use qo_broker::{BrokerEngine, SlateConfig};
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

/// Pings a leader over HTTP.
struct HttpPing(Ping);

#[async_trait]
impl LeaderPing for HttpPing {
    async fn is_alive(&self, address: &str, id: &str) -> bool {
        self.0.reaches(address, id).await
    }
}

/// Everything that opens the queue, as often as needed.
#[derive(Clone)]
pub(crate) struct BrokerSetup {
    store: Store,
    runtime: Arc<dyn Runtime>,
    client: ClientConfig,
    slate: SlateConfig,
    election: ElectionConfig,
    pinger: Arc<dyn LeaderPing>,
    blobs: Arc<Blobs>,
}

impl BrokerSetup {
    pub(crate) fn new(
        store: Store,
        runtime: Arc<dyn Runtime>,
        client: ClientConfig,
        slate: SlateConfig,
        options: &OpenOptions,
    ) -> Result<Self, Error> {
        let ca_pem = remote::ca_certificates(options)?;
        let variables = variables(options);
        let election = ElectionConfig::from_env(&variables)?;
        let blob_limit = Blobs::limit_from(store.kind, &variables)?;
        let store_client = StoreClient::new(
            Arc::clone(&store.objects),
            Arc::clone(&store.clock),
            Arc::clone(&runtime),
            client.clone(),
        );
        let blobs = Blobs::new(store_client, Arc::clone(&runtime), blob_limit);
        Ok(Self {
            blobs: Arc::new(blobs),
            store,
            runtime,
            client,
            slate,
            election,
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
            &self.store_client(),
            Arc::clone(&self.runtime),
            self.election.clone(),
            Arc::clone(&self.pinger),
            None,
        )
    }

    /// Opens the queue. Only the holder of the leadership may call this.
    async fn open_slate(&self) -> Result<BrokerEngine, EngineError> {
        // The future that opens SlateDB is large; boxing it keeps it out of the futures of all callers.
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

/// Connects to the broker, or opens the queue here if there is none.
pub(crate) async fn connect(setup: &BrokerSetup, options: &OpenOptions) -> Result<Queue, Error> {
    let elector = embedded::elector(setup);
    match locate(setup, &elector, options).await? {
        // Blobs are in the store in every mode, so this process need not ask the broker for them.
        Located::Broker(queue) => Ok(queue.with_blobs(Arc::clone(&setup.blobs) as _)),
        Located::Here(leadership) => embedded::open(setup, elector, leadership, options).await,
    }
}

/// Where the queue is served.
enum Located {
    /// By a broker.
    Broker(Queue),
    /// By this process, which leads now.
    Here(Leadership),
}

/// Finds the broker, or acquires the leadership if there is none. `elector` is the same for all tries, so that a late write of an
/// earlier try is recognised as its own.
async fn locate(
    setup: &BrokerSetup,
    elector: &Elector,
    options: &OpenOptions,
) -> Result<Located, Error> {
    let finder = find::BrokerFinder::new(setup, elector.id());
    let started = setup.runtime.monotonic();
    loop {
        let held = match finder.search().await? {
            find::BrokerSearch::Found(broker) => {
                let discovery = Arc::new(find::StoreDiscovery::new(setup.store_client()));
                let runtime = Arc::clone(&setup.runtime);
                let queue = remote::open_found(&broker, discovery, options, runtime).await?;
                return Ok(Located::Broker(queue));
            }
            find::BrokerSearch::NoLeader => None,
            find::BrokerSearch::Held(error) => Some(error),
        };
        if let Some(leadership) = elector.try_acquire().await? {
            return Ok(Located::Here(leadership));
        }
        // A process that has the queue for itself has answered the challenge.
        if let Some(error) = held {
            return Err(error);
        }
        // Other processes were faster each time.
        if setup.runtime.monotonic().saturating_sub(started) > find::CONNECT_TIMEOUT {
            return Err(Error::Engine(EngineError::NotLeader));
        }
    }
}
