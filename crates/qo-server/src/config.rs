//! What a server is told.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use qo_store::wrap::{Counts, Prices};

use crate::leader::Leader;
use crate::tokens::{TokenRecord, TokenSource, TokenStore};

/// Bounds on what comes from outside.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest body of a request, in bytes.
    pub body_max_bytes: usize,
    /// How many bytes of bodies all requests together may hold.
    pub bodies_max_bytes: usize,
    /// The largest head of a request, in bytes.
    pub header_max_bytes: usize,
    /// How many connections there may be at once.
    pub connections_max: usize,
    /// How many requests of one HTTP/2 connection may be under way at once.
    pub streams_max: u32,
    /// How many listeners to events there may be at once.
    pub listeners_max: usize,
    /// The longest time that a claim, or a look at a task, waits.
    pub wait_max: Duration,
    /// How long a client may take to send the head of a request, and to sit idle between two.
    pub header_timeout: Duration,
    /// How long a client may take between two pieces of a body.
    pub body_idle_timeout: Duration,
    /// How long a client may take for a whole body.
    pub body_timeout: Duration,
    /// How long a client may take for the TLS handshake.
    pub handshake_timeout: Duration,
    /// How long a client may leave an answer unread.
    pub write_timeout: Duration,
    /// How long requests that are under way may take once the server was told to stop.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_max_bytes: 32 * 1024 * 1024,
            bodies_max_bytes: 256 * 1024 * 1024,
            header_max_bytes: 32 * 1024,
            connections_max: 1_024,
            streams_max: 128,
            listeners_max: 256,
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

/// A certificate with its key, both as PEM.
#[derive(Clone)]
pub struct Tls {
    /// The certificate, and those that it rests on.
    pub certificate_pem: Vec<u8>,
    /// Its key.
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

/// Who may come in.
#[derive(Debug, Clone, Default)]
pub struct Auth(Kind);

#[derive(Debug, Clone, Default)]
enum Kind {
    #[default]
    Open,
    Given(Vec<TokenRecord>),
    Stored(TokenStore),
}

impl Auth {
    /// Everybody who can reach the server; only a loopback address can be served so.
    pub fn open() -> Self {
        Self(Kind::Open)
    }

    /// Whoever holds one of these tokens.
    pub fn given(records: Vec<TokenRecord>) -> Self {
        Self(Kind::Given(records))
    }

    /// Whoever holds one of the store's tokens. On a loopback address everybody is let in as long as there never was one.
    pub fn stored(store: TokenStore) -> Self {
        Self(Kind::Stored(store))
    }

    pub(crate) fn source(self, on_loopback: bool) -> TokenSource {
        match self.0 {
            Kind::Open => TokenSource::Open,
            Kind::Given(records) => TokenSource::Given(records),
            Kind::Stored(store) => TokenSource::Stored {
                store,
                open_while_empty: on_loopback,
            },
        }
    }
}

/// What the store was asked so far.
pub type CountsFn = Arc<dyn Fn() -> Counts + Send + Sync>;

/// What a server is told.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where to listen.
    pub address: SocketAddr,
    /// Who may come in.
    pub auth: Auth,
    /// A certificate, for HTTPS.
    pub tls: Option<Tls>,
    /// Bounds.
    pub limits: Limits,
    /// Names under which browsers may reach a server without tokens, beside `localhost` and loopback addresses.
    pub hosts: Vec<String>,
    /// What the store was asked so far, for the metrics.
    pub counts: Option<CountsFn>,
    /// What requests cost, for the metrics.
    pub prices: Prices,
    /// Whether this process may serve; always, if not given.
    pub leader: Option<Arc<dyn Leader>>,
    /// How old the numbers of tasks in the metrics may be. In direct mode counting reads every task.
    pub stats_max_age: Duration,
}

impl ServerConfig {
    /// A server at this address, with the default settings, open to whoever can reach a loopback address.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            auth: Auth::open(),
            tls: None,
            limits: Limits::default(),
            hosts: Vec::new(),
            counts: None,
            prices: Prices::default(),
            leader: None,
            stats_max_age: Duration::from_mins(1),
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
            .finish_non_exhaustive()
    }
}
