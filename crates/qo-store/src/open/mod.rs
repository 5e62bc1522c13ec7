//! Opening a store by its URL.
//!
//! | URL | store |
//! | --- | --- |
//! | `memory:` | in the memory of this process, a new store each time; `memory:NAME` opens the same one each time |
//! | `sqlite:PATH` | an SQLite file |
//! | `s3://BUCKET[/PREFIX]` | S3, or a server with an S3-compatible API: `?endpoint=`, `?region=`, `?profile=` |
//! | `gs://BUCKET[/PREFIX]` | Google Cloud Storage: `?endpoint=` |
//! | `az://CONTAINER[/PREFIX]` | Azure Blob Storage: `?endpoint=` |
//!
//! Unknown parameters are rejected, including `engine`: the caller selects the engine and must remove that parameter from
//! the URL, so that it is never silently ignored.
//!
//! Every kind except `memory:` needs a Cargo feature: `sqlite`, `s3`, `gcs` or `azure`. Without it, the URL is rejected
//! with [`OpenError::MissingFeature`].
//!
//! Opening sends no request. [`check`] sends one, and reports problems with the bucket or its credentials together with
//! what to do about them.

mod address;
#[cfg(feature = "s3")]
mod aws_credentials;
#[cfg(feature = "azure")]
mod azure;
mod check;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(any(feature = "s3", feature = "gcs"))]
mod config_file;
#[cfg(feature = "cloud")]
mod endpoint;
mod error;
#[cfg(feature = "gcs")]
mod gcs;
mod memory;
#[cfg(feature = "cloud")]
mod opaque;
mod options;
#[cfg(feature = "s3")]
mod process;
#[cfg(feature = "s3")]
mod profile;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;

use self::address::Address;
use crate::store::{Store, StoreSource};
use crate::wrap::CountingStore;

#[cfg(feature = "fuzzing")]
pub(crate) use self::address::Address as FuzzedAddress;

pub use self::check::{CheckError, check};
pub use self::error::OpenError;
pub use self::options::OpenOptions;

#[cfg(not(feature = "sqlite"))]
const SQLITE_MISSING: OpenError = OpenError::MissingFeature {
    scheme: "sqlite",
    feature: "sqlite",
};

/// Opens the store at a URL. No request is sent.
pub fn open(url: &str, options: &OpenOptions) -> Result<Store, OpenError> {
    let store = match Address::parse(url)? {
        Address::Memory { name } => memory::open(name.as_deref()),
        #[cfg(feature = "sqlite")]
        Address::Sqlite { path } => {
            let path = options.expand_home(&path.to_string_lossy());
            sqlite::open(&path, options)?
        }
        #[cfg(not(feature = "sqlite"))]
        Address::Sqlite { .. } => return Err(SQLITE_MISSING),
        Address::Bucket(address) => match address.cloud {
            #[cfg(feature = "s3")]
            address::Cloud::S3 => s3::open(&address, options)?,
            #[cfg(feature = "gcs")]
            address::Cloud::Gcs => gcs::open(&address, options)?,
            #[cfg(feature = "azure")]
            address::Cloud::Azure => azure::open(&address, options)?,
            #[cfg(not(all(feature = "s3", feature = "gcs", feature = "azure")))]
            cloud => {
                return Err(OpenError::MissingFeature {
                    scheme: cloud.scheme(),
                    feature: cloud.feature(),
                });
            }
        },
    };
    Ok(counted(store, options))
}

/// Adds request counting, if the options ask for it.
fn counted(store: Store, options: &OpenOptions) -> Store {
    match options.counter() {
        None => store,
        Some(counter) => Store {
            objects: Arc::new(CountingStore::with_counter(store.objects, counter.clone())),
            ..store
        },
    }
}

/// Opens the store from the environment: the URL in `QO_STORE`, else the bucket in `S3_BUCKET`, else an SQLite file in the
/// user's data directory, which is created if necessary. [`Store::source`] is the one that was used.
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
    open_data_directory(options)
}

#[cfg(feature = "sqlite")]
fn open_data_directory(options: &OpenOptions) -> Result<Store, OpenError> {
    let path = default_path(options)?;
    let store = sqlite::open(&path, options)?;
    Ok(Store {
        source: StoreSource::DataDirectory(path),
        ..store
    })
}

#[cfg(not(feature = "sqlite"))]
fn open_data_directory(_: &OpenOptions) -> Result<Store, OpenError> {
    Err(SQLITE_MISSING)
}

/// The path of the default SQLite file.
#[cfg(feature = "sqlite")]
fn default_path(options: &OpenOptions) -> Result<PathBuf, OpenError> {
    // The XDG base directory specification requires ignoring a relative path.
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

#[cfg(all(test, not(all(feature = "sqlite", feature = "cloud"))))]
mod tests {
    use super::*;
    use crate::wrap::testing::PausableRuntime;

    #[tokio::test]
    async fn a_missing_feature_is_reported_with_its_name() {
        let options = OpenOptions::new(PausableRuntime::shared());
        for (url, feature, is_enabled) in [
            ("sqlite:qo.db", "sqlite", cfg!(feature = "sqlite")),
            ("s3://bucket", "s3", cfg!(feature = "s3")),
            ("gs://bucket", "gcs", cfg!(feature = "gcs")),
            ("az://bucket", "azure", cfg!(feature = "azure")),
        ] {
            if is_enabled {
                continue;
            }
            let error = open(url, &options).unwrap_err();
            assert!(
                matches!(error, OpenError::MissingFeature { feature: missing, .. } if missing == feature),
                "{error}"
            );
            assert!(error.to_string().contains(feature), "{error}");
        }
        assert!(open("memory:", &options).is_ok());
    }
}
