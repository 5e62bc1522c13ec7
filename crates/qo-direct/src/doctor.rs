//! Checks a queue and its store, and reports problems with hints.
//!
//! It changes no task: it replaces a few that nobody processes by their own bytes, to see whether the store lets it. It writes below
//! `probe/` and deletes what it wrote, and it stores the report of the probe, as every start does. All checks share one time limit, and a failed
//! check does not stop the others. Only on request, it rewrites objects that the store refuses to change ([`rescue`]).

mod index;
mod records;
mod report;
mod requests;
mod rescue;
mod swaps;

use std::future::Future;
use std::time::Duration;

use qo_store::admin::Versioning;
use qo_store::open::CheckError;
use qo_store::probe::{self, ProbeError, ProbeOptions};
use qo_store::runtime::Runtime;
use qo_store::{Store, StoreClient};

use super::init::{contains_all, lifecycle_rules};

pub use report::{DoctorCheck, DoctorReport, Health};

/// Limits and thresholds of the checks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DoctorOptions {
    /// The limits of the probe.
    pub probe: ProbeOptions,
    /// The time limit of all checks together.
    pub time_max: Duration,
    /// The largest difference between this machine's clock and the store's that causes no warning.
    pub clock_offset_max: Duration,
    /// A worker without a heartbeat for this long counts as dead.
    pub worker_stale_ms: u64,
    /// A task that has been ready, or whose lease has been over, for longer than this is not being processed.
    pub overdue_after: Duration,
    /// How many pages of 1,000 entries are counted per index.
    pub index_pages_max: usize,
    /// How many records of live tasks are read.
    pub records_max: usize,
    /// Whether to write objects again that the store refuses to change. Nobody may use the bucket meanwhile.
    pub rescue: bool,
}

impl Default for DoctorOptions {
    fn default() -> Self {
        Self {
            probe: ProbeOptions::default(),
            time_max: Duration::from_mins(1),
            clock_offset_max: Duration::from_secs(5),
            worker_stale_ms: 60_000,
            overdue_after: Duration::from_mins(3),
            index_pages_max: 10,
            records_max: 1_000,
            rescue: false,
        }
    }
}

/// All checks, in the order in which they run.
const CHECKS: [&str; 10] = [
    "reachable",
    "permissions",
    "latency",
    "clock",
    "versioning",
    "lifecycle",
    "index",
    "records",
    "swaps",
    "probe",
];

/// Runs all checks.
pub async fn doctor(
    store: &Store,
    client: &StoreClient,
    runtime: &dyn Runtime,
    options: &DoctorOptions,
) -> DoctorReport {
    let run = DoctorRun {
        store,
        client,
        runtime,
        options,
        deadline: runtime.monotonic() + options.time_max,
    };
    let mut report = DoctorReport {
        store: store.description.clone(),
        credentials: store.credentials.to_string(),
        at: client.now(),
        checks: Vec::new(),
    };
    for name in CHECKS {
        let check = if report.checks.iter().any(DoctorCheck::is_fatal) {
            DoctorCheck::new(name, Health::Skipped, "the store is not usable")
        } else {
            run.within_time(name, run.check(name)).await
        };
        report.checks.push(check);
    }
    report
}

/// One run of the checks.
struct DoctorRun<'a> {
    store: &'a Store,
    client: &'a StoreClient,
    runtime: &'a dyn Runtime,
    options: &'a DoctorOptions,
    deadline: Duration,
}

