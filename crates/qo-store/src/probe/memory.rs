//! The verdict that is remembered in the bucket, so that later starts pay one GET.
//!
//! It is one object, written whole and without a condition: whoever probed last is right about now. A crash before the write
//! costs another probe, and nothing else. It is believed only if it is trusted, has this version's form, was made under the
//! bucket's present versioning, and was stored when it was made: a bucket's content can be copied to another store, its
//! trust cannot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore};

use super::session::{Session, Stored, describe};
use super::verdict::{ProbedVersioning, VERDICT_FORMAT, Verdict};
use super::{ProbeError, ProbeOptions, probe, versioning};
use crate::admin::BucketAdmin;
use crate::runtime::Runtime;

/// Where the verdict is remembered.
pub const VERDICT_KEY: &str = "meta/probe.json";

/// The largest object that is taken for a verdict.
pub(super) const VERDICT_BYTES_MAX: u64 = 64 * 1024;

/// How much later than its probe a verdict may have been stored.
const STORED_LATE_MAX: Duration = Duration::from_mins(10);

/// Trusts the bucket by its remembered verdict, or probes it now and remembers that.
///
/// With a remembered verdict this is one GET and, where there is an `admin`, at the same time its question whether the
/// bucket keeps versions: a store may be right without them and wrong with them.
pub async fn ensure_trusted(
    objects: &Arc<dyn ObjectStore>,
    admin: Option<&dyn BucketAdmin>,
    runtime: &dyn Runtime,
    options: &ProbeOptions,
) -> Result<Verdict, ProbeError> {
    let (remembered, versioning) = join(recall(objects, runtime, options), versioning(admin)).await;
    if let Some(verdict) = remembered?
        && verdict.trusted
        && (versioning == ProbedVersioning::Unknown || versioning == verdict.versioning)
    {
        return Ok(verdict);
    }
    let verdict = probe(objects, admin, runtime, options).await?;
    remember(objects, runtime, options, &verdict).await;
    if verdict.trusted {
        Ok(verdict)
    } else {
        Err(ProbeError::Untrusted(Box::new(verdict)))
    }
}

/// The remembered verdict, whatever it says, if there is one that this version understands.
pub async fn recall(
    objects: &Arc<dyn ObjectStore>,
    runtime: &dyn Runtime,
    options: &ProbeOptions,
) -> Result<Option<Verdict>, ProbeError> {
    let session = Session::new(objects, None, runtime, options.budget);
    let key = Path::from(VERDICT_KEY);
    match session.read_if(&key, &GetOptions::default()).await {
        Ok(stored) => Ok(understand(&stored)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(ProbeError::store("reading the remembered verdict", &error)),
    }
}

fn understand(stored: &Stored) -> Option<Verdict> {
    let verdict: Verdict = serde_json::from_slice(&stored.body).ok()?;
    if verdict.format != VERDICT_FORMAT {
        return None;
    }
    let stored_at = qo_core::Timestamp::from_millis(stored.meta.last_modified.timestamp_millis());
    let was_copied = verdict
        .store_time
        .is_none_or(|probed| stored_at.since(probed) > STORED_LATE_MAX);
    (!was_copied).then_some(verdict)
}

/// Remembers a verdict. A failure to do so only means that the next start probes again.
pub async fn remember(
    objects: &Arc<dyn ObjectStore>,
    runtime: &dyn Runtime,
    options: &ProbeOptions,
    verdict: &Verdict,
) {
    let session = Session::new(objects, None, runtime, options.budget);
    match serde_json::to_vec_pretty(verdict) {
        Ok(json) => {
            if let Err(error) = session.put(&Path::from(VERDICT_KEY), json.into()).await {
                tracing::warn!(%error, "cannot remember the verdict of the probe");
            }
        }
        Err(error) => tracing::warn!(%error, "cannot write the verdict of the probe as JSON"),
    }
}

impl ProbeError {
    pub(super) fn store(doing: &'static str, error: &Error) -> Self {
        Self::Store {
            doing,
            detail: describe(error),
        }
    }
}
