//! Configuration of a server.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use qo::Queue;
use qo_core::limits::LEASE_MAX_MS;
use qo_store::wrap::{Counts, Prices};

use crate::activity::ActivityStore;
use crate::cluster::ClusterControl;
use crate::leader::Leader;
use crate::other_origins::Origin;
use crate::tokens::{TokenRecord, TokenSource, TokenStore};

/// Limits for clients.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// The largest body of a request, in bytes.
    pub body_max_bytes: usize,
    /// The most bytes that the bodies of all requests may take together.
    pub bodies_max_bytes: usize,
    /// The size of the tasks in one response, in bytes. A page that would be larger is cut short and continues at its `next`, a claim gets
    /// fewer tasks, and the results of an array leave out inputs.
    pub response_max_bytes: usize,
    /// The most bytes that tasks and payloads in responses may take together.
    pub responses_max_bytes: usize,
    /// The largest request head, in bytes.
    pub header_max_bytes: usize,
    /// The most concurrent connections.
    pub connections_max: usize,
    /// The most concurrent connections of one address other than this machine's.
    pub peer_connections_max: usize,
    /// The most requests that wait at the same time: for a task to claim, or for a task to finish.
    pub waiting_max: usize,
    /// The most concurrent requests of one HTTP/2 connection.
    pub streams_max: u32,
    /// The most concurrent event listeners.
    pub listeners_max: usize,
    /// The most blobs that are uploaded at the same time. Each takes up to 32 MiB of memory, and larger ones a temporary file.
    pub blob_uploads_max: usize,
    /// The longest wait of a claim or of a read of a task.
    pub wait_max: Duration,
    /// How long a client may take to send a request head, and how long it may be idle between two requests.
    pub header_timeout: Duration,
    /// How long a client may take between two chunks of a body.
    pub body_idle_timeout: Duration,
    /// How long a client may take to send a whole body.
    pub body_timeout: Duration,
    /// How long a client may take for the TLS handshake.
    pub handshake_timeout: Duration,
    /// How long a client may leave a response unread.
    pub write_timeout: Duration,
    /// How long active requests may still take when the server stops.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_max_bytes: 32 * 1024 * 1024,
            bodies_max_bytes: 256 * 1024 * 1024,
            response_max_bytes: 8 * 1024 * 1024,
            responses_max_bytes: 512 * 1024 * 1024,
            header_max_bytes: 32 * 1024,
            connections_max: 1_024,
            peer_connections_max: 512,
            waiting_max: 768,
            streams_max: 128,
            listeners_max: 256,
            blob_uploads_max: 8,
            wait_max: Duration::from_secs(30),
            header_timeout: Duration::from_secs(30),
            body_idle_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_mins(5),
            handshake_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_mins(1),
            stop_timeout: Duration::from_secs(10),
        }
    }
}

/// Settings of the job routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobConfig {
    /// How long after its claim or its last tickle an active job counts as abandoned.
    pub abandoned_age: Duration,
    /// The most attempts of a job.
    pub attempts_max: u32,
}

impl Default for JobConfig {
    fn default() -> Self {
        Self {
            abandoned_age: Duration::from_mins(5),
            attempts_max: qo::blob::job::ATTEMPTS_DEFAULT,
        }
    }
}

impl JobConfig {
    pub(crate) fn abandoned_ms(self) -> u64 {
        let age = u64::try_from(self.abandoned_age.as_millis()).unwrap_or(u64::MAX);
        age.clamp(1, LEASE_MAX_MS)
    }
}

/// A certificate and its key, both as PEM.
#[derive(Clone)]
pub struct Tls {
    /// The certificate and its chain.
    pub certificate_pem: Vec<u8>,
    /// Its key.
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

/// Who may send requests.
#[derive(Debug, Clone, Default)]
pub struct Auth(AuthKind);

#[derive(Debug, Clone, Default)]
enum AuthKind {
    #[default]
    Open,
    Given(Vec<TokenRecord>),
    Stored(TokenStore, Vec<TokenRecord>),
}

impl Auth {
    /// Everyone who can reach the server. This is allowed only on a loopback address.
    pub fn open() -> Self {
        Self(AuthKind::Open)
    }

    /// Holders of one of these tokens.
    pub fn given(records: Vec<TokenRecord>) -> Self {
        Self(AuthKind::Given(records))
    }

    /// Holders of one of the store's tokens. On a loopback address everyone is allowed until the first token is created; after that
    /// every request needs a token, even if the last one was revoked.
    pub fn stored(store: TokenStore) -> Self {
        Self(AuthKind::Stored(store, Vec::new()))
    }

    /// Holders of one of the store's tokens, and of these. With them the server may listen on any address before the first token is created.
    pub fn stored_besides(store: TokenStore, records: Vec<TokenRecord>) -> Self {
        Self(AuthKind::Stored(store, records))
    }

    pub(crate) fn source(self, on_loopback: bool) -> TokenSource {
        match self.0 {
            AuthKind::Open => TokenSource::Open,
            AuthKind::Given(records) => TokenSource::Given(records),
            AuthKind::Stored(store, besides) => TokenSource::Stored {
                store,
                open_while_empty: on_loopback,
                besides,
            },
        }
    }
}

/// Returns the counts of store requests so far.
pub type CountsFn = Arc<dyn Fn() -> Counts + Send + Sync>;

/// Settings of a server.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// Who may send requests.
    pub auth: Auth,
    /// A certificate, for HTTPS.
    pub tls: Option<Tls>,
    /// Limits for clients.
    pub limits: Limits,
    /// Host names under which others reach the server, in addition to `localhost` and loopback addresses. A name that does not mean
    /// this machine requires tokens.
    pub hosts: Vec<String>,
    /// The origins whose pages may use the API from a browser, with a token. They require tokens.
    pub origins: Vec<Origin>,
    /// The counts of store requests, for the metrics.
    pub counts: Option<CountsFn>,
    /// The prices of store requests, for the metrics.
    pub prices: Prices,
    /// Decides whether this process may serve. `None` if it always may.
    pub leader: Option<Arc<dyn Leader>>,
    /// The node of a cluster that this process is.
    pub cluster: Option<Arc<dyn ClusterControl>>,
    /// The queue as this node of a cluster has it, for reads that may be old, while another one leads.
    pub stale: Option<Queue>,
    /// The maximum age of the task counts in the metrics. In direct mode a count sends a bounded number of requests.
    pub stats_max_age: Duration,
    /// Settings of the job routes.
    pub jobs: JobConfig,
    /// Where the counters of the last hour, day and week are stored, so that a restart or a new leader continues them.
    pub activity: Option<ActivityStore>,
}

impl ServerConfig {
    /// The default settings for this address, without tokens.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            auth: Auth::open(),
            tls: None,
            limits: Limits::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            counts: None,
            prices: Prices::default(),
            leader: None,
            cluster: None,
            stale: None,
            stats_max_age: Duration::from_mins(1),
            jobs: JobConfig::default(),
            activity: None,
        }
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("address", &self.address)
            .field("auth", &self.auth)
            .field("tls", &self.tls)
            .field("limits", &self.limits)
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .finish_non_exhaustive()
    }
}
