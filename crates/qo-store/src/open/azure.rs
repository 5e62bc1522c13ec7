//! Opening a container on Azure Blob Storage.
//!
//! `object_store` reads the variables of Azure's tools. The account name is required, because it is part of the host name
//! and of every signature.

use object_store::ClientConfigKey;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::address::BucketAddress;
use super::cloud::{Connection, describe, is_header_value, no_retries, wrap};
use super::endpoint::Endpoint;
use super::error::OpenError;
use super::options::OpenOptions;
use crate::http_layer::client_options;
use crate::store::{CredentialSource, Store, StoreKind, StoreSource};

/// The variables with credentials, in the order in which `object_store` reads them, and a description of each.
const CREDENTIALS: [(&str, &str); 7] = [
    (
        "AZURE_STORAGE_TOKEN",
        "the bearer token in AZURE_STORAGE_TOKEN",
    ),
    (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "the key in AZURE_STORAGE_ACCOUNT_KEY",
    ),
    (
        "AZURE_STORAGE_ACCESS_KEY",
        "the key in AZURE_STORAGE_ACCESS_KEY",
    ),
    (
        "AZURE_FEDERATED_TOKEN_FILE",
        "the workload identity of AZURE_FEDERATED_TOKEN_FILE",
    ),
    (
        "AZURE_CLIENT_SECRET",
        "the client secret in AZURE_CLIENT_SECRET",
    ),
    (
        "AZURE_STORAGE_SAS_TOKEN",
        "the token in AZURE_STORAGE_SAS_TOKEN",
    ),
    (
        "AZURE_STORAGE_SAS_KEY",
        "the token in AZURE_STORAGE_SAS_KEY",
    ),
];
const FALLBACK_SOURCE: &str = "the machine's managed identity";
const EMULATOR_ENDPOINT: &str = "http://127.0.0.1:10000";
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";

pub(super) fn open(address: &BucketAddress, options: &OpenOptions) -> Result<Store, OpenError> {
    let emulator = options.flag("AZURE_STORAGE_USE_EMULATOR") || options.flag("AZURE_USE_EMULATOR");
    let account = account(address, options, emulator)?;
    let endpoint = endpoint(address, options, account, emulator)?;
    let description = describe(address, &endpoint);
    let http_options = client_options(endpoint.is_http);
    let connection = Connection::new(options, &endpoint, http_options, &description, "AZURE")?;
    let mut builder = MicrosoftAzureBuilder::new()
        .with_client_options(connection.http_options)
        .with_retry(no_retries());
    for (name, value) in options.vars_with_prefix("AZURE_") {
        if let Ok(key) = name.to_ascii_lowercase().parse()
            && is_passed_on(key)
        {
            builder = builder.with_config(key, value);
        }
    }
    if !emulator {
        builder = builder.with_endpoint(endpoint.url.clone());
    }
    let client = builder
        .with_account(account)
        .with_use_emulator(emulator)
        .with_container_name(&address.bucket)
        .with_http_connector(connection.connector)
        .build()
        .map_err(|_| OpenError::BadSettings {
            store: description.clone(),
            family: "AZURE",
        })?;
    let source = CREDENTIALS
        .iter()
        .find(|(name, _)| options.var(name).is_some())
        .map_or(FALLBACK_SOURCE, |(_, source)| source);
    Ok(Store {
        objects: wrap(client, &address.prefix, &description),
        admin: None,
        clock: connection.clock,
        description,
        kind: StoreKind::Azure,
        source: StoreSource::Url,
        credentials: CredentialSource::Azure(source),
        bucket: address.bucket.clone(),
        endpoint: endpoint.origin(),
    })
}

fn is_passed_on(key: AzureConfigKey) -> bool {
    !matches!(
        key,
        AzureConfigKey::AccountName
            | AzureConfigKey::ContainerName
            | AzureConfigKey::Endpoint
            | AzureConfigKey::UseEmulator
            | AzureConfigKey::UseFabricEndpoint
            | AzureConfigKey::SkipSignature
            | AzureConfigKey::Client(ClientConfigKey::AllowHttp)
    )
}

fn account<'a>(
    address: &BucketAddress,
    options: &'a OpenOptions,
    emulator: bool,
) -> Result<&'a str, OpenError> {
    match options.var("AZURE_STORAGE_ACCOUNT_NAME") {
        Some(account) if is_header_value(account) => Ok(account),
        Some(_) => Err(OpenError::BadSetting {
            setting: "AZURE_STORAGE_ACCOUNT_NAME".to_owned(),
            reason: "expected the name of a storage account: lower-case letters and digits",
        }),
        None if emulator => Ok(EMULATOR_ACCOUNT),
        None => Err(OpenError::NoCredentials {
            store: format!("az://{}", address.bucket),
            advice: "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or another of Azure's credentials",
        }),
    }
}

fn endpoint(
    address: &BucketAddress,
    options: &OpenOptions,
    account: &str,
    emulator: bool,
) -> Result<Endpoint, OpenError> {
    if emulator {
        // `object_store` reads this variable itself. Here it identifies the host of the store.
        let url = options.var("AZURITE_BLOB_STORAGE_URL");
        return Endpoint::parse("AZURITE_BLOB_STORAGE_URL", url.unwrap_or(EMULATOR_ENDPOINT));
    }
    let default = format!("https://{account}.blob.core.windows.net");
    let variable = |name: &'static str| options.var(name).map(|value| (name, value));
    let (setting, url) = address
        .parameter("endpoint")
        .map(|endpoint| ("the parameter endpoint", endpoint))
        .or_else(|| variable("AZURE_STORAGE_ENDPOINT"))
        .or_else(|| variable("AZURE_ENDPOINT"))
        .unwrap_or(("AZURE_STORAGE_ACCOUNT_NAME", &default));
    Endpoint::parse(setting, url)
}
