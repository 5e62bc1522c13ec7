//! The probe: checks whether a bucket is safe for a queue.
//!
//! qo relies on conditional writes, and not every store that accepts them honours them. Some ignore the condition.
//! Some check it and then write regardless of what happened in between. Some are correct until versioning is enabled.
//! Version numbers and documentation do not show this, so qo tests the bucket itself before its first use.
//!
//! ```text
//! conditions, lists, conditional reads     checks.rs      one caller: are conditions honoured at all?
//!        |
//! races of 2, 4 ... 32 writers             schedule.rs    as many as fit in the budget
//!        |                                 race.rs        one round and its result
//! report                                   report.rs      stored by stored_report.rs
//!        |
//! removal of everything written            cleanup.rs     always
//! ```
//!
//! All keys are below `probe/{random}/`, so that concurrent probes do not interfere.

mod checks;
mod cleanup;
mod race;
mod report;
mod schedule;
mod session;
mod stored_report;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use thiserror::Error;

pub use report::{
    Check, CheckName, CheckOutcome, Figures, ProbeReport, ProbedVersioning, REPORT_FORMAT,
};
pub use stored_report::{REPORT_KEY, ensure_trusted, load_report, save_report};

use self::session::Session;
use crate::admin::BucketAdmin;
use crate::runtime::Runtime;

/// The key prefix of probes.
const PROBE_PREFIX: &str = "probe";

/// Limits of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbeOptions {
    /// The time limit of the probe and of each request. If requests are too slow for the basic checks to fit,
    /// those checks and one small race run anyway.
    pub budget: Duration,
    /// The maximum number of concurrent writers, from 2 to 32.
    pub writers_max: u32,
    /// The maximum number of races of each size and kind.
    pub rounds_max: u32,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(10),
            writers_max: 32,
            rounds_max: 8,
        }
    }
}

/// Why a bucket cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The store responds, but not as qo requires.
    #[error("{}", .0.refusal())]
    Untrusted(Box<ProbeReport>),
    /// The store could not be probed.
    #[error("cannot probe the store: {doing} failed: {detail}")]
    Store {
        /// The failed operation.
        doing: &'static str,
        /// The failure.
        detail: String,
    },
}

/// Probes a bucket.
///
/// The report is valid for the bucket's current versioning, which is read from `admin` if there is one. An error
/// means that the store is unreachable or denied access. A store that behaves incorrectly gives a report, not an
/// error.
pub async fn probe(
    objects: &Arc<dyn ObjectStore>,
    admin: Option<&dyn BucketAdmin>,
    runtime: &dyn Runtime,
    options: &ProbeOptions,
) -> Result<ProbeReport, ProbeError> {
    let session = Session::new(objects, admin, runtime, options.budget);
    let versioning = versioning(admin).await;
    let found = examine(&session, options, versioning).await;
    cleanup::own(&session, versioning).await;
    let (mut found, mut figures) = found?;
    if let Some(store_time) = found.store_time {
        cleanup::leftovers(&session, store_time, versioning).await;
    }
    figures.equal_bytes_change_tag = found.equal_bytes_change_tag;
    figures.requests = session.requests();
    figures.duration_ms = u64::try_from(session.elapsed().as_millis()).unwrap_or(u64::MAX);
    let checks = std::mem::take(&mut found.checks);
    let probed_at = runtime.now();
    let report = ProbeReport::new(&checks, versioning, figures, probed_at, found.store_time);
    tracing::debug!(trusted = report.trusted, "probed the bucket");
    Ok(report)
}

async fn examine(
    session: &Session<'_>,
    options: &ProbeOptions,
    versioning: ProbedVersioning,
) -> Result<(checks::Findings, Figures), ProbeError> {
    let mut found = checks::single_caller(session).await?;
    let mut checks = found.checks.iter();
    if checks.any(|check| check.required && check.outcome == CheckOutcome::Failed) {
        // If a single caller can break a condition, a race proves nothing more.
        return Ok((found, Figures::default()));
    }
    // The requests after the races: the last list, the counter's check, two deletes and a list, and storing the
    // report.
    let requests_after = if versioning == ProbedVersioning::Unknown || session.admin.is_none() {
        6
    } else {
        12
    };
    let deadline = options
        .budget
        .saturating_sub(session.typical() * requests_after);
    let races = schedule::races(session, options, deadline).await?;
    found.checks.extend(races.checks);
    Ok((found, races.figures))
}

/// The bucket's versioning, if known.
async fn versioning(admin: Option<&dyn BucketAdmin>) -> ProbedVersioning {
    let Some(admin) = admin else {
        return ProbedVersioning::Unknown;
    };
    match admin.versioning().await {
        Ok(versioning) => Some(versioning).into(),
        Err(error) => {
            tracing::debug!(%error, "cannot read the bucket's versioning");
            ProbedVersioning::Unknown
        }
    }
}
