//! From a URL to a queue.
//!
//! | step | requests |
//! | --- | --- |
//! | the store is opened | none |
//! | it is checked, so that a wrong bucket or wrong credentials give a line that says what to do | 1 LIST |
//! | it is trusted by the verdict that is remembered in it, or probed for a few seconds | 1 GET, or the probe |
//!
//! A store in memory skips the last two: nobody else can write there, and it is gone with the process.
//!
//! With `?engine=slate` the broker is looked for (1 GET) and asked; where there is none, the queue is opened here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qo_broker::BrokerEngine;
use qo_broker::{JsonConfig, SlateConfig};
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_store::client::ClientConfig;
use qo_store::probe::{ProbeOptions, ensure_trusted};
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::{OpenOptions, Store, StoreClient, StoreKind, check, open, open_default};

use crate::broker::{self, Broker, Place};
use crate::error::Error;
use crate::queue::Queue;
use crate::remote;

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
    runtime: Option<Arc<dyn Runtime>>,
    objects: Option<DirectConfig>,
    json: Option<JsonConfig>,
    slate: Option<SlateConfig>,
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
            runtime: None,
            objects: None,
            json: None,
            slate: None,
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
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Settings of direct mode; those that suit the kind of store, with what `QO_INDEX_MODE`, `QO_READY_PAGE_SIZE` and
    /// `QO_LOG_SCAN_PAGE_SIZE` say, if not given.
    pub fn objects(mut self, config: DirectConfig) -> Self {
        self.objects = Some(config);
        self
    }

    /// Settings of the engine that keeps the queue in one JSON object (`?engine=json`); those that suit the kind of store, if
    /// not given.
    pub fn json(mut self, config: JsonConfig) -> Self {
        self.json = Some(config);
        self
    }

    /// Settings of the engine on SlateDB (`?engine=slate`), if it is opened in this process; the defaults, if not given.
    pub fn slate(mut self, config: SlateConfig) -> Self {
        self.slate = Some(config);
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

    /// Opens the store alone. No request is sent, so it can be one that is not there, or that cannot be trusted.
    pub fn open_store(self) -> Result<Store, Error> {
        let (_, options) = self.surroundings();
        Ok(self.store_in(&options)?.0)
    }

    /// Opens the store, makes sure that it can be used, and gives its queue.
    pub async fn open(self) -> Result<Queue, Error> {
        let (runtime, options) = self.surroundings();
        let url = self.url.as_deref().or_else(|| options.var("QO_STORE"));
        if let Some(url) = url.filter(|url| remote::names_servers(url)) {
            return Box::pin(remote::open(url, &options, runtime)).await;
        }
        let (store, engine) = self.store_in(&options)?;
        let variables = variables(&options);
        let is_local = matches!(store.kind, StoreKind::Memory | StoreKind::Sqlite);
        let objects = match (engine, self.objects) {
            (EngineName::Objects, None) => Some(settings(store.kind, &variables)?),
            (_, config) => config,
        };
        make_sure(&store, runtime.as_ref(), self.probe.as_ref()).await?;
        let (things, clock) = (Arc::clone(&store.objects), Arc::clone(&store.clock));
        match engine {
            EngineName::Objects => {
                let client = StoreClient::new(things, clock, Arc::clone(&runtime), self.client);
                let config = objects.unwrap_or_default();
                let engine =
                    DirectEngine::new(client, store.admin.clone(), Arc::clone(&runtime), config);
                Ok(Queue::direct(engine, runtime, store, variables))
            }
            EngineName::Json => {
                let config = self.json.unwrap_or_else(|| {
                    if is_local {
                        JsonConfig::local()
                    } else {
                        JsonConfig::default()
                    }
                });
                let engine =
                    BrokerEngine::json(things, clock, Arc::clone(&runtime), self.client, config);
                Ok(Queue::new(Arc::new(engine), runtime))
            }
            EngineName::Slate => {
                let slate = self.slate.unwrap_or_default();
                let place = Place::new(store, runtime, self.client, slate, &options)?;
                Box::pin(broker::connect(&place, &options)).await
            }
        }
    }

    /// Whether the queue is one that a broker serves (`?engine=slate`): one process at a time has it open.
    pub fn needs_broker(&self) -> Result<bool, Error> {
        let (_, options) = self.surroundings();
        let url = self.url.as_deref().or_else(|| options.var("QO_STORE"));
        Ok(match url.filter(|url| !remote::names_servers(url)) {
            None => false,
            Some(url) => split_engine(url)?.1 == EngineName::Slate,
        })
    }

    /// Opens the store, makes sure that it can be used, and gives a broker that stands by to serve its queue. Only a queue that
    /// [needs one](Connect::needs_broker) has one.
    pub async fn open_broker(self) -> Result<Broker, Error> {
        let (runtime, options) = self.surroundings();
        let (store, engine) = self.store_in(&options)?;
        if engine != EngineName::Slate {
            return Err(Error::NoBroker);
        }
        make_sure(&store, runtime.as_ref(), self.probe.as_ref()).await?;
        let slate = self.slate.unwrap_or_default();
        Broker::new(Place::new(store, runtime, self.client, slate, &options)?).await
    }

    fn surroundings(&self) -> (Arc<dyn Runtime>, OpenOptions) {
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::shared);
        let options = self.options.clone();
        let options = options.unwrap_or_else(|| OpenOptions::from_env(Arc::clone(&runtime)));
        (runtime, options)
    }

    /// The store, and the engine that is to run on it.
    fn store_in(&self, options: &OpenOptions) -> Result<(Store, EngineName), Error> {
        Ok(match &self.url {
            Some(url) => {
                let (url, engine) = split_engine(url)?;
                (open(&url, options)?, engine)
            }
            None => match options.var("QO_STORE") {
                None => (open_default(options)?, EngineName::Objects),
                Some(url) => {
                    let (url, engine) = split_engine(url)?;
                    let options = options.clone().with_var("QO_STORE", url);
                    (open_default(&options)?, engine)
                }
            },
        })
    }
}

