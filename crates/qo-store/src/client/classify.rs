//! Classification of failed requests.
//!
//! `object_store` has errors for what its callers usually need. qo must also distinguish "not applied" from
//! "unknown". The layer below puts a [`ResponseError`] into the source chain if the response said more than the error
//! itself, and that takes precedence. An unknown error is treated as doubtful: that costs at most one read, while the
//! opposite mistake loses a write.

use object_store::Error;

use super::retry::Budget;
use crate::error::StoreError;
use crate::response::{self, ResponseError};

/// The meaning of a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The object does not exist.
    NotFound,
    /// The object is unchanged since the caller's read.
    NotModified,
    /// The condition of a write did not hold. This attempt was not applied.
    ConditionFailed,
    /// 409: another write was in flight. This attempt was not applied, and the stored state is unknown.
    Contended(String),
    /// The store rejected the request before processing it, by contract.
    Throttled {
        detail: String,
        /// Whether the store explicitly asked to slow down. A bare 503 may also come from a proxy that lost
        /// the response.
        explicit: bool,
    },
    /// Unknown whether the request was applied or will be.
    Doubtful(String),
    /// The body is shorter or longer than the object.
    Torn(String),
    /// The credentials were rejected, or the bucket is not visible to them.
    Denied(String),
    /// A retry would be rejected the same way.
    Unsupported(String),
}

/// Longer messages from the store are truncated to this many characters.
const DETAIL_CHARS_MAX: usize = 300;

impl Failure {
    /// Classifies an error.
    pub(crate) fn of(error: &Error) -> Self {
        if let Some(response) = response::find(error) {
            return Self::of_response(response);
        }
        match error {
            Error::NotFound { .. } => Self::NotFound,
            Error::NotModified { .. } => Self::NotModified,
            Error::AlreadyExists { .. } | Error::Precondition { .. } => Self::ConditionFailed,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                Self::Denied(detail(error))
            }
            Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. } => Self::Unsupported(detail(error)),
            _ => Self::Doubtful(detail(error)),
        }
    }

    fn of_response(response: &ResponseError) -> Self {
        let message = detail(response);
        let ResponseError::Status { status, code, .. } = response else {
            return Self::Doubtful(message);
        };
        let code = code.as_deref().unwrap_or_default();
        match (*status, code) {
            (304, _) => Self::NotModified,
            // Azure returns 409 when a create finds a blob. Every other 409 is indefinite.
            (412, _) | (409, "BlobAlreadyExists") => Self::ConditionFailed,
            (409, _) => Self::Contended(message),
            // S3 returns 400 when a connection is too slow.
            (408, _) | (400, "RequestTimeout") => Self::Doubtful(message),
            // A missing bucket cannot be fixed by a retry or another key. S3 returns 400 for a stale
            // token and for one of another region. A stale token is not retried: the credential provider
            // renews its own tokens in time, so this one is fixed and stays stale.
            (404, "NoSuchBucket" | "ContainerNotFound")
            | (401 | 403, _)
            | (
                400,
                "ExpiredToken"
                | "InvalidToken"
                | "TokenRefreshRequired"
                | "AuthorizationHeaderMalformed",
            ) => Self::Denied(message),
            (404, _) => Self::NotFound,
            (429, _) => Self::Throttled {
                detail: message,
                explicit: true,
            },
            (503, code) => Self::Throttled {
                detail: message,
                explicit: code.starts_with("SlowDown") || code == "ServerBusy",
            },
            (300..=499 | 501, _) => Self::Unsupported(message),
            _ => Self::Doubtful(message),
        }
    }

    /// Whether a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Contended(_) | Self::Throttled { .. } | Self::Doubtful(_) | Self::Torn(_)
        )
    }

    /// Whether the store asked to slow down.
    pub(crate) fn is_throttled(&self) -> bool {
        matches!(self, Self::Throttled { .. })
    }

    /// Whether a write with this failure may have been applied or may still be.
    pub(super) fn may_have_applied(&self) -> bool {
        matches!(
            self,
            Self::Doubtful(_)
                | Self::Throttled {
                    explicit: false,
                    ..
                }
        )
    }

    /// The error to return when there are no more retries.
    pub(super) fn give_up(
        self,
        operation: &'static str,
        key: &str,
        budget: &Budget<'_>,
        in_doubt: bool,
    ) -> StoreError {
        let key = key.to_owned();
        match self {
            Self::NotFound => StoreError::NotFound { key },
            Self::Torn(detail) if !in_doubt => StoreError::Corrupt { key, detail },
            Self::Throttled { detail, explicit } if explicit && !in_doubt => {
                StoreError::Throttled {
                    key,
                    detail,
                    attempts: budget.attempts(),
                }
            }
            Self::Denied(detail) if !in_doubt => StoreError::Denied { key, detail },
            Self::Unsupported(detail) if !in_doubt => StoreError::Unsupported { operation, detail },
            Self::Throttled { detail, .. }
            | Self::Contended(detail)
            | Self::Doubtful(detail)
            | Self::Torn(detail)
            | Self::Denied(detail)
            | Self::Unsupported(detail) => unavailable(key, detail, budget, in_doubt),
            Self::ConditionFailed | Self::NotModified => {
                let detail = "the store rejected a condition that holds".to_owned();
                unavailable(key, detail, budget, in_doubt)
            }
        }
    }
}