impl DoctorRun<'_> {
    async fn check(&self, name: &'static str) -> DoctorCheck {
        match name {
            "reachable" => self.reachable().await,
            "permissions" => self.permissions().await,
            "latency" => self.latency().await,
            "clock" => self.clock(),
            "versioning" => self.versioning().await,
            "lifecycle" => self.lifecycle().await,
            "index" => self.index().await,
            "records" => self.records().await,
            "swaps" => self.swaps().await,
            _ => self.probe().await,
        }
    }

    /// Runs a check, and abandons it at the deadline.
    async fn within_time(
        &self,
        name: &'static str,
        check: impl Future<Output = DoctorCheck>,
    ) -> DoctorCheck {
        let left = self.deadline.saturating_sub(self.runtime.monotonic());
        tokio::select! {
            biased;
            check = check => check,
            () = self.runtime.sleep(left) => DoctorCheck::new(
                name,
                Health::Warning,
                format!("not finished within the {} s limit for all checks", self.options.time_max.as_secs()),
            )
            .hint("raise the time limit, or find out why the store is slow"),
        }
    }

    async fn reachable(&self) -> DoctorCheck {
        const NAME: &str = "reachable";
        match qo_store::check(self.store, self.runtime).await {
            Ok(()) => DoctorCheck::new(
                NAME,
                Health::Ok,
                format!("the store responds and accepts {}", self.store.credentials),
            ),
            // LIST may be denied while other requests are allowed, so the other checks still run.
            Err(error @ CheckError::Refused { .. }) => {
                DoctorCheck::new(NAME, Health::Failed, error.to_string())
            }
            Err(error) => DoctorCheck::new(NAME, Health::Failed, error.to_string()).fatal(),
        }
    }

    fn clock(&self) -> DoctorCheck {
        const NAME: &str = "clock";
        let clock = &self.store.clock;
        let Some(uncertainty_ms) = clock.uncertainty_ms() else {
            return DoctorCheck::new(NAME, Health::Ok, "the store uses this machine's clock");
        };
        let offset_ms = clock.offset_ms();
        let allowed_ms = self.options.clock_offset_max.as_millis();
        let (difference, direction) = if offset_ms < 0 {
            (offset_ms.unsigned_abs(), "behind")
        } else {
            (offset_ms.unsigned_abs(), "ahead of")
        };
        let summary = format!(
            "the store's clock is {difference} ms (± {uncertainty_ms} ms) {direction} this machine's"
        );
        let check = if u128::from(difference) > allowed_ms {
            DoctorCheck::new(NAME, Health::Warning, summary).hint(
                "qo uses the store's time, so nothing breaks; but synchronize this machine's clock with NTP, because stores reject signatures that are 15 minutes off",
            )
        } else {
            DoctorCheck::new(NAME, Health::Ok, summary)
        };
        check
            .figure("offset_ms", offset_ms)
            .figure("uncertainty_ms", uncertainty_ms)
    }

    async fn versioning(&self) -> DoctorCheck {
        const NAME: &str = "versioning";
        let Some(admin) = &self.store.admin else {
            let summary = "qo cannot see versions in this store; each task carries its own history";
            return DoctorCheck::new(NAME, Health::Ok, summary);
        };
        match admin.versioning().await {
            Ok(Versioning::On) => DoctorCheck::new(NAME, Health::Ok, "the bucket keeps versions"),
            Ok(Versioning::Off) => {
                let summary = "the bucket keeps no versions; each task carries its own history";
                DoctorCheck::new(NAME, Health::Ok, summary)
                    .hint("to also keep every stored version of a task, run `qo init` before workers start")
            }
            Ok(Versioning::Suspended) => {
                let summary = "versioning is suspended: old versions are kept, new ones are not";
                DoctorCheck::new(NAME, Health::Ok, summary)
                    .hint("run `qo init` to switch it on again while nothing uses the bucket, or delete the old versions")
            }
            Err(error) => DoctorCheck::new(NAME, Health::Warning, error.to_string())
                .hint("allow s3:GetBucketVersioning, so that qo notices when versioning changes"),
        }
    }

    async fn lifecycle(&self) -> DoctorCheck {
        const NAME: &str = "lifecycle";
        let Some(admin) = &self.store.admin else {
            let summary = "qo cannot see lifecycle rules in this store";
            return DoctorCheck::new(NAME, Health::Ok, summary);
        };
        let present = match admin.lifecycle().await {
            Ok(present) => present,
            Err(error) => {
                return DoctorCheck::new(NAME, Health::Warning, error.to_string()).hint(
                    "allow s3:GetLifecycleConfiguration, or make sure that old versions of short-lived objects are deleted",
                );
            }
        };
        let expected = lifecycle_rules(self.store);
        if contains_all(&present, &expected) {
            let summary = "old versions of short-lived objects are deleted after a day";
            return DoctorCheck::new(NAME, Health::Ok, summary);
        }
        let keeps_versions = !matches!(admin.versioning().await, Ok(Versioning::Off));
        let hint = "run `qo init`, or set the rules by hand as docs/guides/buckets.md shows";
        if keeps_versions {
            let summary = "no lifecycle rule deletes old versions of short-lived objects, or not of all of them";
            DoctorCheck::new(NAME, Health::Warning, summary).hint(hint)
        } else {
            let summary = "the lifecycle rules are not set, and not needed while the bucket keeps no versions";
            DoctorCheck::new(NAME, Health::Ok, summary)
        }
    }

    /// Races conditional writes, even if an earlier report is stored.
    async fn probe(&self) -> DoctorCheck {
        const NAME: &str = "probe";
        let left = self.deadline.saturating_sub(self.runtime.monotonic());
        let mut options = self.options.probe.clone();
        options.budget = options.budget.min(left);
        let objects = &self.store.objects;
        let admin = self.store.admin.as_deref();
        let probed = match probe::probe(objects, admin, self.runtime, &options).await {
            Ok(probed) => probed,
            Err(error) => return DoctorCheck::new(NAME, Health::Failed, error.to_string()),
        };
        probe::save_report(objects, self.runtime, &options, &probed).await;
        let figures = probed.figures.clone();
        let check = if probed.trusted {
            let summary = format!(
                "{} races of up to {} writers had one winner each",
                figures.create_rounds + figures.swap_rounds,
                figures.writers_max
            );
            DoctorCheck::new(NAME, Health::Ok, summary)
        } else {
            let error = ProbeError::Untrusted(Box::new(probed)).to_string();
            let (summary, hint) = error.split_once('\n').unwrap_or((&error, ""));
            DoctorCheck::new(NAME, Health::Failed, summary).hint(hint)
        };
        check
            .figure("create_rounds", figures.create_rounds)
            .figure("swap_rounds", figures.swap_rounds)
            .figure("writers_max", figures.writers_max)
            .figure("requests", figures.requests)
            .figure("duration_ms", figures.duration_ms)
    }
}
