//! Errors of opening a store. Each message is one line that says what to do.
//!
//! No variant contains a whole URL, the value of a variable or a line of a file, because each of these may contain
//! credentials.

use std::path::PathBuf;

use thiserror::Error;

#[cfg(feature = "sqlite")]
use crate::sqlite::SqliteOpenError;

/// Why a store could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The text has no scheme.
    #[error(
        "not a store URL: use one of memory:, sqlite:PATH, s3://BUCKET, gs://BUCKET, az://CONTAINER, http(s)://SERVER, cluster://NODE,NODE,NODE, mdns:"
    )]
    NotAUrl,
    /// The scheme is unknown.
    #[error(
        "unknown store scheme {scheme:?}: use one of memory:, sqlite:, s3:, gs:, az:, http:, https:, cluster:, mdns:"
    )]
    UnknownScheme {
        /// The scheme of the URL.
        scheme: String,
    },
    /// This build of qo lacks support for the scheme.
    #[error(
        "this build does not support {scheme} stores; enable the Cargo feature {feature:?} of qo"
    )]
    MissingFeature {
        /// The scheme of the URL.
        scheme: &'static str,
        /// The Cargo feature to enable.
        feature: &'static str,
    },
    /// The URL has no bucket.
    #[error("the store URL has no bucket: write {scheme}://BUCKET or {scheme}://BUCKET/PREFIX")]
    MissingBucket {
        /// The scheme of the URL.
        scheme: &'static str,
    },
    /// The URL is malformed.
    #[error("the {scheme}: store URL is malformed: {reason}")]
    MalformedUrl {
        /// The scheme of the URL.
        scheme: &'static str,
        /// What is wrong with it, and what to write instead.
        reason: &'static str,
    },
    /// The URL has a parameter that this kind of store does not have.
    #[error(
        "unknown parameter {name:?} in the {scheme}: store URL: {}",
        alternatives(known)
    )]
    UnknownParameter {
        /// The scheme of the URL.
        scheme: &'static str,
        /// The parameter's name.
        name: String,
        /// The valid parameters.
        known: Vec<&'static str>,
    },
    /// A setting from the URL, a variable or a profile is invalid.
    #[error("{setting} cannot be used: {reason}")]
    BadSetting {
        /// The source of the setting.
        setting: String,
        /// What is wrong with it, and what is expected.
        reason: &'static str,
    },
    /// The SQLite file cannot be opened or created.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] SqliteOpenError),
    /// No store was given, and there is no home directory for the default file.
    #[error(
        "no store was given and there is no home directory: set QO_STORE, for example to sqlite:/var/lib/qo/qo.db"
    )]
    NoDataDirectory,
    /// A configuration or credentials file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    UnreadableFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The requested profile does not exist.
    #[error(
        "there is no AWS profile {profile:?} in {} or {}: add it with 'aws configure --profile {profile}', or name another one",
        credentials_file.display(),
        config_file.display()
    )]
    MissingProfile {
        /// The profile's name.
        profile: String,
        /// The credentials file that was searched.
        credentials_file: PathBuf,
        /// The configuration file that was searched.
        config_file: PathBuf,
    },
    /// A profile gets its credentials in a way that qo does not support.
    #[error(
        "AWS profile {profile:?} uses {what}, which qo does not support: run 'aws configure export-credentials --profile {profile} --format env' and use its output, or give the profile a credential_process"
    )]
    UnsupportedProfile {
        /// The profile's name.
        profile: String,
        /// The setting that is not supported.
        what: &'static str,
    },
    /// One of a pair of keys is missing.
    #[error("{present} is set but {missing} is not: set both, or neither")]
    IncompleteCredentials {
        /// The setting that is present.
        present: String,
        /// The setting that is missing.
        missing: String,
    },
    /// There are no credentials.
    #[error("there are no credentials for {store}: {advice}")]
    NoCredentials {
        /// The store.
        store: String,
        /// What to do.
        advice: &'static str,
    },
    /// The system's trusted certificates cannot be loaded.
    #[error(
        "cannot connect to {store} safely: this system's trusted certificates cannot be loaded; install the package ca-certificates, or set SSL_CERT_FILE"
    )]
    NoCertificates {
        /// The store.
        store: String,
    },
    /// `object_store` rejected the settings. The reason is omitted, because it may contain one of the values.
    #[error("the settings for {store} cannot be used: check the {family}_* environment variables")]
    BadSettings {
        /// The store.
        store: String,
        /// The prefix of the variables to check.
        family: &'static str,
    },
}

/// Names the valid parameters.
fn alternatives(known: &[&str]) -> String {
    match known {
        [] => "it takes no parameters".to_owned(),
        [only] => format!("the only parameter is {only}"),
        [first @ .., last] => format!("use {} or {last}", first.join(", ")),
    }
}
