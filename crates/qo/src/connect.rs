//! Opens a queue by URL.
//!
//! | step | requests |
//! | --- | --- |
//! | Open the store. | none |
//! | Check it, so that a wrong bucket or wrong credentials give an error that says what to do. | 1 LIST |
//! | Read the report of an earlier probe, or probe the store for a few seconds. | 1 GET, or the probe |
//!
//! A store in memory skips the last two steps: no other process can write to it.
//!
//! With `?engine=slate`, the client reads the broker's address from the store (1 GET) and connects to it. Without a broker it opens
//! the queue itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qo_blob::Blobs;
#[cfg(feature = "slate")]
use qo_broker::SlateConfig;
use qo_broker::{BrokerEngine, JsonConfig};
use qo_direct::{DirectConfig, DirectEngine};
use qo_store::client::ClientConfig;
use qo_store::open::OpenError;
use qo_store::probe::{ProbeOptions, ensure_trusted};
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::{OpenOptions, Store, StoreClient, StoreKind, check, open, open_default};

#[cfg(feature = "slate")]
use crate::broker::{self, Broker, BrokerSetup};
use crate::error::Error;
use crate::queue::Queue;
#[cfg(feature = "remote")]
use crate::remote;

/// Connects to the queue at a URL, with credentials and settings from the environment.
///
/// The [crate documentation](crate#urls-and-cargo-features) lists the URLs. The first connection to a store probes it for a few
/// seconds and stores the report; later connections read that.
pub async fn connect(url: &str) -> Result<Queue, Error> {
    Connect::to(url).open().await
}

/// Connects to the queue that the environment names: the URL in `QO_STORE`, else the bucket in `S3_BUCKET`, else an SQLite
/// file in the user's data directory.
pub async fn connect_default() -> Result<Queue, Error> {
    Connect::to_default().open().await
}

/// Whether a URL names servers (`http:`, `https:`, `cluster:`, `mdns:`) and not a store.
pub fn names_servers(url: &str) -> bool {
    if mdns_name(url).is_some() {
        return true;
    }
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    ["http", "https", "cluster"]
        .iter()
        .any(|servers| scheme.eq_ignore_ascii_case(servers))
}

/// The name of a server in a URL such as `mdns:laptop-7777`; empty in `mdns:`.
pub(crate) fn mdns_name(url: &str) -> Option<&str> {
    let (scheme, name) = url.split_once(':')?;
    scheme.eq_ignore_ascii_case("mdns").then_some(name)
}

/// Connection builder.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), qo::Error> {
/// use qo::{Connect, DirectConfig, IndexMode};
///
/// let mut config = DirectConfig::local();
/// config.index_mode = IndexMode::Hybrid;
/// let queue = Connect::to("memory:").direct(config).open().await?;
/// # queue.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is opened before `open`"]
pub struct Connect {
    url: Option<String>,
    options: Option<OpenOptions>,
    runtime: Option<Arc<dyn Runtime>>,
    direct: Option<DirectConfig>,
    json: Option<JsonConfig>,
    #[cfg(feature = "slate")]
    slate: Option<SlateConfig>,
    client: ClientConfig,
    /// `None` skips the probe.
    probe: Option<ProbeOptions>,
}

impl Connect {
    /// Connects to the queue at a URL.
    pub fn to(url: impl Into<String>) -> Self {
        Self {
            url: Some(url.into()),
            ..Self::to_default()
        }
    }

    /// Connects to the queue that the environment names, like [`connect_default`].
    pub fn to_default() -> Self {
        Self {
            url: None,
            options: None,
            runtime: None,
            direct: None,
            json: None,
            #[cfg(feature = "slate")]
            slate: None,
            client: ClientConfig::default(),
            probe: Some(ProbeOptions::default()),
        }
    }

