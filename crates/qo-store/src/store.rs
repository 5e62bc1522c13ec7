//! An opened store: its objects, its administration and its clock, with a description that is safe to print.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectStore;

use crate::admin::BucketAdmin;
use crate::clock::StoreClock;

/// What sort of store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// The memory of this process.
    Memory,
    /// An SQLite file.
    Sqlite,
    /// S3, or a server that speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

/// What decided which store was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSource {
    /// A URL that the caller gave.
    Url,
    /// The environment variable `QO_STORE`.
    QoStore,
    /// The environment variable `S3_BUCKET`.
    S3Bucket,
    /// Nothing was given: the SQLite file in the user's data directory.
    DataDirectory(PathBuf),
}

/// Where the credentials come from. Never the credentials themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// The store needs none.
    None,
    /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
    AwsEnvironment,
    /// The keys of a profile in the AWS configuration files.
    AwsProfile(String),
    /// The `credential_process` of a profile in the AWS configuration files.
    AwsProcess(String),
    /// A role assumed with the token in `AWS_WEB_IDENTITY_TOKEN_FILE`.
    AwsWebIdentity,
    /// The credential endpoint of the container.
    AwsContainer,
    /// The role of the machine, from its metadata service.
    AwsInstance,
    /// A variable or a file that Google's tools read.
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
    /// Versions and bucket settings, where the store has them.
    pub admin: Option<Arc<dyn BucketAdmin>>,
    /// The store's time.
    pub clock: Arc<StoreClock>,
    /// The scheme, the bucket, the prefix and the endpoint's host: safe to print.
    pub description: String,
    /// What sort of store it is.
    pub kind: StoreKind,
    /// What decided that it is this one.
    pub source: StoreSource,
    /// Where its credentials come from.
    pub credentials: CredentialSource,
    /// The bucket or container; empty where there is none.
    pub bucket: String,
    /// The endpoint's scheme, host and port; empty where there is none.
    pub endpoint: String,
}

impl fmt::Debug for Store {
    /// Leaves the objects and the administration out: what lies below them holds credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("description", &self.description)
            .field("kind", &self.kind)
            .field("source", &self.source)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}
