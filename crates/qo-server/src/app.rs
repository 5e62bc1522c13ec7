//! The state that all requests of a server share.

use std::sync::{Arc, Weak};
use std::time::Duration;

use qo::{Engine, Queue, Timestamp};
use qo_store::runtime::Runtime;
use tokio::sync::{Semaphore, watch};

use crate::claims::Claims;
use crate::config::{CountsFn, Limits, ServerConfig};
use crate::events::Events;
use crate::leader::Leader;
use crate::metrics::Metrics;
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
    pub(crate) claims: Arc<Claims>,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    /// The bytes that request bodies may still take.
    pub(crate) body_room: Arc<Semaphore>,
    pub(crate) response_room: ResponseRoom,
    pub(crate) listeners: Arc<Semaphore>,
    pub(crate) connection_room: Arc<Semaphore>,
    pub(crate) health_cache: HealthCache,
    pub(crate) counts: Option<CountsFn>,
    pub(crate) prices: qo_store::wrap::Prices,
    pub(crate) leader: Option<Arc<dyn Leader>>,
    pub(crate) stats_max_age: Duration,
    stopping: watch::Sender<bool>,
}

impl App {
    pub(crate) fn new(queue: Queue, config: &ServerConfig, tokens: TokenSource) -> Self {
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
            claims: Arc::new(Claims::new(Arc::clone(queue.engine()), runtime)),
            events: Events::default(),
            metrics: Metrics::default(),
            body_room: Arc::new(Semaphore::new(room)),
            response_room: ResponseRoom::new(limits.responses_max_bytes),
            listeners: Arc::new(Semaphore::new(limits.listeners_max)),
            connection_room: Arc::new(Semaphore::new(limits.connections_max)),
            health_cache: HealthCache::default(),
            counts: config.counts.clone(),
            prices: config.prices,
            leader: config.leader.clone(),
            stats_max_age: config.stats_max_age,
            stopping: watch::Sender::new(false),
            limits,
            queue,
        });
        let watcher: Weak<AppState> = Arc::downgrade(&state);
        let engine_publishes = state.queue.engine().watch(watcher);
        state.events.set_engine_publishes(engine_publishes);
        Self(state)
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
        let free = self.connection_room.available_permits();
        self.limits.connections_max.saturating_sub(free)
    }

    /// The epoch in which this process may serve now, `None` if it may not. Always 0 if there is only one server.
    pub(crate) async fn confirm_leader(&self) -> Option<u64> {
        match &self.leader {
            None => Some(0),
            Some(leader) => leader.confirm().await,
        }
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