    /// Sets the environment variables and credentials with which the store is opened. Default: the environment of the process.
    pub fn options(mut self, options: OpenOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Sets the source of time, timers, tasks and randomness. Default: tokio and the operating system.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Configures direct mode. Default: settings for the kind of store, changed by `QO_INDEX_MODE`, `QO_READY_PAGE_SIZE` and
    /// `QO_LOG_SCAN_PAGE_SIZE`.
    pub fn direct(mut self, config: DirectConfig) -> Self {
        self.direct = Some(config);
        self
    }

    /// Configures broker mode in one JSON object (`?engine=json`). Default: settings for the kind of store.
    pub fn json(mut self, config: JsonConfig) -> Self {
        self.json = Some(config);
        self
    }

    /// Configures broker mode on SlateDB (`?engine=slate`), if this process opens the queue.
    #[cfg(feature = "slate")]
    pub fn slate(mut self, config: SlateConfig) -> Self {
        self.slate = Some(config);
        self
    }

    /// Configures timeouts and retries of requests to the store.
    pub fn client(mut self, config: ClientConfig) -> Self {
        self.client = config;
        self
    }

    /// Configures the probe of a store that has no report yet.
    pub fn probe(mut self, options: ProbeOptions) -> Self {
        self.probe = Some(options);
        self
    }

    /// Limits the duration of the probe of a store that has no report yet.
    pub fn probe_budget(mut self, budget: Duration) -> Self {
        self.probe.get_or_insert_default().budget = budget;
        self
    }

    /// Trusts the store without a probe. On a store without correct conditional writes, tasks get lost or run twice.
    pub fn skip_probe(mut self) -> Self {
        self.probe = None;
        self
    }

    /// Opens only the store. Sends no request, so the store may be missing or untrusted.
    pub fn open_store(self) -> Result<Store, Error> {
        let (_, options) = self.environment();
        Ok(self.store_and_engine(&options)?.0)
    }

    /// Opens the store, checks and probes it, and returns its queue.
    pub async fn open(self) -> Result<Queue, Error> {
        let (runtime, options) = self.environment();
        if let Some(url) = self.url(&options).filter(|url| names_servers(url)) {
            return open_remote(url, &options, runtime).await;
        }
        let (store, engine) = self.store_and_engine(&options)?;
        let variables = variables(&options);
        let direct = match (engine, self.direct) {
            (EngineName::Direct, None) => Some(direct_config(store.kind, &variables)?),
            (_, config) => config,
        };
        let payload_max_bytes = store.kind.object_max_bytes();
        let client = StoreClient::new(
            Arc::clone(&store.objects),
            Arc::clone(&store.clock),
            Arc::clone(&runtime),
            self.client.clone(),
        );
        let blob_limit = Blobs::limit_from(store.kind, &variables)?;
        let blobs = Arc::new(Blobs::new(client.clone(), Arc::clone(&runtime), blob_limit));
        check_and_probe(&store, runtime.as_ref(), self.probe.as_ref()).await?;
        match engine {
            EngineName::Direct => {
                let mut config = direct.unwrap_or_default();
                config.payload_max_bytes = config.payload_max_bytes.min(payload_max_bytes);
                let engine =
                    DirectEngine::new(client, store.admin.clone(), Arc::clone(&runtime), config);
                Ok(Queue::direct(engine, runtime, store, variables).with_blobs(blobs))
            }
            EngineName::Json => {
                let mut config = self.json.unwrap_or_else(|| json_config(store.kind));
                let state = &mut config.state;
                state.payload_max_bytes = state.payload_max_bytes.min(payload_max_bytes);
                let engine = BrokerEngine::json(
                    store.objects,
                    store.clock,
                    Arc::clone(&runtime),
                    self.client,
                    config,
                );
                Ok(Queue::new(Arc::new(engine), runtime).with_blobs(blobs))
            }
            #[cfg(feature = "slate")]
            EngineName::Slate => {
                let mut slate = self.slate.unwrap_or_default();
                let state = &mut slate.state;
                state.payload_max_bytes = state.payload_max_bytes.min(payload_max_bytes);
                let setup = BrokerSetup::new(store, runtime, self.client, slate, &options)?;
                Box::pin(broker::connect(&setup, &options)).await
            }
        }
    }

    /// Whether a broker serves the queue (`?engine=slate`): one process at a time has it open.
    #[cfg(feature = "slate")]
    pub fn needs_broker(&self) -> Result<bool, Error> {
        let (_, options) = self.environment();
        let url = self.url(&options);
        Ok(match url.filter(|url| !names_servers(url)) {
            None => false,
            Some(url) => split_engine(url)?.1 == EngineName::Slate,
        })
    }

    /// Opens the store, checks and probes it, and returns a broker on standby for its queue. Fails unless the queue
    /// [needs a broker](Connect::needs_broker).
    #[cfg(feature = "slate")]
    pub async fn open_broker(self) -> Result<Broker, Error> {
        let (runtime, options) = self.environment();
        let (store, engine) = self.store_and_engine(&options)?;
        if engine != EngineName::Slate {
            return Err(Error::NoBroker);
        }
        check_and_probe(&store, runtime.as_ref(), self.probe.as_ref()).await?;
        let mut slate = self.slate.unwrap_or_default();
        let payload_max_bytes = store.kind.object_max_bytes();
        slate.state.payload_max_bytes = slate.state.payload_max_bytes.min(payload_max_bytes);
        let setup = BrokerSetup::new(store, runtime, self.client, slate, &options)?;
        Broker::new(setup).await
    }

    fn url<'a>(&'a self, options: &'a OpenOptions) -> Option<&'a str> {
        self.url.as_deref().or_else(|| options.var("QO_STORE"))
    }

    fn environment(&self) -> (Arc<dyn Runtime>, OpenOptions) {
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::shared);
        let options = self.options.clone();
        let options = options.unwrap_or_else(|| OpenOptions::from_env(Arc::clone(&runtime)));
        (runtime, options)
    }

