//! Checks with one cheap request whether an opened store is usable, and reports what to do if it is not.

use std::error::Error as StdError;
use std::time::Duration;

use futures_util::StreamExt;
use thiserror::Error;

#[cfg(feature = "s3")]
use super::process::CredentialProcessError;
use crate::client::{Budget, Failure, RetryConfig};
#[cfg(feature = "cloud")]
use crate::http_layer::CredentialEndpointUnreachable;
use crate::response::{self, ResponseError};
use crate::runtime::Runtime;
use crate::store::{CredentialSource, Store, StoreKind};

/// Fewer attempts than for other reads: a wrong endpoint is reported within seconds.
const ATTEMPTS_MAX: u32 = 8;

/// Why a store is unusable. No variant contains credentials.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The bucket does not exist.
    #[error(
        "{store}: there is no bucket {bucket:?}: create it with '{command}', or name another one"
    )]
    NoBucket {
        /// The store's description.
        store: String,
        /// The bucket's name.
        bucket: String,
        /// The command that creates it.
        command: String,
    },
    /// The store rejected the credentials.
    #[error(
        "{store}: the store rejected the credentials ({code}): check {credentials}, and that they may list, read and write this bucket"
    )]
    Refused {
        /// The store's description.
        store: String,
        /// The store's error code, or the status.
        code: String,
        /// The source of the credentials.
        credentials: CredentialSource,
    },
    /// No credentials were available.
    #[error("{store}: {credentials} returned no credentials ({detail}): {advice}")]
    NoCredentials {
        /// The store's description.
        store: String,
        /// The source of the credentials.
        credentials: CredentialSource,
        /// What failed.
        detail: String,
        /// What to do.
        advice: &'static str,
    },
    /// The endpoint does not respond.
    #[error("{store}: cannot reach {endpoint}: {detail}: check the endpoint and the network")]
    Unreachable {
        /// The store's description.
        store: String,
        /// The endpoint.
        endpoint: String,
        /// What happened.
        detail: String,
    },
    /// The local clock is too far off for the store to accept a signature.
    #[error(
        "{store}: this machine's clock differs from the store's by {difference_seconds} s, and the store accepts at most 900 s: correct the clock"
    )]
    ClockSkewed {
        /// The store's description.
        store: String,
        /// The absolute difference in seconds.
        difference_seconds: u64,
    },
    /// The bucket is in another region.
    #[error(
        "{store}: the bucket is in another region ({detail}): set AWS_REGION, or ?region= in the store URL"
    )]
    WrongRegion {
        /// The store's description.
        store: String,
        /// The store's message.
        detail: String,
    },
    /// The endpoint returned a 404 that does not look like a store's.
    #[error(
        "{store}: the endpoint returned 404 without a reason: check that it is the endpoint of a store, and check the bucket's name"
    )]
    NotAStore {
        /// The store's description.
        store: String,
    },
    /// Another failure.
    #[error("{store}: {detail}")]
    Failed {
        /// The store's description.
        store: String,
        /// What happened.
        detail: String,
    },
}

/// Checks that a store is usable, by listing one page. The list is repeated while its failure may be temporary.
pub async fn check(store: &Store, runtime: &dyn Runtime) -> Result<(), CheckError> {
    let retry = RetryConfig {
        attempts_max: ATTEMPTS_MAX,
        ..RetryConfig::default()
    };
    let mut budget = Budget::new(runtime, &retry);
    loop {
        let timeout = budget.next_timeout();
        let mut page = store.objects.list(None);
        let listed = tokio::select! {
            biased;
            listed = page.next() => listed,
            () = runtime.sleep(timeout) => Some(Err(timed_out(timeout))),
        };
        let Some(Err(error)) = listed else {
            return Ok(());
        };
        let failure = Failure::of(&error);
        // Without a response of the store, the error is one of this machine.
        let is_temporary = response::find(&error).is_some() && failure.is_transient();
        if !is_temporary || !budget.pause(failure.is_throttled()).await {
            return Err(classify(store, &error));
        }
        tracing::debug!(?failure, "listing the store again");
    }
}

fn timed_out(timeout: Duration) -> object_store::Error {
    object_store::Error::Generic {
        store: "check",
        source: Box::new(ResponseError::NoResponse {
            detail: format!("no response within {timeout:?}"),
        }),
    }
}

