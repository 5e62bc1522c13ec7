//! From a URL to a queue.
//!
//! | step | requests |
//! | --- | --- |
//! | the store is opened | none |
//! | it is checked, so that a wrong bucket or wrong credentials give a line that says what to do | 1 LIST |
//! | it is trusted by the verdict that is remembered in it, or probed for a few seconds | 1 GET, or the probe |
//!
//! A store in memory skips the last two: nobody else can write there, and it is gone with the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qo_engine::ObjectsEngine;
use qo_engine::objects::ObjectsConfig;
use qo_store::client::ClientConfig;
use qo_store::probe::{ProbeOptions, ensure_trusted};
use qo_store::world::{TokioWorld, World};
use qo_store::{OpenOptions, Store, StoreClient, StoreKind, check, open, open_default};

use crate::error::Error;
use crate::queue::Queue;

/// Connects to the queue at a URL, with the credentials and settings of the environment.
pub async fn connect(url: &str) -> Result<Queue, Error> {
    Connect::to(url).open().await
}

/// Connects to the queue that the environment names: the URL in `QO_STORE`, else the bucket in `S3_BUCKET`, else an SQLite
/// file in the user's data directory.
pub async fn connect_default() -> Result<Queue, Error> {
    Connect::to_default().open().await
}

/// A connection to be, for those who want to say more than a URL.
#[derive(Debug, Clone)]
#[must_use = "nothing is opened before `open`"]
pub struct Connect {
    url: Option<String>,
    options: Option<OpenOptions>,
    world: Option<Arc<dyn World>>,
    objects: Option<ObjectsConfig>,
    client: ClientConfig,
    /// Nothing, if the store is trusted unseen.
    probe: Option<ProbeOptions>,
}

impl Connect {
    /// A connection to the queue at a URL.
    pub fn to(url: impl Into<String>) -> Self {
        Self {
            url: Some(url.into()),
            ..Self::to_default()
        }
    }

    /// A connection to the queue that the environment names.
    pub fn to_default() -> Self {
        Self {
            url: None,
            options: None,
            world: None,
            objects: None,
            client: ClientConfig::default(),
            probe: Some(ProbeOptions::default()),
        }
    }