    fn store_and_engine(&self, options: &OpenOptions) -> Result<(Store, EngineName), Error> {
        Ok(match &self.url {
            Some(url) => {
                let (url, engine) = split_engine(url)?;
                (open(&url, options).map_err(with_engine)?, engine)
            }
            None => match options.var("QO_STORE") {
                None => (open_default(options)?, EngineName::Direct),
                Some(url) => {
                    let (url, engine) = split_engine(url)?;
                    let options = options.clone().with_var("QO_STORE", url);
                    (open_default(&options).map_err(with_engine)?, engine)
                }
            },
        })
    }
}

#[cfg(feature = "remote")]
async fn open_remote(
    url: &str,
    options: &OpenOptions,
    runtime: Arc<dyn Runtime>,
) -> Result<Queue, Error> {
    if let Some(name) = mdns_name(url) {
        let url = find_server(name, options, runtime.as_ref()).await?;
        return Box::pin(remote::open(&url, options, runtime)).await;
    }
    Box::pin(remote::open(url, options, runtime)).await
}

#[cfg(feature = "mdns")]
async fn find_server(
    name: &str,
    options: &OpenOptions,
    runtime: &dyn Runtime,
) -> Result<String, Error> {
    let has_token = options.var("QO_TOKEN").is_some();
    Ok(crate::mdns::find(name, has_token, runtime).await?)
}

#[cfg(all(feature = "remote", not(feature = "mdns")))]
#[expect(clippy::unused_async, reason = "with the feature, it searches")]
async fn find_server(
    _name: &str,
    _options: &OpenOptions,
    _runtime: &dyn Runtime,
) -> Result<String, Error> {
    Err(Error::MissingFeature {
        url: "mdns:",
        feature: "mdns",
    })
}

#[cfg(not(feature = "remote"))]
#[expect(clippy::unused_async, reason = "with the feature, it connects")]
async fn open_remote(
    _url: &str,
    _options: &OpenOptions,
    _runtime: Arc<dyn Runtime>,
) -> Result<Queue, Error> {
    Err(Error::MissingFeature {
        url: "http:",
        feature: "remote",
    })
}

/// The value of `?engine=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineName {
    /// Direct mode.
    Direct,
    /// Broker mode in one JSON object, which any number of processes may share.
    Json,
    /// Broker mode on SlateDB, with one process at a time.
    #[cfg(feature = "slate")]
    Slate,
}

fn is_local(kind: StoreKind) -> bool {
    matches!(kind, StoreKind::Memory | StoreKind::Sqlite)
}

fn json_config(kind: StoreKind) -> JsonConfig {
    if is_local(kind) {
        JsonConfig::local()
    } else {
        JsonConfig::default()
    }
}

/// The defaults for the kind of store, changed by the environment.
fn direct_config(
    kind: StoreKind,
    variables: &BTreeMap<String, String>,
) -> Result<DirectConfig, Error> {
    let base = if is_local(kind) {
        DirectConfig::local()
    } else {
        DirectConfig::default()
    };
    Ok(DirectConfig::from_env(base, variables)?)
}

