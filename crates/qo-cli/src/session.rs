//! One run of the command: environment, settings and output.

use std::sync::Arc;

use qo::{Actor, Queue};
use qo_store::Store;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::wrap::RequestCounter;

use crate::config::Settings;
use crate::connection;
use crate::environment::Environment;
use crate::failure::{Failure, FailureKind};
use crate::keys;
use crate::output::Screen;
use crate::signals::close_in_time;

/// One run of the command.
#[derive(Debug)]
pub struct Session {
    /// Environment variables and the current directory.
    pub environment: Environment,
    /// The settings in effect.
    pub settings: Settings,
    /// Standard streams.
    pub screen: Screen,
    /// Time, sleeping, spawning and randomness.
    pub runtime: Arc<dyn Runtime>,
    /// Counts of store requests.
    pub requests: RequestCounter,
    /// Description and credentials source of the opened store.
    store: Option<(String, String)>,
    /// The connected queue.
    queue: Option<Queue>,
}

impl Session {
    /// Creates a session with the tokio runtime.
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

    /// Connects to the configured queue, with the configured encryption keys. The store is opened, checked and probed.
    pub async fn connect(&mut self) -> Result<Queue, Failure> {
        let keyring = match &self.settings.encryption {
            Some(source) => Some(keys::load(source, self.runtime.as_ref()).await?),
            None => None,
        };
        let queue = self.connect_without_keys().await?;
        Ok(match keyring {
            Some(keyring) => queue.encrypted(keyring),
            None => queue,
        })
    }

    /// Connects to the configured queue without encryption keys, as a server does: it passes payloads on as they are.
    pub async fn connect_without_keys(&mut self) -> Result<Queue, Failure> {
        let queue = connection::connect(self).await?;
        if let Some(store) = queue.store() {
            self.remember(store);
        }
        self.queue = Some(queue.clone());
        Ok(queue)
    }

    /// Closes the queue, unless it is in direct mode. An engine that allows one process at a time would otherwise make the next
    /// command wait.
    pub async fn close(&mut self) {
        if let Some(queue) = self.queue.take()
            && queue.direct_engine().is_none()
        {
            close_in_time(self.runtime.as_ref(), queue.close()).await;
        }
    }

    /// Who runs this command, for the history of the tasks that it changes: `QO_ACTOR`, else the user and the machine.
    pub fn actor(&self) -> Option<Actor> {
        let named = self.environment.var("QO_ACTOR").map(str::to_owned);
        let user = || {
            let mut names = ["USER", "LOGNAME", "USERNAME"].into_iter();
            let user = names.find_map(|name| self.environment.var(name));
            match (user, qo::host_name()) {
                (Some(user), Some(host)) => Some(format!("{user}@{host}")),
                (Some(user), None) => Some(user.to_owned()),
                (None, host) => host,
            }
        };
        Actor::from_text(&named.or_else(user)?)
    }

    /// Opens the configured store without sending a request.
    pub fn open_store(&mut self) -> Result<Store, Failure> {
        let store = connection::open_store(self)?;
        self.remember(&store);
        Ok(store)
    }

    fn remember(&mut self, store: &Store) {
        tracing::debug!(store = store.description, origin = %self.settings.store.origin, "store");
        self.store = Some((store.description.clone(), store.credentials.to_string()));
    }

    /// Adds the store or the credentials to the hint of a failure.
    pub fn explain(&self, mut failure: Failure) -> Failure {
        let Some((description, credentials)) = &self.store else {
            return failure;
        };
        let detail = match failure.kind {
            FailureKind::NotFound => format!(
                "the store is {description}, from {}",
                self.settings.store.origin
            ),
            FailureKind::Denied if !failure.is_local => {
                format!("the credentials are {credentials}")
            }
            _ => return failure,
        };
        failure.hint = Some(match failure.hint {
            None => detail,
            Some(hint) => format!("{hint}; {detail}"),
        });
        failure
    }
}
