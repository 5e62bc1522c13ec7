//! Listening: connections with their bounds, TLS, and a clean stop.
//!
//! | a client that | meets |
//! | --- | --- |
//! | connects while there are as many as may be | a 503 and the end of the connection |
//! | does not finish its TLS handshake, or the head of a request | the end of the connection |
//! | sends a head that is too large | 431 and the end of the connection |
//! | does not go on with its body | 408 |
//! | does not read its answer | the end of the connection |
//!
//! When it is told to stop, the server takes no more connections, refuses new requests with a problem that sends clients elsewhere,
//! ends what only waits, lets the rest come to its end for a while, and then drops it. What was answered is durable; what was not
//! answered is repeated by its client elsewhere, under the same name.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use qo::Queue;
use qo_remote::wire::problem::PROBLEM_TYPE;
use qo_remote::wire::{Condition, Problem};
use qo_store::runtime::Runtime;
use rustls::ServerConfig as TlsConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::app::App;
use crate::config::{Limits, ServerConfig, Tls};
use crate::routes;
use crate::tokens::TokenError;
use crate::write_timeout::Patient;

/// After an error of `accept`, such as too many open files, so long until the next try.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a server does not serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Everybody could come in.
    #[error(
        "{address} can be reached from other machines, and the server has no tokens: create one with `qo token create`, or listen on \
         127.0.0.1"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(
        "the certificate or its key cannot be used: {0}; give both as PEM, the server's own certificate first"
    )]
    Certificate(String),
    /// The tokens cannot be read.
    #[error("the tokens cannot be read: {0}")]
    Tokens(#[from] TokenError),
}

/// A server that listens, and serves once it is run.
pub struct Server {
    app: App,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    limits: Limits,
}

impl Server {
    /// Listens. Nothing is served yet.
    pub async fn bind(queue: Queue, config: ServerConfig) -> Result<Self, ServeError> {
        let tls = config.tls.as_ref().map(acceptor).transpose()?;
        let on_loopback = config.address.ip().is_loopback();
        let tokens = config.auth.clone().source(on_loopback);
        let app = App::new(queue, &config, tokens);
        app.guard.start().await?;
        if !on_loopback && !app.guard.has_tokens() {
            return Err(ServeError::Open {
                address: config.address,
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
            listener,
            address,
            tls,
            limits: config.limits,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL under which clients on this machine reach it.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Whether requests come in without a token.
    pub fn is_open(&self) -> bool {
        self.app.guard.is_open()
    }

    /// Serves until `stop` ends, and then comes to an end of its own.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let Self {
            app,
            listener,
            tls,
            limits,
            ..
        } = self;
        let runtime = Arc::clone(app.runtime());
        let connections = Arc::new(Connections {
            router: routes::router(&app),
            tls,
            limits: limits.clone(),
            runtime: Arc::clone(&runtime),
            app: app.clone(),
        });
        let graceful = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
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
                    tracing::warn!(%error, "a connection was not accepted");
                    runtime.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        app.stop();
        tracing::info!(connections = graceful.count(), "stopping");
        tokio::select! {
            biased;
            () = graceful.shutdown() => {}
            () = runtime.sleep(limits.stop_timeout) => {
                tracing::warn!("requests that are still under way are dropped");
            }
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
    let bad = |what: &str, error: &dyn std::fmt::Display| {
        ServeError::Certificate(format!("{what}: {error}"))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&tls.certificate_pem)
        .collect::<Result<_, _>>()
        .map_err(|error| bad("the certificate", &error))?;
    let key =
        PrivateKeyDer::from_pem_slice(&tls.key_pem).map_err(|error| bad("the key", &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = TlsConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| bad("the pair", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// What all connections share.
struct Connections {
    router: Router,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    runtime: Arc<dyn Runtime>,
    app: App,
}

impl Connections {
    async fn serve(&self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        let Ok(_place) = Arc::clone(&self.app.connection_room).try_acquire_owned() else {
            tracing::warn!(%peer, "too many connections");
            if self.tls.is_none() {
                turn_away(&stream);
            }
            return;
        };
        // Answers are written whole, and should not wait for more.
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = &self.tls else {
            return self.speak(stream, false, watcher).await;
        };
        let shaken = tokio::select! {
            biased;
            shaken = acceptor.accept(stream) => shaken,
            () = self.runtime.sleep(self.limits.handshake_timeout) => {
                tracing::debug!(%peer, "no TLS handshake in time");
                return;
            }
        };
        match shaken {
            Ok(stream) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                self.speak(stream, http2, watcher).await;
            }
            Err(error) => tracing::debug!(%peer, %error, "no TLS handshake"),
        }
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        http2: bool,
        watcher: Watcher,
    ) {
        let limits = &self.limits;
        let stream = Patient::new(stream, Arc::clone(&self.runtime), limits.write_timeout);
        let mut builder = Builder::new(TokioExecutor::new());
        // The protocol is decided here and not by the first bytes, for which there would be no timeout.
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
        let service = TowerToHyperService::new(self.router.clone());
        let connection = builder
            .serve_connection(TokioIo::new(stream), service)
            .into_owned();
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Says why, if that can be said at once.
fn turn_away(stream: &TcpStream) {
    let detail = "there are as many connections as the server takes; try again in a moment";
    let problem = Problem::new(Condition::Overloaded, detail);
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {PROBLEM_TYPE}\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.try_write(answer.as_bytes());
}
