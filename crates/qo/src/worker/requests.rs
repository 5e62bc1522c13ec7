//! Requests of operators to a worker.

use std::sync::Arc;

use qo_engine::api::{WorkerAction, WorkerRequest};
use tokio::sync::watch;

/// What operators ask a worker to do, as it knows from its last heartbeat. Clones share their state.
/// [`Worker::requests`](super::Worker::requests) returns one.
#[derive(Debug, Clone)]
pub struct WorkerRequests {
    current: Arc<watch::Sender<Option<WorkerRequest>>>,
}

impl WorkerRequests {
    pub(super) fn new() -> Self {
        Self {
            current: Arc::new(watch::Sender::new(None)),
        }
    }

    /// The current request.
    pub fn current(&self) -> Option<WorkerRequest> {
        self.current.borrow().clone()
    }

    /// Waits until the worker is asked to stop. The worker stops by itself.
    pub async fn stop(&self) -> WorkerRequest {
        let mut changes = self.current.subscribe();
        let is_stop = |request: &Option<WorkerRequest>| {
            (request.as_ref()).is_some_and(|request| request.action == WorkerAction::Stop)
        };
        let request = changes.wait_for(is_stop).await.ok();
        match request.and_then(|request| request.clone()) {
            Some(request) => request,
            // The sender lives as long as this.
            None => std::future::pending().await,
        }
    }

    /// Whether no more tasks are to be claimed.
    pub(super) fn is_quiet(&self) -> bool {
        self.current.borrow().is_some()
    }

    /// Notifies of changes.
    pub(super) fn changes(&self) -> watch::Receiver<Option<WorkerRequest>> {
        self.current.subscribe()
    }

    /// Records what a heartbeat returned.
    pub(super) fn set(&self, request: Option<WorkerRequest>) {
        let is_changed = self.current.send_if_modified(|current| {
            let is_changed = *current != request;
            current.clone_from(&request);
            is_changed
        });
        if !is_changed {
            return;
        }
        if let Some(WorkerRequest { action, by, .. }) = request {
            let by = by.map_or_else(|| "an operator".to_owned(), |by| by.to_string());
            tracing::info!(%by, "asked to {}", action.name());
        } else {
            tracing::info!("asked to claim tasks again");
        }
    }
}
