//! Opening a bucket on Google Cloud Storage.
//!
//! The client below reads the variables of Google's tools; a service account's key is read here, because it may name the
//! server. Without any of them it uses the user's application default credentials, or the machine's metadata service.

use object_store::ClientConfigKey;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

use super::address::{BucketAddress, Endpoint};
use super::error::OpenError;
use super::options::OpenOptions;
use super::profile::{expand_home, read_text};
use super::{Line, describe, dress, no_retries};
use crate::http_layer::client_options;
use crate::store::{CredentialSource, Store, StoreKind, StoreSource};

const DEFAULT_ENDPOINT: &str = "https://storage.googleapis.com";
/// The variables that name a file with a service account's key.
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
    let line = Line::new(options, &endpoint, http_options, &description, "GOOGLE")?;
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_client_options(line.http_options)
        .with_retry(no_retries());
    for (name, value) in options.vars_with_prefix("GOOGLE_") {
        if let Ok(config) = name.to_ascii_lowercase().parse()
            && is_left_to_the_builder(config)
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
        .with_http_connector(line.connector)
        .build()
        .map_err(|_| OpenError::BadSettings {
            store: description.clone(),
            family: "GOOGLE",
        })?;
    Ok(Store {
        objects: dress(client, &address.prefix, &description),
        admin: None,
        clock: line.clock,
        description,
        kind: StoreKind::Gcs,
        source: StoreSource::Url,
        credentials: CredentialSource::Google(source),
        bucket: address.bucket.clone(),
        endpoint: endpoint.origin(),
    })
}

fn is_left_to_the_builder(key: GoogleConfigKey) -> bool {
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

/// The service account's key, if one is given, and where the credentials come from.
fn service_account(options: &OpenOptions) -> Result<(Option<String>, &'static str), OpenError> {
    if let Some(key) = options.var("GOOGLE_SERVICE_ACCOUNT_KEY") {
        let source = "the environment variable GOOGLE_SERVICE_ACCOUNT_KEY";
        return Ok((Some(key.to_owned()), source));
    }
    if let Some(path) = KEY_FILES.iter().find_map(|name| options.var(name)) {
        let path = expand_home(options, path);
        let key = read_text(&path)?.ok_or_else(|| OpenError::UnreadableFile {
            path,
            reason: "GOOGLE_SERVICE_ACCOUNT names it, and it is not there".to_owned(),
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
    let of_key = key
        .and_then(|key| serde_json::from_str::<serde_json::Value>(key).ok())
        .and_then(|key| Some(key.get("gcs_base_url")?.as_str()?.to_owned()));
    let (setting, url) = if let Some(endpoint) = &address.endpoint {
        ("the parameter endpoint", endpoint.as_str())
    } else if let Some(url) = options.var("GOOGLE_BASE_URL") {
        ("GOOGLE_BASE_URL", url)
    } else if let Some(url) = &of_key {
        ("the service account's gcs_base_url", url.as_str())
    } else {
        ("the default endpoint", DEFAULT_ENDPOINT)
    };
    Endpoint::parse(setting, url)
}
