//! Finds objects by the time at which they were written.

use futures_util::StreamExt;
use object_store::path::Path;
use qo_core::Timestamp;

use crate::error::StoreError;
use crate::response;
use crate::store::Store;

/// The keys of the objects below `prefix` that were written at or after `since`, among the first `listed_max` objects. One LIST per
/// 1,000 objects.
pub async fn written_since(
    store: &Store,
    prefix: &str,
    since: Timestamp,
    listed_max: usize,
) -> Result<Vec<String>, StoreError> {
    let prefix_path = Path::from(prefix);
    let mut listed = store.objects.list(Some(&prefix_path)).take(listed_max);
    let mut keys = Vec::new();
    while let Some(meta) = listed.next().await {
        let meta = meta.map_err(|error| failed(prefix, &error))?;
        if meta.last_modified.timestamp_millis() >= since.as_millis() {
            keys.push(meta.location.to_string());
        }
    }
    Ok(keys)
}

fn failed(prefix: &str, error: &object_store::Error) -> StoreError {
    let detail = response::find(error).map_or_else(
        || "the list could not be read".to_owned(),
        ToString::to_string,
    );
    StoreError::Unavailable {
        key: prefix.to_owned(),
        detail,
        attempts: 1,
        elapsed: std::time::Duration::ZERO,
        in_doubt: false,
    }
}
