//! From settings to a queue.

use std::sync::Arc;

use qo::{Connect, Queue};
use qo_store::Store;

use crate::failure::Failure;
use crate::session::Session;

/// Opens, checks and trusts the store that is meant, and gives its queue.
pub(crate) async fn connect(session: &Session) -> Result<Queue, Failure> {
    Ok(prepare(session).open().await?)
}

/// Opens the store that is meant, without a request.
pub(crate) fn open_store(session: &Session) -> Result<Store, Failure> {
    Ok(prepare(session).open_store()?)
}

/// The connection that is meant, still to be opened.
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
