//! The parts that all cloud stores share.

use std::sync::Arc;

#[cfg(feature = "s3")]
use object_store::client::HttpClient;
use object_store::client::HttpConnector;
use object_store::path::Path as ObjectPath;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use super::address::BucketAddress;
use super::endpoint::Endpoint;
use super::error::OpenError;
use super::opaque::OpaqueStore;
use super::options::OpenOptions;
use crate::clock::StoreClock;
use crate::http_layer::StoreConnector;

impl BucketAddress {
    /// A parameter of the URL.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }
}

/// Disables the retries of `object_store`: only qo's own retry loop knows whether a request may be sent twice.
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// The HTTP connection of a cloud client.
pub(super) struct Connection {
    pub(super) clock: Arc<StoreClock>,
    pub(super) connector: StoreConnector,
    pub(super) http_options: ClientOptions,
    /// A client created early, to report connection settings that do not work.
    #[cfg(feature = "s3")]
    pub(super) client: HttpClient,
}

impl Connection {
    pub(super) fn new(
        options: &OpenOptions,
        endpoint: &Endpoint,
        http_options: ClientOptions,
        store: &str,
        family: &'static str,
    ) -> Result<Self, OpenError> {
        let clock = Arc::new(StoreClock::new());
        let connector = StoreConnector::new(
            Arc::clone(options.runtime()),
            Arc::clone(&clock),
            &endpoint.authority,
        );
        let client = connector.connect(&http_options).map_err(|error| {
            let store = store.to_owned();
            match error {
                // An error of reqwest. With these options, only the system's certificates can cause one.
                object_store::Error::Generic {
                    store: "HTTP client",
                    ..
                } => OpenError::NoCertificates { store },
                _ => OpenError::BadSettings { store, family },
            }
        })?;
        #[cfg(not(feature = "s3"))]
        drop(client);
        Ok(Self {
            clock,
            connector,
            http_options,
            #[cfg(feature = "s3")]
            client,
        })
    }
}

/// Adds the prefix of the URL to a cloud client, and hides the client from `Debug`.
pub(super) fn wrap<S: ObjectStore>(
    client: S,
    prefix: &ObjectPath,
    name: &str,
) -> Arc<dyn ObjectStore> {
    if prefix.as_ref().is_empty() {
        Arc::new(OpaqueStore::new(client, name.to_owned()))
    } else {
        let client = PrefixStore::new(client, prefix.clone());
        Arc::new(OpaqueStore::new(client, name.to_owned()))
    }
}

/// A printable description of the store, without the URL's parameters, and with only the origin of the endpoint.
pub(super) fn describe(address: &BucketAddress, endpoint: &Endpoint) -> String {
    format!("{address} at {}", endpoint.origin())
}

/// Whether a text is a valid header value. `object_store` panics on an invalid one.
#[cfg(any(feature = "s3", feature = "azure"))]
pub(super) fn is_header_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}
