//! The names directly below a prefix that have objects below them.

use futures_util::TryFutureExt;
use object_store::path::Path;

use super::classify::Failure;
use super::{StoreClient, bad_key};
use crate::error::StoreError;

pub(super) async fn folders(client: &StoreClient, prefix: &str) -> Result<Vec<String>, StoreError> {
    let path = Path::parse(prefix).map_err(|error| bad_key(prefix, &error.to_string()))?;
    let listed = client
        .retrying("folders", prefix, false, |timeout| {
            let request = client
                .objects()
                .list_with_delimiter(Some(&path))
                .map_err(|error| Failure::of(&error));
            async move { client.with_timeout(timeout, request).await? }
        })
        .await?;
    Ok(listed
        .common_prefixes
        .iter()
        .filter_map(|folder| folder.filename().map(str::to_owned))
        .collect())
}
