//! One cheap request that finds out whether an opened store can be used, and says what to do if not.

use std::error::Error as StdError;

use futures_util::StreamExt;
use thiserror::Error;

use super::process::CredentialProcessError;
use crate::http_layer::CredentialEndpointUnreachable;
use crate::response::{self, ResponseError};
use crate::store::{CredentialSource, Store, StoreKind};

/// Why a store cannot be used. None of these holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CheckError {
    /// The bucket is not there.
    #[error(
        "{store}: there is no bucket {bucket:?}: create it with '{command}', or name another one"
    )]
    NoBucket {
        /// The store's description.
        store: String,
        /// The bucket's name.
        bucket: String,
        /// How to create it.
        command: String,
    },
    /// The store refuses the credentials.
    #[error(
        "{store}: the store refused the credentials ({code}): check {credentials}, and that they may list, read and write this bucket"
    )]
    Refused {
        /// The store's description.
        store: String,
        /// The store's own code, or the status.
        code: String,
        /// Where the credentials come from.
        credentials: CredentialSource,
    },
    /// No credentials could be had.
    #[error("{store}: {credentials} gave no credentials ({detail}): {advice}")]
    NoCredentials {
        /// The store's description.
        store: String,
        /// Where they were looked for.
        credentials: CredentialSource,
        /// What happened there.
        detail: String,
        /// What to do.
        advice: &'static str,
    },
    /// Nobody answers at the endpoint.
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
        "{store}: this machine's clock differs from the store's by {difference_seconds} s, and the store accepts no more than 900 s: set the clock right"
    )]
    ClockSkewed {
        /// The store's description.
        store: String,
        /// The difference, without a sign, in seconds.
        difference_seconds: u64,
    },
    /// The bucket is in another region.
    #[error(
        "{store}: the bucket is in another region ({detail}): set AWS_REGION, or ?region= in the store URL"
    )]
    WrongRegion {
        /// The store's description.
        store: String,
        /// What the store said.
        detail: String,
    },
    /// Something answers 404, but not as a store does.
    #[error(
        "{store}: what answers there knows no such bucket and gives no reason: check that the endpoint is that of a store, and the bucket's name"
    )]
    NotAStore {
        /// The store's description.
        store: String,
    },
    /// Something else went wrong.
    #[error("{store}: {detail}")]
    Failed {
        /// The store's description.
        store: String,
        /// What happened.
        detail: String,
    },
}

/// Lists a page of the store, to find out whether it can be used.
pub async fn check(store: &Store) -> Result<(), CheckError> {
    match store.objects.list(None).next().await {
        None | Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(classify(store, &error)),
    }
}

fn classify(store: &Store, error: &object_store::Error) -> CheckError {
    let name = || store.description.clone();
    if let Some(detail) = credential_failure(error) {
        return no_credentials(store, detail);
    }
    let refused = |code: String| CheckError::Refused {
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
        Some(answer @ ResponseError::Status { status, code, .. }) => {
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
                    detail: answer.to_string(),
                },
                ("", 401 | 403) => refused(status.to_string()),
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
                | (_, 401 | 403) => refused(code.to_owned()),
                _ => CheckError::Failed {
                    store: name(),
                    detail: answer.to_string(),
                },
            }
        }
        None => match error {
            object_store::Error::NotFound { .. } => no_bucket(store),
            object_store::Error::Unauthenticated { .. } => refused("401".to_owned()),
            object_store::Error::PermissionDenied { .. } => refused("403".to_owned()),
            _ if fetches_credentials(&store.credentials) => {
                // The text could quote an answer of the credential endpoint.
                no_credentials(store, "its answer could not be used".to_owned())
            }
            _ => CheckError::Failed {
                store: name(),
                detail: error.to_string(),
            },
        },
    }
}

/// What kept the credentials from being had, if that is what failed.
fn credential_failure(error: &object_store::Error) -> Option<String> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(silent) = current.downcast_ref::<CredentialEndpointUnreachable>() {
            return Some(silent.to_string());
        }
        if let Some(failed) = current.downcast_ref::<CredentialProcessError>() {
            return Some(failed.to_string());
        }
        cause = current.source();
    }
    None
}

/// Whether credentials come from an answer of somebody, so that a failure can be theirs.
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
