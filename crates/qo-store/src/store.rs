//! An opened store: its objects, bucket administration, clock, and a printable description.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectStore;

use crate::admin::BucketAdmin;
use crate::clock::StoreClock;
use qo_core::limits::STORED_PAYLOAD_MAX_BYTES;

/// The kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// In the memory of this process.
    Memory,
    /// An SQLite file.
    Sqlite,
    /// S3, or a server with an S3-compatible API.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl StoreKind {
    /// The size of the largest object that qo keeps in such a store.
    pub fn object_max_bytes(self) -> u64 {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite => crate::sqlite::OBJECT_SIZE_LIMIT as u64,
            _ => STORED_PAYLOAD_MAX_BYTES,
        }
    }
}

/// How the store was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSource {
    /// A URL from the caller.
    Url,
    /// The environment variable `QO_STORE`.
    QoStore,
    /// The environment variable `S3_BUCKET`.
    S3Bucket,
    /// The default: the SQLite file in the user's data directory.
    DataDirectory(PathBuf),
}

/// The source of the credentials, without the credentials themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// The store needs no credentials.
    None,
    /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
    AwsEnvironment,
    /// The access keys of a profile in the AWS configuration files.
    AwsProfile(String),
    /// The `credential_process` of a profile in the AWS configuration files.
    AwsProcess(String),
    /// A role assumed with the token in `AWS_WEB_IDENTITY_TOKEN_FILE`.
    AwsWebIdentity,
    /// The credential endpoint of the container.
    AwsContainer,
    /// The machine's role, from its metadata service.
    AwsInstance,
    /// A variable or file that Google's tools read.
    Google(&'static str),
    /// A variable that Azure's tools read.
    Azure(&'static str),
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no credentials"),
            Self::AwsEnvironment => {
                f.write_str("the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
            }
            Self::AwsProfile(name) => write!(f, "the keys of AWS profile {name:?}"),
            Self::AwsProcess(name) => write!(f, "the credential_process of AWS profile {name:?}"),
            Self::AwsWebIdentity => {
                f.write_str("the web identity of AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN")
            }
            Self::AwsContainer => f.write_str("the container's credential endpoint"),
            Self::AwsInstance => f.write_str("the machine's metadata service"),
            Self::Google(what) | Self::Azure(what) => f.write_str(what),
        }
    }
}

/// An opened store.
#[derive(Clone)]
pub struct Store {
    /// The objects, below the prefix of the URL.
    pub objects: Arc<dyn ObjectStore>,
    /// Versions and bucket settings, if the store supports them.
    pub admin: Option<Arc<dyn BucketAdmin>>,
    /// The estimate of the store's clock.
    pub clock: Arc<StoreClock>,
    /// The scheme, bucket, prefix and endpoint host. Safe to print.
    pub description: String,
    /// The kind of store.
    pub kind: StoreKind,
    /// How the store was selected.
    pub source: StoreSource,
    /// The source of its credentials.
    pub credentials: CredentialSource,
    /// The bucket or container; empty for local stores.
    pub bucket: String,
    /// The endpoint's scheme, host and port; empty for local stores.
    pub endpoint: String,
}

impl fmt::Debug for Store {
    /// Omits `objects` and `admin`, which contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("description", &self.description)
            .field("kind", &self.kind)
            .field("source", &self.source)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}
