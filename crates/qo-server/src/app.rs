//! The state that all requests of a server share.

use std::sync::{Arc, Weak};
use std::time::Duration;

use qo::{Engine, Queue, Task, Timestamp};
use qo_engine::Measurement;
use qo_remote::wire::Condition;
use qo_store::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::activity::{Activity, ActivityStore};
use crate::bulk_jobs::BulkJobs;
use crate::claims::Claims;
use crate::cluster::ClusterControl;
use crate::config::{CountsFn, JobConfig, Limits, ServerConfig};
use crate::connection_limiter::ConnectionLimiter;
use crate::events::Events;
use crate::leader::Leader;
use crate::metrics::Metrics;
use crate::other_origins::Origin;
use crate::response::ApiError;
use crate::response_room::ResponseRoom;
use crate::routes::health::HealthCache;
use crate::tokens::{Guard, TokenSource};

/// The state that all requests of a server share. Clones are cheap.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

pub(crate) struct AppState {
    pub(crate) queue: Queue,
    pub(crate) limits: Limits,
    pub(crate) guard: Guard,
    pub(crate) hosts: Vec<String>,
    pub(crate) origins: Vec<Origin>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    pub(crate) activity: Activity,
    /// Where its counters are stored, if they are.
    pub(crate) activity_store: Option<ActivityStore>,
    pub(crate) bulk_jobs: BulkJobs,
    /// The bytes that request bodies may still take.
    pub(crate) body_permits: Arc<Semaphore>,
    pub(crate) response_room: ResponseRoom,
    pub(crate) listeners: Arc<Semaphore>,
    pub(crate) blob_uploads: Arc<Semaphore>,
    pub(crate) jobs: JobConfig,
    pub(crate) connection_limiter: Arc<ConnectionLimiter>,
    pub(crate) waiting_permits: Arc<Semaphore>,
    pub(crate) health_cache: HealthCache,
    pub(crate) counts: Option<CountsFn>,
    pub(crate) prices: qo_store::wrap::Prices,
    pub(crate) leader: Option<Arc<dyn Leader>>,
    pub(crate) cluster: Option<Arc<dyn ClusterControl>>,
    /// Whether this answers reads that may be old.
    pub(crate) is_stale: bool,
    pub(crate) stats_max_age: Duration,
    /// Whether all connections are encrypted. Then browsers are told to never use others.
    pub(crate) has_tls: bool,
    stopping: watch::Sender<bool>,
}

impl App {
    pub(crate) fn new(queue: Queue, config: &ServerConfig, tokens: TokenSource) -> Self {
        // Whoever may read tasks here need not be one who has the keys.
        let queue = queue.without_encryption();
        let runtime = Arc::clone(queue.runtime());
        let limits = config.limits.clone();
        // The limit of a semaphore is far above any sensible setting.
        let room = limits.bodies_max_bytes.min(Semaphore::MAX_PERMITS);
        let state = Arc::new(AppState {
            guard: Guard::new(tokens, Arc::clone(&runtime)),
            hosts: config
                .hosts
                .iter()
                .map(|host| host.to_ascii_lowercase())
                .collect(),
            origins: config.origins.clone(),
            events: Events::new(Arc::clone(&runtime)),
            claims: Arc::new(Claims::new(
                Arc::clone(queue.engine()),
                runtime,
                limits.response_max_bytes,
            )),
            metrics: Metrics::default(),
            activity: Activity::new(queue.now()),
            activity_store: config.activity.clone(),
            bulk_jobs: BulkJobs::default(),
            body_permits: Arc::new(Semaphore::new(room)),
            response_room: ResponseRoom::new(limits.responses_max_bytes),
            listeners: Arc::new(Semaphore::new(limits.listeners_max)),
            blob_uploads: Arc::new(Semaphore::new(limits.blob_uploads_max)),
            jobs: config.jobs,
            connection_limiter: ConnectionLimiter::new(&limits),
            waiting_permits: Arc::new(Semaphore::new(
                limits.waiting_max.min(Semaphore::MAX_PERMITS),
            )),
            health_cache: HealthCache::default(),
            counts: config.counts.clone(),
            prices: config.prices,
            leader: config.leader.clone(),
            cluster: config.cluster.clone(),
            is_stale: config.cluster.is_some() && config.leader.is_none(),
            stats_max_age: config.stats_max_age,
            has_tls: config.tls.is_some(),
            stopping: watch::Sender::new(false),
            limits,
            queue,
        });
        let watcher: Weak<AppState> = Arc::downgrade(&state);
        let engine_publishes = state.queue.engine().watch(watcher);
        state.events.set_engine_publishes(engine_publishes);
        Self(state)
    }

    /// The shared state itself.
    pub(crate) fn state(&self) -> &Arc<AppState> {
        &self.0
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        self.queue.engine().as_ref()
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.queue.runtime()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.queue.now()
    }

    /// The number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.connection_limiter.count()
    }

    /// Admits a request that waits. A waiting request keeps a connection, and the others need connections, too.
    pub(crate) fn admit_waiting(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.waiting_permits).try_acquire_owned();
        permit.map_err(|_| {
            ApiError::new(
                Condition::Overloaded,
                "the server has the maximum number of waiting requests; try again in a moment, or without wait_ms",
            )
        })
    }

    /// The epoch in which this process may serve now, `None` if it may not. Always 0 if there is only one server.
    pub(crate) async fn confirm_leader(&self) -> Option<u64> {
        match &self.leader {
            None => Some(0),
            Some(leader) => {
                let epoch = leader.confirm().await?;
                self.activity.lead(epoch, self.now());
                Some(epoch)
            }
        }
    }

    /// Reports an operation of this server to listeners and counters, unless the engine does.
    pub(crate) fn publish(&self, operation: &'static str, task: &Task) {
        if self.events.engine_publishes() {
            return;
        }
        if let Some(measurement) = Measurement::of(operation, task) {
            self.activity.record(&measurement);
        }
        self.events.publish(operation, task);
    }

    /// Waits until this process no longer serves in this epoch.
    pub(crate) async fn epoch_ended(&self, epoch: u64) {
        match &self.leader {
            None => std::future::pending().await,
            Some(leader) => leader.epoch_ended(epoch).await,
        }
    }

    /// Ends all waiting requests.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
        self.claims.stop();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the server is stopping.
    pub(crate) async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // `self` owns the sender, so the wait cannot fail.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}

impl std::ops::Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}
