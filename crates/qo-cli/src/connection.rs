//! Connects to the queue that the settings name.

use std::sync::Arc;

use qo::{Connect, Queue};
use qo_store::Store;

use crate::failure::Failure;
use crate::session::Session;

/// Opens, checks and probes the configured store, and returns its queue.
pub(crate) async fn connect(session: &Session) -> Result<Queue, Failure> {
    Ok(prepare(session).open().await?)
}

/// Opens the configured store without sending a request.
pub(crate) fn open_store(session: &Session) -> Result<Store, Failure> {
    Ok(prepare(session).open_store()?)
}

/// Builds the connection from the settings.
pub(crate) fn prepare(session: &Session) -> Connect {
    let runtime = Arc::clone(&session.runtime);
    let connect = match &session.settings.store.value {
        Some(url) => Connect::to(url.clone()),
        None => Connect::to_default(),
    };
    let options = session.environment.open_options(Arc::clone(&runtime));
    connect
        .options(options.counted_by(session.requests.clone()))
        .runtime(runtime)
}
