//! The dashboard's files in a bucket, below `ui/`.
//!
//! Each file is written whole, in place of what was there, and the page that leads to the others comes last: a crash before it leaves
//! the old page with some newer files, and running it again puts that right.

use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions, PutPayload};
use qo_store::admin::BucketAdmin;
use qo_store::{Store, StoreError};
use serde::Serialize;
use thiserror::Error;

use crate::assets::{ALL, Asset, CACHE_CONTROL, INDEX};

/// Where the files lie in the bucket.
pub const FOLDER: &str = "ui";

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeployReport {
    /// How many files there are.
    pub files: usize,
    /// How many of them were not there yet, or were others.
    pub written: usize,
    /// Where the page is, if a browser can call this store.
    pub url: Option<String>,
    /// Whether everybody may read the files; not known, if that was not asked for.
    pub public: Option<bool>,
}

/// Why the files are not there.
#[derive(Debug, Error)]
pub enum DeployError {
    /// A file could not be read or written.
    #[error("{path} could not be written to the store: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: object_store::Error,
    },
    /// The files are there, but not everybody may read them.
    #[error(
        "the files are in the bucket, but the rule that lets everybody read them could not be set: {0}"
    )]
    Policy(#[from] StoreError),
}

/// Writes the files that are not there yet. With `public`, also lets everybody read them, and nothing else in the bucket.
pub async fn deploy(store: &Store, public: bool) -> Result<DeployReport, DeployError> {
    let mut written = 0;
    let (page, others): (Vec<_>, Vec<_>) = ALL.iter().partition(|asset| asset.path == INDEX);
    for asset in others.into_iter().chain(page) {
        written += usize::from(put(store.objects.as_ref(), asset).await?);
    }
    let admin = store.admin.as_deref();
    let is_public = match admin {
        Some(admin) if public => {
            admin.publish(FOLDER).await?;
            Some(true)
        }
        None if public => Some(false),
        _ => None,
    };
    Ok(DeployReport {
        files: ALL.len(),
        written,
        url: admin
            .and_then(BucketAdmin::browser_location)
            .map(|place| place.url_of(&format!("{FOLDER}/{INDEX}"))),
        public: is_public,
    })
}

/// Writes a file unless it is there already. Says whether it was written.
async fn put(objects: &dyn ObjectStore, asset: &Asset) -> Result<bool, DeployError> {
    let path = Path::from(format!("{FOLDER}/{}", asset.path));
    let failed = |source| DeployError::File {
        path: path.to_string(),
        source,
    };
    match objects.get(&path).await {
        Ok(found) => {
            if found.bytes().await.map_err(failed)? == asset.bytes {
                return Ok(false);
            }
        }
        Err(object_store::Error::NotFound { .. }) => {}
        Err(error) => return Err(failed(error)),
    }
    let mut attributes = Attributes::new();
    attributes.insert(Attribute::ContentType, asset.content_type().into());
    attributes.insert(Attribute::CacheControl, CACHE_CONTROL.into());
    let options = PutOptions {
        attributes,
        ..PutOptions::default()
    };
    let payload = PutPayload::from_static(asset.bytes);
    objects
        .put_opts(&path, payload, options)
        .await
        .map_err(failed)?;
    Ok(true)
}
