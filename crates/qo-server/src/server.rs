//! The server: connections with their limits, TLS, and a clean stop.
//!
//! | a client that | gets |
//! | --- | --- |
//! | connects when the server or its address has the maximum of connections ([`connection_limiter`](crate::connection_limiter)) | a 503 and the end of the connection |
//! | does not finish its TLS handshake or a request head | the end of the connection |
//! | sends a request head that is too large | 431 and the end of the connection |
//! | does not continue its body | 408 |
//! | does not read its response | the end of the connection |
//!
//! When the server stops, it accepts no more connections, rejects new requests with a problem that makes clients use another server,
//! ends waiting requests, lets the other ones finish for a while, and then drops them. Every change with a response is durable. A
//! client repeats a request without a response at another server, with the same id.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use qo::{Queue, ScheduleDriver};
use qo_remote::wire::problem::PROBLEM_TYPE;
use qo_remote::wire::{Condition, Problem, READ_HEADER, STALE};
use qo_store::runtime::Runtime;
use rustls::ServerConfig as TlsConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::activity;
use crate::app::App;
use crate::config::{Limits, ServerConfig, Tls};
use crate::connection_limiter::{Full, OpenConnection};
use crate::middleware::is_local_name;
use crate::other_origins::Origin;
use crate::routes;
use crate::tokens::TokenError;
use crate::write_timeout::WriteTimeout;

/// The pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a stop waits until the counters are stored.
const SAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a server cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Everyone could send requests.
    #[error(
        "{address} is reachable from other machines, but the server has no tokens: create one with `qo token create`, or listen on \
         127.0.0.1"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// Everyone who uses this name could send requests.
    #[error(
        "the server is reachable under the name {name}, but has no tokens: create one with `qo token create`, or use a name of this \
         machine such as localhost"
    )]
    OpenName {
        /// The name.
        name: String,
    },
    /// Pages of another origin could send requests.
    #[error("--allow-origin {origin} requires tokens: create one with `qo token create`")]
    OpenOrigin {
        /// The origin.
        origin: Origin,
    },
    /// Listening failed.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(
        "cannot use the certificate or its key: {0}; provide both as PEM, with the server's own certificate first"
    )]
    Certificate(String),
    /// The tokens cannot be read.
    #[error("cannot read the tokens: {0}")]
    Tokens(#[from] TokenError),
}

/// A listening server. It serves once it runs.
pub struct Server {
    app: App,
    stale: Option<App>,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    limits: Limits,
}

impl Server {
    /// The queue that it serves.
    pub fn queue(&self) -> &Queue {
        &self.app.queue
    }