fn unavailable(key: String, detail: String, budget: &Budget<'_>, in_doubt: bool) -> StoreError {
    StoreError::Unavailable {
        key,
        detail,
        attempts: budget.attempts(),
        elapsed: budget.elapsed(),
        in_doubt,
    }
}

/// The error's message, truncated, and without URL queries, which could contain a signature.
fn detail(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let mut kept = String::new();
    let mut in_query = false;
    for character in text.chars().take(DETAIL_CHARS_MAX) {
        if character.is_whitespace() || matches!(character, '"' | '\'' | ')') {
            in_query = false;
        }
        if !in_query {
            kept.push(character);
        }
        in_query |= character == '?';
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, code: &str) -> Error {
        Error::Generic {
            store: "test",
            source: Box::new(ResponseError::Status {
                status,
                code: (!code.is_empty()).then(|| code.to_owned()),
                message: "said the store".to_owned(),
            }),
        }
    }

    fn kind(failure: &Failure) -> &'static str {
        match failure {
            Failure::NotFound => "not found",
            Failure::NotModified => "not modified",
            Failure::ConditionFailed => "condition",
            Failure::Contended(_) => "contended",
            Failure::Throttled { explicit: true, .. } => "slow down",
            Failure::Throttled { .. } => "shed",
            Failure::Doubtful(_) => "doubtful",
            Failure::Torn(_) => "torn",
            Failure::Denied(_) => "denied",
            Failure::Unsupported(_) => "unsupported",
        }
    }

    #[test]
    fn every_status_is_classified() {
        for (status, code, meaning) in [
            (304, "", "not modified"),
            (301, "PermanentRedirect", "unsupported"),
            (400, "", "unsupported"),
            (400, "KeyTooLongError", "unsupported"),
            (400, "RequestTimeout", "doubtful"),
            (400, "ExpiredToken", "denied"),
            (400, "AuthorizationHeaderMalformed", "denied"),
            (401, "", "denied"),
            (403, "AccessDenied", "denied"),
            (403, "RequestTimeTooSkewed", "denied"),
            (404, "", "not found"),
            (404, "NoSuchKey", "not found"),
            (404, "NoSuchBucket", "denied"),
            (405, "MethodNotAllowed", "unsupported"),
            (408, "", "doubtful"),
            (409, "", "contended"),
            (409, "ConditionalRequestConflict", "contended"),
            (409, "BlobAlreadyExists", "condition"),
            (412, "", "condition"),
            (413, "EntityTooLarge", "unsupported"),
            (429, "", "slow down"),
            (500, "InternalError", "doubtful"),
            (501, "NotImplemented", "unsupported"),
            (502, "", "doubtful"),
            (503, "SlowDown", "slow down"),
            (503, "SlowDownWrite", "slow down"),
            (503, "ServerBusy", "slow down"),
            (503, "ServiceUnavailable", "shed"),
            (503, "", "shed"),
            (504, "", "doubtful"),
        ] {
            let failure = Failure::of(&response(status, code));
            assert_eq!(kind(&failure), meaning, "{status} {code}");
        }
    }

    #[test]
    fn a_409_never_means_that_the_object_exists() {
        let dressed_up = Error::AlreadyExists {
            path: "k".to_owned(),
            source: Box::new(response(409, "ConditionalRequestConflict")),
        };
        assert_eq!(kind(&Failure::of(&dressed_up)), "contended");
    }

    #[test]
    fn missing_responses_and_unknown_errors_are_doubtful() {
        let no_response = Error::Generic {
            store: "test",
            source: Box::new(ResponseError::NoResponse {
                detail: "timed out".to_owned(),
            }),
        };
        let unknown = Error::Generic {
            store: "test",
            source: "surprise".into(),
        };
        for error in [no_response, unknown] {
            let failure = Failure::of(&error);
            assert_eq!(kind(&failure), "doubtful");
            assert!(failure.may_have_applied() && failure.is_transient());
        }
    }

    #[test]
    fn the_reason_of_a_denial_is_kept() {
        let Failure::Denied(detail) = Failure::of(&response(403, "RequestTimeTooSkewed")) else {
            panic!("a 403 must be a denial");
        };
        assert!(detail.contains("RequestTimeTooSkewed"), "{detail}");
    }

    #[test]
    fn details_are_short_and_hold_no_signed_query() {
        let long = "x".repeat(10_000);
        assert_eq!(detail(&long).chars().count(), DETAIL_CHARS_MAX);
        let signed = "GET http://host/key?X-Amz-Signature=abc failed";
        assert_eq!(detail(&signed), "GET http://host/key? failed");
    }
}