    /// The surroundings in which the store is opened; the environment of the process, if not given.
    pub fn options(mut self, options: OpenOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Time, sleeping, spawning and randomness; the real ones, if not given.
    pub fn world(mut self, world: Arc<dyn World>) -> Self {
        self.world = Some(world);
        self
    }

    /// Settings of direct mode; those that suit the kind of store, with what `QO_INDEX_MODE`, `QO_READY_PAGE_SIZE` and
    /// `QO_LOG_SCAN_PAGE_SIZE` say, if not given.
    pub fn objects(mut self, config: ObjectsConfig) -> Self {
        self.objects = Some(config);
        self
    }

    /// How the store is asked, and asked again.
    pub fn client(mut self, config: ClientConfig) -> Self {
        self.client = config;
        self
    }

    /// How much the probe may do, if the store is not known yet.
    pub fn probe(mut self, options: ProbeOptions) -> Self {
        self.probe = Some(options);
        self
    }

    /// How long the probe may take, if the store is not known yet.
    pub fn probe_budget(mut self, budget: Duration) -> Self {
        self.probe.get_or_insert_default().budget = budget;
        self
    }

    /// Trusts the store unseen. On a store whose conditional writes do not hold, tasks are lost or done twice.
    pub fn skip_probe(mut self) -> Self {
        self.probe = None;
        self
    }

    /// Opens the store, makes sure that it can be used, and gives its queue.
    pub async fn open(self) -> Result<Queue, Error> {
        let world = self.world.unwrap_or_else(TokioWorld::shared);
        let options = self
            .options
            .unwrap_or_else(|| OpenOptions::from_env(Arc::clone(&world)));
        let store = match &self.url {
            Some(url) => open(&without_engine(url)?, &options)?,
            None => match options.var("QO_STORE") {
                None => open_default(&options)?,
                Some(url) => {
                    let url = without_engine(url)?;
                    open_default(&options.clone().with_var("QO_STORE", url))?
                }
            },
        };
        let variables = variables(&options);
        let config = match self.objects {
            Some(config) => config,
            None => settings(store.kind, &variables)?,
        };
        make_sure(&store, world.as_ref(), self.probe.as_ref()).await?;
        let client = StoreClient::new(
            Arc::clone(&store.objects),
            Arc::clone(&store.clock),
            Arc::clone(&world),
            self.client,
        );
        let engine = ObjectsEngine::new(client, store.admin.clone(), Arc::clone(&world), config);
        Ok(Queue::direct(engine, world, store, variables))
    }
}

/// What suits the kind of store, with what the environment says.
fn settings(kind: StoreKind, variables: &BTreeMap<String, String>) -> Result<ObjectsConfig, Error> {
    let base = match kind {
        StoreKind::Memory | StoreKind::Sqlite => ObjectsConfig::local(),
        StoreKind::S3 | StoreKind::Gcs | StoreKind::Azure => ObjectsConfig::default(),
    };
    Ok(ObjectsConfig::from_env(base, variables)?)
}

/// What the environment says to qo.
fn variables(options: &OpenOptions) -> BTreeMap<String, String> {
    options
        .vars_with_prefix("QO_")
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

async fn make_sure(
    store: &Store,
    world: &dyn World,
    probe: Option<&ProbeOptions>,
) -> Result<(), Error> {
    if store.kind == StoreKind::Memory {
        return Ok(());
    }
    check(store).await?;
    if let Some(options) = probe {
        let verdict =
            ensure_trusted(&store.objects, store.admin.as_deref(), world, options).await?;
        tracing::debug!(store = store.description, probed_at = %verdict.probed_at, "trusted");
    }
    Ok(())
}

/// The URL of the store alone: which engine runs on it is decided here, and the store knows nothing of it.
fn without_engine(url: &str) -> Result<String, Error> {
    let Some((place, query)) = url.split_once('?') else {
        return Ok(url.to_owned());
    };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("engine", "objects") => {}
            ("engine", name) => {
                return Err(Error::UnknownEngine {
                    name: name.chars().take(32).collect(),
                });
            }
            _ => kept.push(pair),
        }
    }
    if kept.is_empty() {
        return Ok(place.to_owned());
    }
    Ok(format!("{place}?{}", kept.join("&")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_environment_has_its_say_and_nonsense_is_named() {
        let options =
            |mode: &str| OpenOptions::new(TokioWorld::shared()).with_var("QO_INDEX_MODE", mode);
        let config = settings(StoreKind::Memory, &variables(&options("hybrid"))).unwrap();
        assert_eq!(config.index_mode, qo_engine::objects::IndexMode::Hybrid);
        let opened = Connect::to("memory:").options(options("sideways")).open();
        let error = opened.await.unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::BadInput);
        assert!(error.to_string().contains("QO_INDEX_MODE"), "{error}");
    }

    #[test]
    fn the_engine_is_taken_off_the_url() {
        for (url, store) in [
            ("memory:", "memory:"),
            ("memory:?engine=objects", "memory:"),
            ("s3://b/p?engine=objects&region=r", "s3://b/p?region=r"),
            ("s3://b?region=r&engine=objects", "s3://b?region=r"),
            ("s3://b?region=engine", "s3://b?region=engine"),
        ] {
            assert_eq!(without_engine(url).unwrap(), store);
        }
        for (url, name) in [("memory:?engine=raft", "raft"), ("s3://b?engine", "")] {
            let error = without_engine(url).unwrap_err();
            assert_eq!(
                error,
                Error::UnknownEngine {
                    name: name.to_owned()
                }
            );
        }
    }
}
