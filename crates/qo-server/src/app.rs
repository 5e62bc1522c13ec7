//! What all requests of a server share.

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
use crate::routes::health::Findings;
use crate::tokens::{Guard, TokenSource};

/// What all requests of a server share. Clones are cheap.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) limits: Limits,
    pub(crate) guard: Guard,
    pub(crate) hosts: Vec<String>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    /// How many bytes of bodies may still come in.
    pub(crate) body_room: Arc<Semaphore>,
    pub(crate) listeners: Arc<Semaphore>,
    pub(crate) connection_room: Arc<Semaphore>,
    pub(crate) findings: Findings,
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
        // A semaphore has a largest number of permits, which no sensible setting comes near.
        let room = limits.bodies_max_bytes.min(Semaphore::MAX_PERMITS);
        let shared = Arc::new(Shared {
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
            listeners: Arc::new(Semaphore::new(limits.listeners_max)),
            connection_room: Arc::new(Semaphore::new(limits.connections_max)),
            findings: Findings::default(),
            counts: config.counts.clone(),
            prices: config.prices,
            leader: config.leader.clone(),
            stats_max_age: config.stats_max_age,
            stopping: watch::Sender::new(false),
            limits,
            queue,
        });
        let watcher: Weak<Shared> = Arc::downgrade(&shared);
        let told = shared.queue.engine().watch(watcher);
        shared.events.set_told_by_engine(told);
        Self(shared)
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

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        let free = self.connection_room.available_permits();
        self.limits.connections_max.saturating_sub(free)
    }

    /// As which leader this process may serve at this moment, if it may. Where there is only one server, that is always the same one.
    pub(crate) async fn lead(&self) -> Option<u64> {
        match &self.leader {
            None => Some(0),
            Some(leader) => leader.confirm().await,
        }
    }

    /// Returns once this process does not serve as this leader any more.
    pub(crate) async fn led(&self, epoch: u64) {
        match &self.leader {
            None => std::future::pending().await,
            Some(leader) => leader.over(epoch).await,
        }
    }

    /// Tells everything that waits to come to its end.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Returns once the server was told to stop.
    pub(crate) async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as this.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
