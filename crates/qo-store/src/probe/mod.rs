//! The probe: whether a bucket can be trusted with a queue.
//!
//! qo's safety rests on conditional writes, and not every store that accepts them honours them: some ignore the condition,
//! some check it and then write whatever happened in between, some are right until versioning is switched on. None of that
//! shows in a version number or a document, so qo tries it, in the very bucket, before its first use.
//!
//! ```text
//! conditions, lists, conditional reads     checks.rs      one caller: is the condition honoured at all?
//!        |
//! races of 2, 4 ... 32 writers             schedule.rs    as many as fit into the budget
//!        |                                 race.rs        one round, and what it proves
//! verdict                                  verdict.rs     remembered by memory.rs
//!        |
//! removal of everything written            cleanup.rs     whatever was found
//! ```
//!
//! All keys are below `probe/{random}/`, so that probes of several processes do not meet.

mod checks;
mod cleanup;
mod memory;
mod race;
mod schedule;
mod session;
mod verdict;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use thiserror::Error;

pub use memory::{VERDICT_KEY, ensure_trusted, recall, remember};
pub use verdict::{Check, CheckName, Figures, Outcome, ProbedVersioning, VERDICT_FORMAT, Verdict};

use self::session::Session;
use crate::admin::BucketAdmin;
use crate::runtime::Runtime;

/// Where probes write.
const PROBE_PREFIX: &str = "probe";

/// How much a probe may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOptions {
    /// How long it may take, and how long any one request may. Where single requests are so slow that not even the first
    /// checks fit, those and one small race are made all the same.
    pub budget: Duration,
    /// The most writers that race at once; at least 2 do, at most 32.
    pub writers_max: u32,
    /// How many races of each size and kind are made at most.
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
pub enum ProbeError {
    /// The store answers, but not as qo needs it.
    #[error("{}", .0.refusal())]
    Untrusted(Box<Verdict>),
    /// The store could not be probed, so nothing is known about it.
    #[error("the store could not be probed: {doing} failed: {detail}")]
    Store {
        /// What was tried.
        doing: &'static str,
        /// What happened.
        detail: String,
    },
}

/// Probes a bucket.
///
/// The verdict holds for the bucket's present versioning, which `admin` tells, if there is one. An error means that the
/// store could not be reached, or denied access; a store that answers wrongly is no error, but a verdict.
pub async fn probe(
    objects: &Arc<dyn ObjectStore>,
    admin: Option<&dyn BucketAdmin>,
    runtime: &dyn Runtime,
    options: &ProbeOptions,
) -> Result<Verdict, ProbeError> {
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
    let verdict = Verdict::judge(&checks, versioning, figures, probed_at, found.store_time);
    tracing::debug!(trusted = verdict.trusted, "probed the bucket");
    Ok(verdict)
}

async fn examine(
    session: &Session<'_>,
    options: &ProbeOptions,
    versioning: ProbedVersioning,
) -> Result<(checks::Findings, Figures), ProbeError> {
    let mut found = checks::single_caller(session).await?;
    let mut checks = found.checks.iter();
    if checks.any(|check| check.required && check.outcome == Outcome::Failed) {
        // Where one caller alone can break a condition, a race proves nothing more.
        return Ok((found, Figures::default()));
    }
    // What comes after the races: the last list, the counter's check, two deletes and a list, and the verdict.
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

/// Whether the bucket keeps versions, as far as that can be found out.
async fn versioning(admin: Option<&dyn BucketAdmin>) -> ProbedVersioning {
    let Some(admin) = admin else {
        return ProbedVersioning::Unknown;
    };
    match admin.versioning().await {
        Ok(versioning) => Some(versioning).into(),
        Err(error) => {
            tracing::debug!(%error, "cannot find out whether the bucket keeps versions");
            ProbedVersioning::Unknown
        }
    }
}
