//! Converts SlateDB's errors to engine errors.

use std::time::Duration;

use qo_store::StoreError;
use slatedb::{CloseReason, Error, ErrorKind};

use qo_engine::EngineError;

/// The path of the database in the store, which also names it in error messages.
pub(super) const DB_PATH: &str = "slate";

pub(super) fn from_slate(error: &Error) -> EngineError {
    let detail = error.to_string();
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => EngineError::NotLeader,
        ErrorKind::Closed(CloseReason::Clean) => EngineError::Closed,
        ErrorKind::Data => EngineError::Store(StoreError::Corrupt {
            key: DB_PATH.to_owned(),
            detail,
        }),
        ErrorKind::Invalid => EngineError::Store(StoreError::Unsupported {
            operation: "the database",
            detail,
        }),
        _ => EngineError::Store(StoreError::Unavailable {
            key: DB_PATH.to_owned(),
            detail,
            attempts: 1,
            elapsed: Duration::ZERO,
            in_doubt: true,
        }),
    }
}
