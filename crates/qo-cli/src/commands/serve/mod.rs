//! `qo serve`: a queue over HTTP, with the dashboard.

mod broker;
#[cfg(feature = "cluster")]
mod cluster;

use std::path::Path;
use std::sync::Arc;

use qo::{Maintenance, MaintenanceConfig, MaintenanceHandle, Queue};
use qo_mdns::Announcer;
use qo_server::tokens::TokenStore;
use qo_server::{ActivityStore, Auth, Limits, ServeError, Server, ServerConfig, Tls};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;

use super::deliverer::Deliverer;
use super::discover::announce_by_mdns;
use crate::args::ServeArgs;
use crate::connection;
use crate::failure::{Failure, FailureKind};
use crate::session::Session;
use crate::signals::{Signals, close_in_time};

/// Maximum size of a certificate or key file.
const PEM_MAX_BYTES: u64 = 1024 * 1024;

/// Serves until the first signal, and then stops cleanly. A second signal ends the command at once.
pub(super) async fn run(args: &ServeArgs, session: &mut Session) -> Result<(), Failure> {
    let signals = Signals::listen(&session.runtime)?;
    signals
        .unless_stopped_at_once(Box::pin(serve(args, &signals, session)))
        .await
}

async fn serve(args: &ServeArgs, signals: &Signals, session: &mut Session) -> Result<(), Failure> {
    let mut config = ServerConfig::new(args.listen);
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        config.tls = Some(Tls {
            certificate_pem: pem(certificate)?,
            key_pem: pem(key)?,
        });
    }
    config.jobs.abandoned_age = args.job_abandoned_age;
    config.jobs.attempts_max = args.job_max_attempts;
    config.origins.clone_from(&args.allow_origin);
    set_limits(&mut config.limits, args);
    if args.node.cluster.is_some() {
        #[cfg(feature = "cluster")]
        return Box::pin(cluster::run(args, config, signals, session)).await;
        #[cfg(not(feature = "cluster"))]
        return Err(without_cluster_mode());
    }
    config.auth = Auth::stored(token_store(session)?);
    let requests = session.requests.clone();
    config.counts = Some(Arc::new(move || requests.counts()));
    let maintenance =
        MaintenanceConfig::from_env(&session.environment.variables).map_err(qo::Error::from)?;
    let client = store_client(session)?;
    if connection::prepare(session).needs_broker()? {
        config.activity = Some(ActivityStore::of_queue(client));
        return broker::run(args, config, signals, session).await;
    }
    let host = qo::host_name().unwrap_or_default();
    let name = format!("{host}-{}", args.listen.port());
    config.activity = Some(ActivityStore::of_server(client, &name));
    if args.advertise.is_some() {
        return Err(Failure::bad_input(
            "--advertise requires broker mode: add ?engine=slate to the store URL",
        ));
    }
    let preparing = async {
        let queue = session.connect_without_keys().await?;
        ensure_writable(session).await?;
        let server = Server::bind(queue.clone(), config).await?;
        Ok::<_, Failure>((queue, server))
    };
    let (queue, server) = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return Ok(()),
        prepared = preparing => prepared?,
    };
    let maintenance = (!args.no_monitor)
        .then(|| start_maintenance(&queue, maintenance))
        .flatten();
    let deliverer = deliverer(args, &server, session, || true)?;
    let announcer = announce(args, &server, session)?;
    server.run_until(signals.stop.cancelled()).await;
    drop(announcer);
    let closing = async {
        if let Some(deliverer) = deliverer {
            deliverer.stop().await;
        }
        if let Some(maintenance) = maintenance {
            maintenance.stop().await;
        }
        queue.close().await;
    };
    close_in_time(session.runtime.as_ref(), closing).await;
    Ok(())
}

/// The error of a command that needs cluster mode.
#[cfg(not(feature = "cluster"))]
pub(super) fn without_cluster_mode() -> Failure {
    Failure::new(
        FailureKind::Unsupported,
        "this qo was built without cluster mode",
    )
    .hint("the released packages have it; from source, build with `cargo build --release --features cluster`")
}

fn set_limits(limits: &mut Limits, args: &ServeArgs) {
    let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let all = args.max_connections;
    limits.connections_max = count(all);
    limits.peer_connections_max = count(args.max_connections_per_peer.unwrap_or((all / 2).max(1)));
    limits.waiting_max = count(args.max_waiting.unwrap_or((all - all / 4).max(1)));
}

/// Fails if the credentials do not allow writing. Otherwise the server would start and refuse every change.
async fn ensure_writable(session: &mut Session) -> Result<(), Failure> {
    let store = session.open_store()?;
    let checked = qo_store::probe::check_write(&store.objects, session.runtime.as_ref()).await;
    Ok(checked.map_err(qo::Error::from)?)
}