    /// Starts to listen. Nothing is served yet.
    pub async fn bind(queue: Queue, mut config: ServerConfig) -> Result<Self, ServeError> {
        let tls = config.tls.as_ref().map(acceptor).transpose()?;
        let on_loopback = config.address.ip().is_loopback();
        let tokens = config.auth.clone().source(on_loopback);
        let stale = config.stale.take().map(|queue| {
            let alone = ServerConfig {
                leader: None,
                ..config.clone()
            };
            App::new(queue, &alone, tokens.clone())
        });
        let app = App::new(queue, &config, tokens);
        app.guard.start().await?;
        if !on_loopback && !app.guard.has_tokens() {
            return Err(ServeError::Open {
                address: config.address,
            });
        }
        let mut public = config.hosts.iter().filter(|host| !is_local_name(host));
        if let Some(name) = public.next()
            && !app.guard.has_tokens()
        {
            return Err(ServeError::OpenName { name: name.clone() });
        }
        if let Some(origin) = config.origins.first()
            && !app.guard.has_tokens()
        {
            return Err(ServeError::OpenOrigin {
                origin: origin.clone(),
            });
        }
        let bind_error = |source| ServeError::Bind {
            address: config.address,
            source,
        };
        let listener = TcpListener::bind(config.address)
            .await
            .map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        Ok(Self {
            app,
            stale,
            listener,
            address,
            tls,
            limits: config.limits,
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL for clients on this machine.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Whether requests need no token.
    pub fn is_open(&self) -> bool {
        self.app.guard.is_open()
    }

    /// Serves until `stop` resolves, and then stops cleanly.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let Self {
            app,
            stale,
            listener,
            tls,
            limits,
            ..
        } = self;
        let runtime = Arc::clone(app.runtime());
        let connections = Arc::new(Connections {
            router: routes::router(&app),
            stale: stale.as_ref().map(routes::router),
            tls,
            limits: limits.clone(),
            runtime: Arc::clone(&runtime),
            app: app.clone(),
        });
        let graceful = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        // Only the process that serves the queue fires; a standby waits.
        let mut schedules = Box::pin(ScheduleDriver::new(app.queue.clone()).run());
        let mut counters = Box::pin(activity::save_periodically(&app));
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                () = &mut schedules => continue,
                () = &mut counters => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let connections = Arc::clone(&connections);
                    let watcher = graceful.watcher();
                    runtime.spawn(Box::pin(async move {
                        connections.serve(stream, peer, watcher).await;
                    }));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    runtime.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        drop(counters);
        app.stop();
        if let Some(stale) = &stale {
            stale.stop();
        }
        tracing::info!(connections = graceful.count(), "stopping");
        tokio::select! {
            biased;
            () = async {
                graceful.shutdown().await;
                app.claims.settled().await;
            } => {}
            () = runtime.sleep(limits.stop_timeout) => {
                tracing::warn!("dropping requests that are still active");
            }
        }
        tokio::select! {
            biased;
            () = activity::save(&app) => {}
            // The figures of a few minutes are not worth a long stop.
            () = runtime.sleep(SAVE_TIMEOUT) => {}
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor, ServeError> {
    let invalid = |what: &str, error: &dyn std::fmt::Display| {
        ServeError::Certificate(format!("{what}: {error}"))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&tls.certificate_pem)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid("the certificate", &error))?;
    let key =
        PrivateKeyDer::from_pem_slice(&tls.key_pem).map_err(|error| invalid("the key", &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = TlsConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| invalid("the pair", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The state that all connections share.
struct Connections {
    router: Router,
    stale: Option<Router>,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    runtime: Arc<dyn Runtime>,
    app: App,
}

impl Connections {
    async fn serve(&self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        let connection = match self.app.connection_limiter.enter(peer.ip()) {
            Ok(connection) => connection,
            Err(full) => {
                tracing::warn!(%peer, ?full, "too many connections");
                if self.tls.is_none() {
                    reject_connection(&stream, full);
                }
                return;
            }
        };
        tokio::select! {
            biased;
            () = connection.evicted() => {
                tracing::debug!(%peer, "closed a connection without an authorized request in favour of another");
            }
            () = self.serve_accepted(stream, peer, Arc::clone(&connection), watcher) => {}
        }
    }

    async fn serve_accepted(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        connection: Arc<OpenConnection>,
        watcher: Watcher,
    ) {
        // Responses are written as a whole and should not be delayed.
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = &self.tls else {
            return self.serve_http(stream, false, connection, watcher).await;
        };
        let handshake = tokio::select! {
            biased;
            handshake = acceptor.accept(stream) => handshake,
            () = self.runtime.sleep(self.limits.handshake_timeout) => {
                tracing::debug!(%peer, "the TLS handshake timed out");
                return;
            }
        };
        match handshake {
            Ok(stream) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                self.serve_http(stream, http2, connection, watcher).await;
            }
            Err(error) => tracing::debug!(%peer, %error, "the TLS handshake failed"),
        }
    }

    async fn serve_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        http2: bool,
        connection: Arc<OpenConnection>,
        watcher: Watcher,
    ) {
        let limits = &self.limits;
        let stream = WriteTimeout::new(stream, Arc::clone(&self.runtime), limits.write_timeout);
        let mut builder = Builder::new(TokioExecutor::new());
        // The protocol is set here because detecting it from the first bytes would have no timeout.
        builder = if http2 {
            builder.http2_only()
        } else {
            builder.http1_only()
        };
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(limits.header_max_bytes.max(8_192));
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(limits.header_max_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.streams_max)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(20));
        let service = TowerToHyperService::new(OnConnection {
            router: self.router.clone(),
            stale: self.stale.clone(),
            app: self.app.clone(),
            connection,
        });
        let connection = builder
            .serve_connection(TokioIo::new(stream), service)
            .into_owned();
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Tells the routes on which connection a request arrived. Lets this node answer reads that may be old, while another one leads.
#[derive(Clone)]
struct OnConnection {
    router: Router,
    stale: Option<Router>,
    app: App,
    connection: Arc<OpenConnection>,
}

impl OnConnection {
    fn may_be_stale<B>(&self, request: &Request<B>) -> bool {
        let path = request.uri().path();
        request.method() == http::Method::GET
            && request
                .headers()
                .get(READ_HEADER)
                .is_some_and(|value| value == STALE)
            && path.starts_with("/v1/")
            && path != "/v1/events"
            && !path.starts_with("/v1/cluster")
            && self
                .app
                .leader
                .as_ref()
                .is_some_and(|leader| !leader.is_confirmed())
    }
}

impl<B> Service<Request<B>> for OnConnection
where
    Router: Service<Request<B>>,
{
    type Response = <Router as Service<Request<B>>>::Response;
    type Error = <Router as Service<Request<B>>>::Error;
    type Future = <Router as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.router.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let connection = Arc::clone(&self.connection);
        request.extensions_mut().insert(connection);
        match &self.stale {
            Some(stale) if self.may_be_stale(&request) => stale.clone().call(request),
            _ => self.router.call(request),
        }
    }
}

/// Sends the reason, if that is possible without waiting.
fn reject_connection(stream: &TcpStream, full: Full) {
    let detail = match full {
        Full::Server => "the server has the maximum number of connections; try again in a moment",
        Full::Peer => {
            "this address has the maximum number of connections; reuse connections, or close some"
        }
    };
    let problem = Problem::new(Condition::Overloaded, detail);
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {PROBLEM_TYPE}\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.try_write(response.as_bytes());
}
