//! The failure response of a store, in enough detail to decide how to proceed.
//!
//! `object_store` turns most failed responses into [`object_store::Error::Generic`] and keeps the reason only as
//! text. qo must distinguish a 409 from a 500, and both from a missing response, because it handles each differently.
//! The HTTP layer and the fault-injecting wrapper therefore put a [`ResponseError`] at the end of the error's source
//! chain, and [`find`] retrieves it. An injected fault is thus classified exactly like the real failure.

use std::error::Error as StdError;

use thiserror::Error;

/// The root cause of an [`object_store::Error`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The store returned an error response.
    #[error("the store returned {status}{}: {message}", code.as_deref().map(|code| format!(" {code}")).unwrap_or_default())]
    Status {
        /// The HTTP status.
        status: u16,
        /// The store's error code, such as `SlowDown`, if the response has one.
        code: Option<String>,
        /// The store's message, without URLs, headers or credentials.
        message: String,
    },
    /// No response arrived. The request may have been applied, or may still be applied.
    #[error("no response from the store: {detail}")]
    NoResponse {
        /// What happened instead.
        detail: String,
    },
}

/// Finds the [`ResponseError`] in the source chain of an error.
pub fn find(error: &object_store::Error) -> Option<&ResponseError> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(found) = current.downcast_ref::<ResponseError>() {
            return Some(found);
        }
        cause = current.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Error)]
    #[error("a layer in between")]
    struct Layer(#[source] ResponseError);

    fn conflict() -> ResponseError {
        ResponseError::Status {
            status: 409,
            code: Some("ConditionalRequestConflict".to_owned()),
            message: "try again".to_owned(),
        }
    }

    #[test]
    fn is_found_below_any_number_of_layers() {
        let direct = object_store::Error::Generic {
            store: "test",
            source: Box::new(conflict()),
        };
        assert_eq!(find(&direct), Some(&conflict()));
        let deep = object_store::Error::Precondition {
            path: "key".to_owned(),
            source: Box::new(Layer(conflict())),
        };
        assert_eq!(find(&deep), Some(&conflict()));
    }

    #[test]
    fn other_errors_have_none() {
        let other = object_store::Error::Generic {
            store: "test",
            source: "plain text".into(),
        };
        assert_eq!(find(&other), None);
        assert_eq!(
            find(&object_store::Error::NotImplemented {
                operation: "a".into(),
                implementer: "b".into()
            }),
            None
        );
    }

    #[test]
    fn prints_the_status_code_and_message() {
        assert_eq!(
            conflict().to_string(),
            "the store returned 409 ConditionalRequestConflict: try again"
        );
        let silent = ResponseError::NoResponse {
            detail: "timed out".to_owned(),
        };
        assert_eq!(silent.to_string(), "no response from the store: timed out");
    }
}