fn classify(store: &Store, error: &object_store::Error) -> CheckError {
    let name = || store.description.clone();
    if let Some(detail) = credential_failure(error) {
        return no_credentials(store, detail);
    }
    let rejected = |code: String| CheckError::Refused {
        store: name(),
        code,
        credentials: store.credentials.clone(),
    };
    match response::find(error) {
        Some(ResponseError::NoResponse { detail }) => CheckError::Unreachable {
            store: name(),
            endpoint: store.endpoint.clone(),
            detail: detail.clone(),
        },
        Some(response @ ResponseError::Status { status, code, .. }) => {
            let code = code.as_deref().unwrap_or_default();
            match (code, status) {
                ("", 404) => CheckError::NotAStore { store: name() },
                ("NoSuchBucket" | "ContainerNotFound", _) | (_, 404) => no_bucket(store),
                ("RequestTimeTooSkewed", _) => CheckError::ClockSkewed {
                    store: name(),
                    difference_seconds: store.clock.offset_ms().unsigned_abs() / 1000,
                },
                ("AuthorizationHeaderMalformed" | "PermanentRedirect" | "TemporaryRedirect", _)
                | (_, 301 | 307) => CheckError::WrongRegion {
                    store: name(),
                    detail: response.to_string(),
                },
                ("", 401 | 403) => rejected(status.to_string()),
                (
                    "InvalidAccessKeyId"
                    | "SignatureDoesNotMatch"
                    | "ExpiredToken"
                    | "InvalidToken"
                    | "AccessDenied"
                    | "AuthenticationFailed"
                    | "TokenRefreshRequired",
                    _,
                )
                | (_, 401 | 403) => rejected(code.to_owned()),
                _ => CheckError::Failed {
                    store: name(),
                    detail: response.to_string(),
                },
            }
        }
        None => match error {
            object_store::Error::NotFound { .. } => no_bucket(store),
            object_store::Error::Unauthenticated { .. } => rejected("401".to_owned()),
            object_store::Error::PermissionDenied { .. } => rejected("403".to_owned()),
            _ if fetches_credentials(&store.credentials) => {
                // The text could quote a response of the credential endpoint.
                no_credentials(store, "its response is invalid".to_owned())
            }
            _ => CheckError::Failed {
                store: name(),
                detail: error.to_string(),
            },
        },
    }
}

/// The failure to get credentials, if that caused the error.
fn credential_failure(error: &object_store::Error) -> Option<String> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = cause {
        #[cfg(feature = "cloud")]
        if let Some(endpoint) = current.downcast_ref::<CredentialEndpointUnreachable>() {
            return Some(endpoint.to_string());
        }
        #[cfg(feature = "s3")]
        if let Some(failed) = current.downcast_ref::<CredentialProcessError>() {
            return Some(failed.to_string());
        }
        cause = current.source();
    }
    None
}

/// Whether the credentials come from another server, which may have failed.
fn fetches_credentials(source: &CredentialSource) -> bool {
    match source {
        CredentialSource::AwsWebIdentity
        | CredentialSource::AwsContainer
        | CredentialSource::AwsInstance
        | CredentialSource::Google(_)
        | CredentialSource::Azure(_) => true,
        CredentialSource::None
        | CredentialSource::AwsEnvironment
        | CredentialSource::AwsProfile(_)
        | CredentialSource::AwsProcess(_) => false,
    }
}

fn no_credentials(store: &Store, detail: String) -> CheckError {
    CheckError::NoCredentials {
        store: store.description.clone(),
        credentials: store.credentials.clone(),
        detail,
        advice: match store.kind {
            StoreKind::Gcs => "set GOOGLE_SERVICE_ACCOUNT to the file of a service account's key",
            StoreKind::Azure => "set AZURE_STORAGE_ACCOUNT_KEY, or another of Azure's credentials",
            StoreKind::S3 | StoreKind::Memory | StoreKind::Sqlite => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with AWS_PROFILE"
            }
        },
    }
}

fn no_bucket(store: &Store) -> CheckError {
    let bucket = &store.bucket;
    let command = match store.kind {
        StoreKind::Gcs => format!("gcloud storage buckets create gs://{bucket}"),
        StoreKind::Azure => format!("az storage container create --name {bucket}"),
        StoreKind::S3 | StoreKind::Memory | StoreKind::Sqlite => {
            if store.endpoint.ends_with(".amazonaws.com") {
                format!("aws s3 mb s3://{bucket}")
            } else {
                format!("aws s3 mb s3://{bucket} --endpoint-url {}", store.endpoint)
            }
        }
    };
    CheckError::NoBucket {
        store: store.description.clone(),
        bucket: bucket.clone(),
        command,
    }
}
