//! The failures that a caller sees, in the form in which real ones arrive, so that they are classified alike.

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

/// What the caller gets instead of an answer.
pub(super) fn failure(kind: FaultKind) -> Error {
    let response = match kind {
        FaultKind::Conflict => status(409, "ConditionalRequestConflict"),
        FaultKind::ErrorAfterApply => status(500, "InternalError"),
        FaultKind::Unavailable => status(503, "SlowDown"),
        _ => ResponseError::NoAnswer {
            detail: format!("an injected fault: {kind}"),
        },
    };
    Error::Generic {
        store: "Faults",
        source: Box::new(response),
    }
}
