//! The errors that a caller receives, in the same form as real ones, so that they are classified alike.

use object_store::Error;

use super::kind::FaultKind;
use crate::response::ResponseError;

fn status(status: u16, code: &str) -> ResponseError {
    ResponseError::Status {
        status,
        code: Some(code.to_owned()),
        message: "an injected fault".to_owned(),
    }
}

/// The error of an injected fault.
pub(super) fn failure(kind: FaultKind) -> Error {
    let response = match kind {
        FaultKind::Conflict => status(409, "ConditionalRequestConflict"),
        FaultKind::ErrorAfterApply => status(500, "InternalError"),
        FaultKind::Unavailable => status(503, "SlowDown"),
        _ => ResponseError::NoResponse {
            detail: format!("an injected fault: {kind}"),
        },
    };
    Error::Generic {
        store: "Faults",
        source: Box::new(response),
    }
}
