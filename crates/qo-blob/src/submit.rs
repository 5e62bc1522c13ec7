//! Submits of tasks that refer to blobs.
//!
//! | step | a crash right after it leaves |
//! | --- | --- |
//! | 1. touch each blob; fail if one is missing | blobs that are kept for the grace time |
//! | 2. submit the task | the task, whose blobs are kept because it refers to them |
//! | 3. only if that took longer than half an hour: touch each blob again, and cancel the task if one is gone | the task |

use std::time::Duration;

use qo_core::BlobAddress;
use qo_engine::Engine;
use qo_engine::api::{SubmitRequest, Submitted};
use qo_store::runtime::Runtime;

use crate::api::BlobStore;
use crate::error::BlobError;

/// After so long, a collection with the shortest grace time may have missed the touch. It is 45 minutes; this leaves a margin.
const TOUCH_HOLDS: Duration = Duration::from_mins(30);

/// Submits a task that refers to these blobs, so that no garbage collection takes one of them before it sees the task.
pub async fn submit_with_blobs(
    engine: &dyn Engine,
    blobs: &dyn BlobStore,
    runtime: &dyn Runtime,
    request: SubmitRequest,
    addresses: &[BlobAddress],
) -> Result<Submitted, BlobError> {
    let started = runtime.monotonic();
    for address in addresses {
        blobs.touch(*address).await?;
    }
    let submitted = engine.submit(request).await?;
    if runtime.monotonic().saturating_sub(started) > TOUCH_HOLDS {
        for address in addresses {
            if let Err(error) = blobs.touch(*address).await {
                let reason = "a blob was collected while the task was being submitted".to_owned();
                engine.cancel(submitted.task.id, Some(reason)).await?;
                return Err(error);
            }
        }
    }
    Ok(submitted)
}
