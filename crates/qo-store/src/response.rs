//! What a store's answer said when it was not a success: the part of it that decides what happens next.
//!
//! `object_store` folds most failed answers into [`object_store::Error::Generic`] and keeps the reason as text. qo must tell
//! a 409 from a 500 and both from silence, because each asks for another reaction. So the layer that speaks HTTP, and the
//! wrapper that injects faults, put a [`ResponseError`] at the bottom of the error's chain of sources, and [`find`] gets it
//! back. A fault is thereby classified exactly as the real failure that it stands for.

use std::error::Error as StdError;

use thiserror::Error;

/// The failure at the bottom of an [`object_store::Error`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// The store answered, and the answer was not a success.
    #[error("the store answered {status}{}: {message}", code.as_deref().map(|code| format!(" {code}")).unwrap_or_default())]
    Status {
        /// The HTTP status.
        status: u16,
        /// The store's own code, such as `SlowDown`, where the answer had one.
        code: Option<String>,
        /// The store's words, without addresses, headers or credentials.
        message: String,
    },
    /// No answer came: the request may have been applied, may not have been, or may yet be.
    #[error("no answer from the store: {detail}")]
    NoAnswer {
        /// What happened instead.
        detail: String,
    },
}

/// The [`ResponseError`] that caused this error, if there is one.
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
    fn says_what_the_store_said() {
        assert_eq!(
            conflict().to_string(),
            "the store answered 409 ConditionalRequestConflict: try again"
        );
        let silent = ResponseError::NoAnswer {
            detail: "timed out".to_owned(),
        };
        assert_eq!(silent.to_string(), "no answer from the store: timed out");
    }
}
