//! Opening a store by its URL.
//!
//! | URL | store |
//! | --- | --- |
//! | `memory:` | the memory of this process, a new store each time; `memory:NAME` is the same one each time |
//! | `sqlite:PATH` | an SQLite file |
//! | `s3://BUCKET[/PREFIX]` | S3, or a server that speaks its protocol: `?endpoint=`, `?region=`, `?profile=` |
//! | `gs://BUCKET[/PREFIX]` | Google Cloud Storage: `?endpoint=` |
//! | `az://CONTAINER[/PREFIX]` | Azure Blob Storage: `?endpoint=` |
//!
//! A parameter that is not listed is refused, `engine` included: which engine runs on a store is decided above, and must
//! be taken off the URL there, lest somebody believes in a choice that had no effect.
//!
//! Opening sends no request. [`check`] sends one, and turns what can be wrong with a bucket or with its credentials into
//! a line that says what to do.

mod address;
mod aws_credentials;
mod azure;
mod check;
mod error;
mod gcs;
mod memory;
mod opaque;
mod options;
mod process;
mod profile;
mod s3;
mod sqlite;

use std::path::PathBuf;
use std::sync::Arc;

use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path as ObjectPath;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use self::address::{Address, BucketAddress, Cloud, Endpoint};
use self::opaque::OpaqueStore;
use crate::clock::StoreClock;
use crate::http_layer::StoreConnector;
use crate::store::{Store, StoreSource};
use crate::wrap::CountingStore;

#[cfg(feature = "fuzzing")]
pub(crate) use self::address::Address as FuzzedAddress;

pub use self::check::{CheckError, check};
pub use self::error::OpenError;
pub use self::options::OpenOptions;

/// Opens the store at a URL. No request is sent.
pub fn open(url: &str, options: &OpenOptions) -> Result<Store, OpenError> {
    let store = match Address::parse(url)? {
        Address::Memory { name } => memory::open(name.as_deref()),
        Address::Sqlite { path } => {
            let path = profile::expand_home(options, &path.to_string_lossy());
            sqlite::open(&path, options)?
        }
        Address::Bucket(address) => match address.cloud {
            Cloud::S3 => s3::open(&address, options)?,
            Cloud::Gcs => gcs::open(&address, options)?,
            Cloud::Azure => azure::open(&address, options)?,
        },
    };
    Ok(counted(store, options))
}

/// The store, with its requests counted if somebody wants to know.
fn counted(store: Store, options: &OpenOptions) -> Store {
    match options.counter() {
        None => store,
        Some(counter) => Store {
            objects: Arc::new(CountingStore::with_counter(store.objects, counter.clone())),
            ..store
        },
    }
}

/// Opens the store that the environment names: the URL in `QO_STORE`, else the bucket in `S3_BUCKET`, else an SQLite file
/// in the user's data directory, which is made if need be. [`Store::source`] says which it was.
pub fn open_default(options: &OpenOptions) -> Result<Store, OpenError> {
    if let Some(url) = options.var("QO_STORE") {
        let store = open(url, options)?;
        return Ok(Store {
            source: StoreSource::QoStore,
            ..store
        });
    }
    if let Some(bucket) = options.var("S3_BUCKET") {
        let store = open(&format!("s3://{bucket}"), options)?;
        return Ok(Store {
            source: StoreSource::S3Bucket,
            ..store
        });
    }
    let path = default_path(options)?;
    let store = sqlite::open(&path, options)?;
    Ok(Store {
        source: StoreSource::DataDirectory(path),
        ..store
    })
}

/// Where the SQLite file is when nothing is given.
fn default_path(options: &OpenOptions) -> Result<PathBuf, OpenError> {
    // The specification of the XDG directories says to ignore a relative path.
    let xdg = options
        .var("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let data = match xdg {
        Some(path) => path,
        None if cfg!(windows) => options
            .var("LOCALAPPDATA")
            .map(PathBuf::from)
            .ok_or(OpenError::NoDataDirectory)?,
        None => {
            let home = options.home().ok_or(OpenError::NoDataDirectory)?;
            if cfg!(target_os = "macos") {
                home.join("Library").join("Application Support")
            } else {
                home.join(".local").join("share")
            }
        }
    };
    Ok(data.join("qo").join("qo.db"))
}

/// No retries below qo's own loop: it alone knows whether a request may be sent twice.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// What the client of a cloud talks through.
struct Line {
    clock: Arc<StoreClock>,
    connector: StoreConnector,
    http_options: ClientOptions,
    /// A connection, made to see before all else whether there can be one.
    client: HttpClient,
}

impl Line {
    fn new(
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
                // What reqwest says. Of all that it is told here, only the system's certificates can displease it.
                object_store::Error::Generic {
                    store: "HTTP client",
                    ..
                } => OpenError::NoCertificates { store },
                _ => OpenError::BadSettings { store, family },
            }
        })?;
        Ok(Self {
            clock,
            connector,
            http_options,
            client,
        })
    }
}

/// Puts a cloud's client below the prefix of the URL, and out of sight of `Debug`.
fn dress<S: ObjectStore>(client: S, prefix: &ObjectPath, name: &str) -> Arc<dyn ObjectStore> {
    if prefix.as_ref().is_empty() {
        Arc::new(OpaqueStore::new(client, name.to_owned()))
    } else {
        let client = PrefixStore::new(client, prefix.clone());
        Arc::new(OpaqueStore::new(client, name.to_owned()))
    }
}

/// The store as the user may read it: no parameter of the URL, and of the endpoint only its host.
fn describe(address: &BucketAddress, endpoint: &Endpoint) -> String {
    let slash = if address.prefix.as_ref().is_empty() {
        ""
    } else {
        "/"
    };
    format!(
        "{}://{}{slash}{} at {}",
        address.cloud.scheme(),
        address.bucket,
        address.prefix,
        endpoint.origin()
    )
}

/// Whether a text can stand in a header: the client below panics on one that cannot.
fn usable_in_a_header(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}
