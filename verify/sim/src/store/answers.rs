//! Errors in the form of real ones, so that the client classifies them alike.

use object_store::Error;
use qo_store::response::ResponseError;

/// A reply with an error status.
pub(crate) fn status(status: u16, code: &str) -> Error {
    generic(ResponseError::Status {
        status,
        code: Some(code.to_owned()),
        message: "a simulated fault".to_owned(),
    })
}

/// No reply.
pub(crate) fn no_answer(detail: &str) -> Error {
    generic(ResponseError::NoResponse {
        detail: detail.to_owned(),
    })
}

fn generic(response: ResponseError) -> Error {
    Error::Generic {
        store: "sim",
        source: Box::new(response),
    }
}
