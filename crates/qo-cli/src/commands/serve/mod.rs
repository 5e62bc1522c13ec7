//! `qo serve`: a queue over HTTP, with the dashboard.

mod broker;

use std::path::Path;
use std::sync::Arc;

use qo::{Maintenance, MaintenanceConfig, MaintenanceHandle, Queue};
use qo_server::tokens::TokenStore;
use qo_server::{Auth, ServeError, Server, ServerConfig, Tls};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;

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
    config.auth = Auth::stored(token_store(session)?);
    let requests = session.requests.clone();
    config.counts = Some(Arc::new(move || requests.counts()));
    let maintenance =
        MaintenanceConfig::from_env(&session.environment.variables).map_err(qo::Error::from)?;
    if connection::prepare(session).needs_broker()? {
        return broker::run(args, config, signals, session).await;
    }
    if args.advertise.is_some() {
        return Err(Failure::bad_input(
            "--advertise requires broker mode: add ?engine=slate to the store URL",
        ));
    }
    let preparing = async {
        let queue = session.connect().await?;
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
    announce(&server, session)?;
    server.run_until(signals.stop.cancelled()).await;
    let closing = async {
        if let Some(maintenance) = maintenance {
            maintenance.stop().await;
        }
        queue.close().await;
    };
    close_in_time(session.runtime.as_ref(), closing).await;
    Ok(())
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
    let store = session.open_store()?;
    let runtime = Arc::clone(&session.runtime);
    let client = StoreClient::new(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        Arc::clone(&runtime),
        ClientConfig::default(),
    );
    Ok(TokenStore::new(client, runtime))
}

/// Starts maintenance in direct mode. The other engines do it themselves.
fn start_maintenance(queue: &Queue, config: MaintenanceConfig) -> Option<MaintenanceHandle> {
    let engine = queue.direct_engine()?;
    Some(Maintenance::spawn(engine.clone(), config))
}

fn announce(server: &Server, session: &mut Session) -> Result<(), Failure> {
    let url = server.url();
    if session.screen.json {
        return session.screen.json(&serde_json::json!({
            "event": "serving", "url": url, "open": server.is_open(),
        }));
    }
    session.screen.line(format_args!(
        "Serving at {url} (dashboard: {url}/ui/, API reference: {url}/docs). Press Ctrl-C to stop."
    ))?;
    if server.is_open() {
        session.screen.note(
            "There are no tokens, so every user of this machine has full access. Create the first token with `qo token create`.",
        );
    }
    session.screen.flush()?;
    Ok(())
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
            ServeError::Open { .. } | ServeError::OpenName { .. } | ServeError::Certificate(_) => {
                FailureKind::BadInput
            }
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}