/// The tokens in the configured store.
pub(super) fn token_store(session: &mut Session) -> Result<TokenStore, Failure> {
    let url = session.settings.store.value.as_deref();
    if url.is_some_and(qo::names_servers) {
        return Err(Failure::new(
            FailureKind::BadInput,
            "--store names a server; name the store that it serves instead",
        ));
    }
    let runtime = Arc::clone(&session.runtime);
    Ok(TokenStore::new(store_client(session)?, runtime))
}

/// A client of the configured store, for what a server keeps next to the tasks.
fn store_client(session: &mut Session) -> Result<StoreClient, Failure> {
    let store = session.open_store()?;
    Ok(StoreClient::new(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        Arc::clone(&session.runtime),
        ClientConfig::default(),
    ))
}

/// Starts to deliver the notifications of webhooks, if that is wanted, while this process leads.
fn deliverer(
    args: &ServeArgs,
    server: &Server,
    session: &Session,
    is_leading: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Option<Deliverer>, Failure> {
    let (queue, allow_private) = (server.queue(), args.allow_private_addresses);
    let start = || Deliverer::start(queue, allow_private, &session.runtime, is_leading);
    args.webhooks.then(start).transpose()
}

/// Starts maintenance in direct mode. The other engines do it themselves.
fn start_maintenance(queue: &Queue, config: MaintenanceConfig) -> Option<MaintenanceHandle> {
    let engine = queue.direct_engine()?;
    Some(Maintenance::spawn(engine.clone(), config))
}

/// Says where the server listens: to the user, and with `--mdns` to the network, until the result is dropped.
fn announce(
    args: &ServeArgs,
    server: &Server,
    session: &mut Session,
) -> Result<Option<Announcer>, Failure> {
    let announcer = args
        .mdns
        .then(|| announce_by_mdns(server.address(), args.tls_cert.is_some()))
        .transpose()?;
    let name = announcer.as_ref().map(Announcer::name);
    let url = server.url();
    if session.screen.json {
        session.screen.json(&serde_json::json!({
            "event": "serving", "url": url, "open": server.is_open(), "mdns": name,
        }))?;
        session.screen.flush()?;
        return Ok(announcer);
    }
    session.screen.line(format_args!(
        "Serving at {url} (dashboard: {url}/ui/, API reference: {url}/docs). Press Ctrl-C to stop."
    ))?;
    if server.is_open() {
        session.screen.note(
            "There are no tokens, so every user of this machine has full access. Create the first token with `qo token create`.",
        );
    }
    if let Some(name) = name {
        session.screen.note(format_args!(
            "Announced as {name}; clients can use mdns:{name} as their store."
        ));
    }
    session.screen.flush()?;
    Ok(announcer)
}

fn pem(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |why: String| {
        let message = format!("cannot read {}: {why}", path.display());
        Failure::new(FailureKind::BadInput, message)
    };
    let size = std::fs::metadata(path)
        .map_err(|error| failed(error.to_string()))?
        .len();
    if size > PEM_MAX_BYTES {
        return Err(failed(format!(
            "the file has {size} bytes, too many for a PEM file"
        )));
    }
    std::fs::read(path).map_err(|error| failed(error.to_string()))
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let kind = match &error {
            ServeError::Open { .. }
            | ServeError::OpenName { .. }
            | ServeError::OpenOrigin { .. }
            | ServeError::Certificate(_) => FailureKind::BadInput,
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use clap::Parser;

    use super::*;

    /// The maximum of connections, of those of one address, and of waiting requests.
    fn limits(words: &[&str]) -> [usize; 3] {
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            serve: ServeArgs,
        }
        let words = std::iter::once("serve").chain(words.iter().copied());
        let args = Cli::try_parse_from(words).unwrap().serve;
        let mut config = ServerConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        set_limits(&mut config.limits, &args);
        let limits = config.limits;
        [
            limits.connections_max,
            limits.peer_connections_max,
            limits.waiting_max,
        ]
    }

    #[test]
    fn the_limits_of_connections_follow_from_the_flags() {
        assert_eq!(limits(&[]), [1_024, 512, 768]);
        assert_eq!(limits(&["--max-connections", "40"]), [40, 20, 30]);
        assert_eq!(limits(&["--max-connections", "1"]), [1, 1, 1]);
        let peer = ["--max-connections-per-peer", "7"];
        assert_eq!(limits(&peer), [1_024, 7, 768]);
        assert_eq!(limits(&["--max-waiting", "9"]), [1_024, 512, 9]);
    }
}
