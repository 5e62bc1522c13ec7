//! One run of the command: what surrounds it, what holds for it, and where it writes.

use std::sync::Arc;

use qo::Queue;
use qo_store::Store;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::wrap::RequestCounter;

use crate::config::Settings;
use crate::connection;
use crate::environment::Environment;
use crate::failure::{Failure, FailureKind};
use crate::output::Screen;

/// One run of the command.
#[derive(Debug)]
pub struct Session {
    /// Variables and the current directory.
    pub environment: Environment,
    /// Which store is meant, and what `qo.toml` says.
    pub settings: Settings,
    /// Where it writes.
    pub screen: Screen,
    /// Time, sleeping, spawning and randomness.
    pub runtime: Arc<dyn Runtime>,
    /// What the store was asked.
    pub requests: RequestCounter,
    /// What is known of the store that was opened: its description and where its credentials come from.
    store: Option<(String, String)>,
    /// The queue that was connected to.
    queue: Option<Queue>,
}

impl Session {
    /// A run with the real runtime behind it.
    pub fn new(environment: Environment, settings: Settings, screen: Screen) -> Self {
        Self {
            environment,
            settings,
            screen,
            runtime: TokioRuntime::shared(),
            requests: RequestCounter::default(),
            store: None,
            queue: None,
        }
    }

    /// Connects to the queue that is meant: opened, checked and trusted.
    pub async fn connect(&mut self) -> Result<Queue, Failure> {
        let queue = connection::connect(self).await?;
        if let Some(store) = queue.store() {
            self.remember(store);
        }
        self.queue = Some(queue.clone());
        Ok(queue)
    }

    /// Closes the queue that was connected to, if this process may be the only one that has it open: the next command need not
    /// wait then. In direct mode nobody waits for that.
    pub async fn close(&mut self) {
        if let Some(queue) = self.queue.take()
            && queue.objects_engine().is_none()
        {
            queue.close().await;
        }
    }

    /// Opens the store that is meant, without a request.
    pub fn open_store(&mut self) -> Result<Store, Failure> {
        let store = connection::open_store(self)?;
        self.remember(&store);
        Ok(store)
    }

    fn remember(&mut self, store: &Store) {
        tracing::debug!(store = store.description, origin = %self.settings.store.origin, "store");
        self.store = Some((store.description.clone(), store.credentials.to_string()));
    }

    /// Adds to a failure what is known of the store: a task is not found somewhere, and somebody's credentials are refused.
    pub fn explain(&self, mut failure: Failure) -> Failure {
        let Some((description, credentials)) = &self.store else {
            return failure;
        };
        let more = match failure.kind {
            FailureKind::NotFound => format!(
                "the store is {description}, by {}",
                self.settings.store.origin
            ),
            FailureKind::Denied => format!("the credentials are {credentials}"),
            _ => return failure,
        };
        failure.hint = Some(match failure.hint {
            None => more,
            Some(hint) => format!("{hint}; {more}"),
        });
        failure
    }
}
