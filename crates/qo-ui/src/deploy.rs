//! Uploads the dashboard to a bucket, below `ui/`.
//!
//! The start page is written last. A crash before that leaves the old page with some newer files; deploying again fixes it.

use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions, PutPayload};
use qo_store::admin::BucketAdmin;
use qo_store::{Store, StoreError};
use serde::Serialize;
use thiserror::Error;

use crate::assets::{ALL, Asset, CACHE_CONTROL, INDEX};

/// Prefix of the files in the bucket.
pub const FOLDER: &str = "ui";

/// Result of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeployReport {
    /// Number of files.
    pub files: usize,
    /// Number of files that were missing or different, and so were written.
    pub written: usize,
    /// URL of the page, if browsers can access the store.
    pub url: Option<String>,
    /// Whether the files are public; `None` if that was not requested.
    pub public: Option<bool>,
}

/// Why a deployment failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeployError {
    /// A file could not be read or written.
    #[error("cannot write {path} to the store: {source}")]
    File {
        /// The path of the file.
        path: String,
        /// The cause.
        source: object_store::Error,
    },
    /// The files were written, but could not be made public.
    #[error(
        "the files are in the bucket, but the policy that makes them public could not be set: {0}"
    )]
    Policy(#[from] StoreError),
}

/// Writes missing and changed files. With `public`, also makes these files, and nothing else in the bucket, publicly readable.
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
            .map(|location| location.url_of(&format!("{FOLDER}/{INDEX}"))),
        public: is_public,
    })
}

/// Writes a file unless it is up to date. Returns whether it was written.
async fn put(objects: &dyn ObjectStore, asset: &Asset) -> Result<bool, DeployError> {
    let path = Path::from(format!("{FOLDER}/{}", asset.path));
    let failed = |source| DeployError::File {
        path: path.to_string(),
        source,
    };
    match objects.get(&path).await {
        Ok(existing) => {
            if existing.bytes().await.map_err(failed)? == asset.bytes {
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
