//! The stored report of a probe, so that later starts need only one GET.
//!
//! It is a single object, written unconditionally: the latest probe is the most accurate. A crash before the write
//! only costs another probe. A stored report is accepted only if it is trusted, has the current format, matches the
//! bucket's versioning, and was stored when it was created: the contents of a bucket can be copied to another store,
//! which may behave differently.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore};

use super::report::{ProbeReport, ProbedVersioning, REPORT_FORMAT};
use super::session::{ProbedObject, Session, describe, is_denied};
use super::{ProbeError, ProbeOptions, probe, versioning};
use crate::admin::BucketAdmin;
use crate::runtime::Runtime;

/// The key of the stored report.
pub const REPORT_KEY: &str = "meta/probe.json";

/// The maximum size of a stored report.
pub(super) const REPORT_BYTES_MAX: u64 = 64 * 1024;

/// How long after its probe a report may have been stored.
const STORED_LATE_MAX: Duration = Duration::from_mins(10);

/// Checks the stored report of the bucket, or probes the bucket and stores the report.
///
/// With a stored report this takes one GET. If there is an `admin`, it also reads the bucket's versioning
/// concurrently, because a store may be correct only without versioning.
pub async fn ensure_trusted(
    objects: &Arc<dyn ObjectStore>,
    admin: Option<&dyn BucketAdmin>,
    runtime: &dyn Runtime,
    options: &ProbeOptions,
) -> Result<ProbeReport, ProbeError> {
    let (stored, versioning) =
        join(load_report(objects, runtime, options), versioning(admin)).await;
    if let Some(report) = stored?
        && report.trusted
        && (versioning == ProbedVersioning::Unknown || versioning == report.versioning)
    {
        return Ok(report);
    }
    let report = probe(objects, admin, runtime, options).await?;
    save_report(objects, runtime, options, &report).await;
    if report.trusted {
        Ok(report)
    } else {
        Err(ProbeError::Untrusted(Box::new(report)))
    }
}

/// The stored report, trusted or not, if there is one that this version can read.
pub async fn load_report(
    objects: &Arc<dyn ObjectStore>,
    runtime: &dyn Runtime,
    options: &ProbeOptions,
) -> Result<Option<ProbeReport>, ProbeError> {
    let session = Session::new(objects, None, runtime, options.budget);
    let key = Path::from(REPORT_KEY);
    match session.read_if(&key, &GetOptions::default()).await {
        Ok(stored) => Ok(parse(&stored)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(ProbeError::store("reading the stored report", &error)),
    }
}

fn parse(stored: &ProbedObject) -> Option<ProbeReport> {
    let report: ProbeReport = serde_json::from_slice(&stored.body).ok()?;
    if report.format != REPORT_FORMAT {
        return None;
    }
    let stored_at = qo_core::Timestamp::from_millis(stored.meta.last_modified.timestamp_millis());
    let was_copied = report
        .store_time
        .is_none_or(|probed| stored_at.since(probed) > STORED_LATE_MAX);
    (!was_copied).then_some(report)
}

/// Stores a report. If that fails, the next start probes again.
pub async fn save_report(
    objects: &Arc<dyn ObjectStore>,
    runtime: &dyn Runtime,
    options: &ProbeOptions,
    report: &ProbeReport,
) {
    let session = Session::new(objects, None, runtime, options.budget);
    match serde_json::to_vec_pretty(report) {
        Ok(json) => {
            if let Err(error) = session.put(&Path::from(REPORT_KEY), json.into()).await {
                tracing::warn!(%error, "cannot store the report of the probe");
            }
        }
        Err(error) => tracing::warn!(%error, "cannot serialize the report of the probe"),
    }
}

impl ProbeError {
    pub(super) fn store(doing: &'static str, error: &Error) -> Self {
        let detail = describe(error);
        if is_denied(error) {
            Self::Denied { doing, detail }
        } else {
            Self::Store { doing, detail }
        }
    }
}