/// What makes the operations durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineName {
    /// Direct mode.
    Objects,
    /// Broker mode, in one JSON object that any number of processes may share.
    Json,
    /// Broker mode, in SlateDB, one process at a time.
    Slate,
}

/// What suits the kind of store, with what the environment says.
fn settings(kind: StoreKind, variables: &BTreeMap<String, String>) -> Result<DirectConfig, Error> {
    let base = match kind {
        StoreKind::Memory | StoreKind::Sqlite => DirectConfig::local(),
        StoreKind::S3 | StoreKind::Gcs | StoreKind::Azure => DirectConfig::default(),
    };
    Ok(DirectConfig::from_env(base, variables)?)
}

/// What the environment says to qo.
pub(crate) fn variables(options: &OpenOptions) -> BTreeMap<String, String> {
    options
        .vars_with_prefix("QO_")
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

async fn make_sure(
    store: &Store,
    runtime: &dyn Runtime,
    probe: Option<&ProbeOptions>,
) -> Result<(), Error> {
    if store.kind == StoreKind::Memory {
        return Ok(());
    }
    check(store).await?;
    if let Some(options) = probe {
        let verdict =
            ensure_trusted(&store.objects, store.admin.as_deref(), runtime, options).await?;
        tracing::debug!(store = store.description, probed_at = %verdict.probed_at, "trusted");
    }
    Ok(())
}

/// The URL of the store alone, and the engine: which one runs on a store is decided here, and the store knows nothing of it.
fn split_engine(url: &str) -> Result<(String, EngineName), Error> {
    let mut engine = EngineName::Objects;
    let Some((place, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), engine));
    };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("engine", "objects") => engine = EngineName::Objects,
            ("engine", "json") => engine = EngineName::Json,
            ("engine", "slate") => engine = EngineName::Slate,
            ("engine", name) => {
                return Err(Error::UnknownEngine {
                    name: name.chars().take(32).collect(),
                });
            }
            _ => kept.push(pair),
        }
    }
    if kept.is_empty() {
        return Ok((place.to_owned(), engine));
    }
    Ok((format!("{place}?{}", kept.join("&")), engine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_environment_has_its_say_and_nonsense_is_named() {
        let options =
            |mode: &str| OpenOptions::new(TokioRuntime::shared()).with_var("QO_INDEX_MODE", mode);
        let config = settings(StoreKind::Memory, &variables(&options("hybrid"))).unwrap();
        assert_eq!(config.index_mode, qo_direct::IndexMode::Hybrid);
        let opened = Connect::to("memory:").options(options("sideways")).open();
        let error = opened.await.unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::BadInput);
        assert!(error.to_string().contains("QO_INDEX_MODE"), "{error}");
    }

    #[test]
    fn a_store_is_opened_without_asking_whether_it_is_there() {
        let options = OpenOptions::new(TokioRuntime::shared())
            .with_var("AWS_ACCESS_KEY_ID", "a")
            .with_var("AWS_SECRET_ACCESS_KEY", "b");
        let connect = Connect::to("s3://b?engine=objects&endpoint=http://127.0.0.1:9");
        let store = connect.options(options).open_store().unwrap();
        assert_eq!(store.bucket, "b");
        assert!(Connect::to("s3://b?engine=raft").open_store().is_err());
    }

    #[test]
    fn the_engine_is_taken_off_the_url() {
        use EngineName::{Json, Objects, Slate};
        for (url, store, engine) in [
            ("memory:", "memory:", Objects),
            ("memory:?engine=objects", "memory:", Objects),
            ("memory:?engine=json", "memory:", Json),
            ("s3://b/p?engine=slate&region=r", "s3://b/p?region=r", Slate),
            ("s3://b?region=r&engine=objects", "s3://b?region=r", Objects),
            ("s3://b?region=engine", "s3://b?region=engine", Objects),
        ] {
            assert_eq!(split_engine(url).unwrap(), (store.to_owned(), engine));
        }
        for (url, name) in [("memory:?engine=raft", "raft"), ("s3://b?engine", "")] {
            let error = split_engine(url).unwrap_err();
            assert_eq!(
                error,
                Error::UnknownEngine {
                    name: name.to_owned()
                }
            );
        }
    }
}
