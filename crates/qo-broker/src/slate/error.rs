//! What SlateDB says, in the words of an engine.

use std::time::Duration;

use qo_store::StoreError;
use slatedb::{CloseReason, Error, ErrorKind};

use qo_engine::EngineError;

/// The name of the database in messages.
pub(super) const PLACE: &str = "slate";

pub(super) fn from_slate(error: &Error) -> EngineError {
    let detail = error.to_string();
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => EngineError::NotLeader,
        ErrorKind::Closed(CloseReason::Clean) => EngineError::Closed,
        ErrorKind::Data => EngineError::Store(StoreError::Corrupt {
            key: PLACE.to_owned(),
            detail,
        }),
        ErrorKind::Invalid => EngineError::Store(StoreError::Unsupported {
            operation: "the database",
            detail,
        }),
        _ => EngineError::Store(StoreError::Unavailable {
            key: PLACE.to_owned(),
            detail,
            attempts: 1,
            elapsed: Duration::ZERO,
            in_doubt: true,
        }),
    }
}
