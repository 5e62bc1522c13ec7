//! Opening a bucket on Google Cloud Storage.
//!
//! `object_store` reads the variables of Google's tools. A service account key is read here, because it may contain the
//! endpoint. Without any of these, the application default credentials or the machine's metadata service are used.

use object_store::ClientConfigKey;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

use super::address::BucketAddress;
use super::cloud::{Connection, describe, no_retries, wrap};
use super::config_file::read_text;
use super::endpoint::Endpoint;
use super::error::OpenError;
use super::options::OpenOptions;
use crate::http_layer::client_options;
use crate::store::{CredentialSource, Store, StoreKind, StoreSource};

const DEFAULT_ENDPOINT: &str = "https://storage.googleapis.com";
/// The variables with the path of a service account key.
const KEY_FILES: [&str; 3] = [
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "SERVICE_ACCOUNT",
];

pub(super) fn open(address: &BucketAddress, options: &OpenOptions) -> Result<Store, OpenError> {
    let (key, source) = service_account(options)?;
    let endpoint = endpoint(address, options, key.as_deref())?;
    let description = describe(address, &endpoint);
    let http_options = client_options(endpoint.is_http);
    let connection = Connection::new(options, &endpoint, http_options, &description, "GOOGLE")?;
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_client_options(connection.http_options)
        .with_retry(no_retries());
    for (name, value) in options.vars_with_prefix("GOOGLE_") {
        if let Ok(config) = name.to_ascii_lowercase().parse()
            && is_passed_on(config)
        {
            builder = builder.with_config(config, value);
        }
    }
    if let Some(key) = key {
        builder = builder.with_service_account_key(key);
    }
    let client = builder
        .with_bucket_name(&address.bucket)
        .with_base_url(&endpoint.url)
        .with_http_connector(connection.connector)
        .build()
        .map_err(|_| OpenError::BadSettings {
            store: description.clone(),
            family: "GOOGLE",
        })?;
    Ok(Store {
        objects: wrap(client, &address.prefix, &description),
        admin: None,
        clock: connection.clock,
        description,
        kind: StoreKind::Gcs,
        source: StoreSource::Url,
        credentials: CredentialSource::Google(source),
        bucket: address.bucket.clone(),
        endpoint: endpoint.origin(),
    })
}

fn is_passed_on(key: GoogleConfigKey) -> bool {
    !matches!(
        key,
        GoogleConfigKey::ServiceAccount
            | GoogleConfigKey::ServiceAccountKey
            | GoogleConfigKey::Bucket
            | GoogleConfigKey::BaseUrl
            | GoogleConfigKey::SkipSignature
            | GoogleConfigKey::Client(ClientConfigKey::AllowHttp)
    )
}

/// The service account key, if any, and the source of the credentials.
fn service_account(options: &OpenOptions) -> Result<(Option<String>, &'static str), OpenError> {
    if let Some(key) = options.var("GOOGLE_SERVICE_ACCOUNT_KEY") {
        let source = "the environment variable GOOGLE_SERVICE_ACCOUNT_KEY";
        return Ok((Some(key.to_owned()), source));
    }
    if let Some(path) = KEY_FILES.iter().find_map(|name| options.var(name)) {
        let path = options.expand_home(path);
        let key = read_text(&path)?.ok_or_else(|| OpenError::UnreadableFile {
            path,
            reason: "the file in GOOGLE_SERVICE_ACCOUNT does not exist".to_owned(),
        })?;
        return Ok((Some(key), "the service account in GOOGLE_SERVICE_ACCOUNT"));
    }
    let source = if options.var("GOOGLE_APPLICATION_CREDENTIALS").is_some() {
        "the file in GOOGLE_APPLICATION_CREDENTIALS"
    } else {
        "the application default credentials or the machine's metadata service"
    };
    Ok((None, source))
}

fn endpoint(
    address: &BucketAddress,
    options: &OpenOptions,
    key: Option<&str>,
) -> Result<Endpoint, OpenError> {
    let key_url = key
        .and_then(|key| serde_json::from_str::<serde_json::Value>(key).ok())
        .and_then(|key| Some(key.get("gcs_base_url")?.as_str()?.to_owned()));
    let (setting, url) = if let Some(endpoint) = address.parameter("endpoint") {
        ("the parameter endpoint", endpoint)
    } else if let Some(url) = options.var("GOOGLE_BASE_URL") {
        ("GOOGLE_BASE_URL", url)
    } else if let Some(url) = &key_url {
        ("the service account's gcs_base_url", url.as_str())
    } else {
        ("the default endpoint", DEFAULT_ENDPOINT)
    };
    Endpoint::parse(setting, url)
}