/// The variables whose names begin with `QO_`.
pub(crate) fn variables(options: &OpenOptions) -> BTreeMap<String, String> {
    options
        .vars_with_prefix("QO_")
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

async fn check_and_probe(
    store: &Store,
    runtime: &dyn Runtime,
    probe: Option<&ProbeOptions>,
) -> Result<(), Error> {
    if store.kind == StoreKind::Memory {
        return Ok(());
    }
    check(store, runtime).await?;
    if let Some(options) = probe {
        let report =
            ensure_trusted(&store.objects, store.admin.as_deref(), runtime, options).await?;
        tracing::debug!(store = store.description, probed_at = %report.probed_at, "trusted");
    }
    Ok(())
}

/// Removes `engine` from the query of a URL, because stores refuse parameters that they do not know.
fn split_engine(url: &str) -> Result<(String, EngineName), Error> {
    let mut engine = EngineName::Direct;
    let Some((base, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), engine));
    };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("engine", name) => engine = engine_name(name)?,
            _ => kept.push(pair),
        }
    }
    if kept.is_empty() {
        return Ok((base.to_owned(), engine));
    }
    Ok((format!("{base}?{}", kept.join("&")), engine))
}

/// Adds `engine` to the parameters that an error names. The store does not know it, because it is removed before.
fn with_engine(mut error: OpenError) -> OpenError {
    if let OpenError::UnknownParameter { known, .. } = &mut error {
        known.insert(0, "engine");
    }
    error
}

fn engine_name(name: &str) -> Result<EngineName, Error> {
    match name {
        // `objects` is the name of earlier releases.
        "direct" | "objects" => Ok(EngineName::Direct),
        "json" => Ok(EngineName::Json),
        #[cfg(feature = "slate")]
        "slate" => Ok(EngineName::Slate),
        #[cfg(not(feature = "slate"))]
        "slate" => Err(Error::MissingFeature {
            url: "?engine=slate",
            feature: "slate",
        }),
        name => Err(Error::UnknownEngine {
            name: name.chars().take(32).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn environment_variables_change_the_configuration_and_invalid_ones_are_named() {
        let options =
            |mode: &str| OpenOptions::new(TokioRuntime::shared()).with_var("QO_INDEX_MODE", mode);
        let config = direct_config(StoreKind::Memory, &variables(&options("hybrid"))).unwrap();
        assert_eq!(config.index_mode, qo_direct::IndexMode::Hybrid);
        let opened = Connect::to("memory:").options(options("sideways")).open();
        let error = opened.await.unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::BadInput);
        assert!(error.to_string().contains("QO_INDEX_MODE"), "{error}");
    }

    #[test]
    fn opening_a_store_sends_no_request() {
        let options = OpenOptions::new(TokioRuntime::shared())
            .with_var("AWS_ACCESS_KEY_ID", "a")
            .with_var("AWS_SECRET_ACCESS_KEY", "b");
        let connect = Connect::to("s3://b?engine=direct&endpoint=http://127.0.0.1:9");
        let store = connect.options(options).open_store().unwrap();
        assert_eq!(store.bucket, "b");
        assert!(Connect::to("s3://b?engine=raft").open_store().is_err());
    }

    #[test]
    fn the_engine_is_removed_from_the_url() {
        use EngineName::{Direct, Json, Slate};
        for (url, store, engine) in [
            ("memory:", "memory:", Direct),
            ("memory:?engine=direct", "memory:", Direct),
            ("memory:?engine=objects", "memory:", Direct),
            ("memory:?engine=json", "memory:", Json),
            ("s3://b/p?engine=slate&region=r", "s3://b/p?region=r", Slate),
            ("s3://b?region=r&engine=direct", "s3://b?region=r", Direct),
            ("s3://b?region=engine", "s3://b?region=engine", Direct),
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

    #[test]
    fn servers_are_distinguished_from_stores() {
        for url in ["http://a:1", "https://a,https://b", "HTTP://a"] {
            assert!(names_servers(url), "{url}");
        }
        for url in ["s3://http", "memory:", "sqlite:http.db", "http"] {
            assert!(!names_servers(url), "{url}");
        }
    }
}
