//! Requests over TCP. A connection carries one request at a time; idle connections are used again.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use qo_store::runtime::Runtime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::handshake::{Channel, HandshakeError, Identity};
use super::{PendingResponse, Service, Transport, TransportError};
use crate::config::{ClusterConfig, Member};

/// How long connecting and greeting may take.
const GREETING_LIMIT: Duration = Duration::from_secs(3);
/// The most idle connections to one node: so many, and two more for each group besides the first.
const IDLE_MAX: usize = 8;
/// The most connections from other nodes: so many, and sixteen more for each group besides the first.
const ACCEPTED_MAX: usize = 256;
/// How long to wait after an accept that failed, for example because there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

fn identity(config: &ClusterConfig) -> Identity {
    Identity {
        cluster: config.cluster.clone(),
        node: config.node,
        secret: config.secret.clone(),
        versions: config.protocol.clone(),
    }
}

fn other_groups(config: &ClusterConfig) -> usize {
    usize::from(config.groups.saturating_sub(1))
}

fn nonce(runtime: &dyn Runtime) -> [u8; 32] {
    let mut nonce = [0; 32];
    for part in nonce.chunks_mut(8) {
        part.copy_from_slice(&runtime.random().to_be_bytes());
    }
    nonce
}

/// Sends requests over TCP.
#[derive(Clone)]
pub(crate) struct TcpTransport(Arc<Inner>);

struct Inner {
    identity: Identity,
    runtime: Arc<dyn Runtime>,
    idle: Mutex<HashMap<String, Vec<Channel>>>,
    idle_max: usize,
}

impl TcpTransport {
    pub(crate) fn new(config: &ClusterConfig, runtime: Arc<dyn Runtime>) -> Self {
        Self(Arc::new(Inner {
            identity: identity(config),
            runtime,
            idle: Mutex::default(),
            idle_max: IDLE_MAX + 2 * other_groups(config),
        }))
    }
}

impl Inner {
    fn idle(&self) -> MutexGuard<'_, HashMap<String, Vec<Channel>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self, target: &Member) -> Result<Channel, TransportError> {
        let unreachable = |reason: String| TransportError::Unreachable {
            node: target.node,
            address: target.address.clone(),
            reason,
        };
        let connecting = async {
            let stream = TcpStream::connect(&target.address).await?;
            let nonce = nonce(self.runtime.as_ref());
            Channel::call(stream, &self.identity, target.node, nonce).await
        };
        let connected = tokio::select! {
            biased;
            connected = connecting => connected,
            () = self.runtime.sleep(GREETING_LIMIT) => {
                return Err(unreachable("it does not respond".to_owned()));
            }
        };
        connected.map_err(|error| match error {
            HandshakeError::Io(error) => unreachable(error.to_string()),
            HandshakeError::Refused(reason) => {
                let refused = TransportError::Refused {
                    node: target.node,
                    address: target.address.clone(),
                    reason,
                };
                tracing::warn!("{refused}");
                refused
            }
        })
    }

    async fn exchange(
        &self,
        mut channel: Channel,
        target: &Member,
        request: &Bytes,
    ) -> io::Result<Bytes> {
        channel.send(request).await?;
        let Some(response) = channel.receive().await? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let mut idle = self.idle();
        let channels = idle.entry(target.address.clone()).or_default();
        if channels.len() < self.idle_max {
            channels.push(channel);
        }
        Ok(response)
    }

    async fn call(&self, target: &Member, request: Bytes) -> Result<Bytes, TransportError> {
        // The other node may have closed an idle connection, or restarted. All requests may be repeated.
        loop {
            let reused = self.idle().get_mut(&target.address).and_then(Vec::pop);
            let is_new = reused.is_none();
            let channel = match reused {
                Some(channel) => channel,
                None => self.connect(target).await?,
            };
            match self.exchange(channel, target, &request).await {
                Ok(response) => return Ok(response),
                Err(error) if is_new => {
                    return Err(TransportError::Unreachable {
                        node: target.node,
                        address: target.address.clone(),
                        reason: error.to_string(),
                    });
                }
                Err(_) => {}
            }
        }
    }
}

impl Transport for TcpTransport {
    fn call(&self, target: &Member, request: Bytes, limit: Duration) -> PendingResponse {
        let (inner, target) = (Arc::clone(&self.0), target.clone());
        Box::pin(async move {
            tokio::select! {
                biased;
                response = inner.call(&target, request) => response,
                () = inner.runtime.sleep(limit) => Err(TransportError::TimedOut { node: target.node }),
            }
        })
    }
}

/// Listens for other nodes until it is dropped.
pub(crate) struct TcpServer {
    address: SocketAddr,
    _alive: watch::Sender<()>,
}

impl TcpServer {
    pub(crate) fn start(
        listener: TcpListener,
        config: &ClusterConfig,
        runtime: &Arc<dyn Runtime>,
        service: Arc<dyn Service>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (alive, ended) = watch::channel(());
        let identity = identity(config);
        let accepted_max = ACCEPTED_MAX + 16 * other_groups(config);
        let accepting = accept(
            listener,
            identity,
            Arc::clone(runtime),
            service,
            (ended, accepted_max),
        );
        runtime.spawn(Box::pin(accepting));
        Ok(Self {
            address,
            _alive: alive,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(
    listener: TcpListener,
    identity: Identity,
    runtime: Arc<dyn Runtime>,
    service: Arc<dyn Service>,
    (mut ended, accepted_max): (watch::Receiver<()>, usize),
) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = ended.changed() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, from)) = accepted else {
            runtime.sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if open.fetch_add(1, Ordering::AcqRel) >= accepted_max {
            open.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (identity, service) = (identity.clone(), Arc::clone(&service));
        let (open, mut ended) = (Arc::clone(&open), ended.clone());
        let serving_runtime = Arc::clone(&runtime);
        runtime.spawn(Box::pin(async move {
            let served = serve(
                stream,
                &identity,
                serving_runtime.as_ref(),
                service.as_ref(),
            );
            tokio::select! {
                biased;
                _ = ended.changed() => {}
                served = served => match served {
                    Ok(()) => {}
                    Err(HandshakeError::Refused(reason)) => {
                        tracing::warn!(%from, "refused a connection: {reason}");
                    }
                    Err(HandshakeError::Io(error)) => {
                        tracing::debug!(%from, %error, "a connection of another node ended");
                    }
                },
            }
            open.fetch_sub(1, Ordering::AcqRel);
        }));
    }
}

async fn serve(
    stream: TcpStream,
    identity: &Identity,
    runtime: &dyn Runtime,
    service: &dyn Service,
) -> Result<(), HandshakeError> {
    let greeting = Channel::accept(stream, identity, nonce(runtime));
    let (mut channel, from) = tokio::select! {
        biased;
        accepted = greeting => accepted?,
        () = runtime.sleep(GREETING_LIMIT) => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    };
    while let Some(request) = channel.receive().await? {
        let response = service.handle(from, request).await;
        channel.send(&response).await?;
    }
    Ok(())
}
