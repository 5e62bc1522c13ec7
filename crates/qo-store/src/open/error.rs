//! Why a store could not be opened: one variant per condition, each one line that says what to do.
//!
//! No variant holds a whole URL, a value of a variable, or a line of a file, because each of these can hold a credential.

use std::path::PathBuf;

use thiserror::Error;

use crate::sqlite::SqliteOpenError;

/// Why a store could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The text has no scheme.
    #[error(
        "this is not a store URL: give one of memory:, sqlite:PATH, s3://BUCKET, gs://BUCKET, az://CONTAINER"
    )]
    NotAUrl,
    /// The scheme is none that qo knows.
    #[error("unknown store scheme {scheme:?}: use one of memory:, sqlite:, s3:, gs:, az:")]
    UnknownScheme {
        /// The scheme that was given.
        scheme: String,
    },
    /// The URL names no bucket.
    #[error("the store URL names no bucket: write {scheme}://BUCKET or {scheme}://BUCKET/PREFIX")]
    MissingBucket {
        /// The scheme that was given.
        scheme: &'static str,
    },
    /// The URL has another fault.
    #[error("the {scheme}: store URL is malformed: {reason}")]
    MalformedUrl {
        /// The scheme that was given.
        scheme: &'static str,
        /// What is wrong with it, and what to write instead.
        reason: &'static str,
    },
    /// The URL has a parameter that this kind of store does not know.
    #[error("unknown parameter {name:?} in the {scheme}: store URL: {known}")]
    UnknownParameter {
        /// The scheme that was given.
        scheme: &'static str,
        /// The parameter's name.
        name: String,
        /// The names that are known, as a sentence.
        known: &'static str,
    },
    /// A setting, from the URL or from a variable or a profile, cannot be used.
    #[error("{setting} cannot be used: {reason}")]
    BadSetting {
        /// Where the setting comes from.
        setting: String,
        /// What is wrong with it, and what to give instead.
        reason: &'static str,
    },
    /// The SQLite file cannot be opened or made.
    #[error(transparent)]
    Sqlite(#[from] SqliteOpenError),
    /// Nothing was given, and there is no home directory to put a file into.
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
    /// A profile was named that no file has.
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
    /// A profile gets its credentials in a way that qo does not know.
    #[error(
        "AWS profile {profile:?} uses {what}, which qo does not support: run 'aws configure export-credentials --profile {profile} --format env' and use its output, or give the profile a credential_process"
    )]
    UnsupportedProfile {
        /// The profile's name.
        profile: String,
        /// The setting that is not supported.
        what: &'static str,
    },
    /// Half of a pair of keys is missing.
    #[error("{present} is set but {missing} is not: set both, or neither")]
    IncompleteCredentials {
        /// What is there.
        present: String,
        /// What is not.
        missing: String,
    },
    /// There are no credentials, and nowhere to get them from.
    #[error("there are no credentials for {store}: {advice}")]
    NoCredentials {
        /// The store that wants them.
        store: String,
        /// What to do.
        advice: &'static str,
    },
    /// There are no certificates to check the store's with.
    #[error(
        "cannot connect to {store} safely: this system's trusted certificates cannot be loaded; install its package ca-certificates, or set SSL_CERT_FILE"
    )]
    NoCertificates {
        /// The store.
        store: String,
    },
    /// The client below refused the settings, for a reason that may hold one of their values.
    #[error("the settings for {store} cannot be used: check the {family}_* environment variables")]
    BadSettings {
        /// The store.
        store: String,
        /// The family of variables that it reads.
        family: &'static str,
    },
}
