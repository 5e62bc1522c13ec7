//! Looks a queue over and says what is wrong and what to do about it.
//!
//! It changes no task. What it writes is below `probe/` and removed again, and the probe's verdict is remembered as at any
//! start. Every check has its own time within that of the whole, and one that fails does not end the others.

mod index;
mod report;
mod requests;

use std::future::Future;
use std::time::Duration;

use qo_store::admin::Versioning;
use qo_store::open::CheckError;
use qo_store::probe::{self, ProbeError, ProbeOptions};
use qo_store::runtime::Runtime;
use qo_store::{Store, StoreClient};

use super::init::{holds_all, lifecycle_rules};

pub use report::{DoctorCheck, DoctorReport, Health};

/// What to look at, and for how long.
#[derive(Debug, Clone)]
pub struct DoctorOptions {
    /// How much the probe may do.
    pub probe: ProbeOptions,
    /// How long all checks together may take.
    pub time_max: Duration,
    /// How far this machine's clock may differ from the store's before that is worth a warning.
    pub clock_offset_max: Duration,
    /// A worker that was not heard of for so long counts as dead.
    pub worker_stale_ms: u64,
    /// How many pages of a thousand entries are counted per index.
    pub index_pages_max: usize,
}

impl Default for DoctorOptions {
    fn default() -> Self {
        Self {
            probe: ProbeOptions::default(),
            time_max: Duration::from_mins(1),
            clock_offset_max: Duration::from_secs(5),
            worker_stale_ms: 60_000,
            index_pages_max: 10,
        }
    }
}

/// Every check, in the order in which they are made.
const CHECKS: [&str; 8] = [
    "reachable",
    "permissions",
    "latency",
    "clock",
    "versioning",
    "lifecycle",
    "index",
    "probe",
];

/// Looks a queue over.
pub async fn doctor(
    store: &Store,
    client: &StoreClient,
    runtime: &dyn Runtime,
    options: &DoctorOptions,
) -> DoctorReport {
    let visit = Visit {
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
        let check = if report.checks.iter().any(DoctorCheck::ends_the_visit) {
            DoctorCheck::new(name, Health::Skipped, "the store cannot be used")
        } else {
            visit.within_time(name, visit.check(name)).await
        };
        report.checks.push(check);
    }
    report
}

/// One look at everything.
struct Visit<'a> {
    store: &'a Store,
    client: &'a StoreClient,
    runtime: &'a dyn Runtime,
    options: &'a DoctorOptions,
    deadline: Duration,
}

impl Visit<'_> {
    async fn check(&self, name: &'static str) -> DoctorCheck {
        match name {
            "reachable" => self.reachable().await,
            "permissions" => self.permissions().await,
            "latency" => self.latency().await,
            "clock" => self.clock(),
            "versioning" => self.versioning().await,
            "lifecycle" => self.lifecycle().await,
            "index" => self.index().await,
            _ => self.probe().await,
        }
    }

    /// A check that does not end in time is given up.
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
                format!("not finished within the {} s that all checks have", self.options.time_max.as_secs()),
            )
            .hint("allow more time, or find out why the store is slow"),
        }
    }

    async fn reachable(&self) -> DoctorCheck {
        const NAME: &str = "reachable";
        match qo_store::check(self.store).await {
            Ok(()) => DoctorCheck::new(
                NAME,
                Health::Ok,
                format!("the store answers and accepts {}", self.store.credentials),
            ),
            // Lists may be denied while other requests are not, so the rest is still worth a look.
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
            return DoctorCheck::new(NAME, Health::Ok, "the store's clock is this machine's");
        };
        let offset_ms = clock.offset_ms();
        let allowed_ms = self.options.clock_offset_max.as_millis();
        let (ahead, direction) = if offset_ms < 0 {
            (offset_ms.unsigned_abs(), "behind")
        } else {
            (offset_ms.unsigned_abs(), "ahead of")
        };
        let said = format!(
            "the store's clock is {ahead} ms (± {uncertainty_ms} ms) {direction} this machine's"
        );
        let check = if u128::from(ahead) > allowed_ms {
            DoctorCheck::new(NAME, Health::Warning, said).hint(
                "qo judges by the store's time, so nothing breaks; set this machine's clock by NTP, because a store refuses signatures that are 15 minutes off",
            )
        } else {
            DoctorCheck::new(NAME, Health::Ok, said)
        };
        check
            .figure("offset_ms", offset_ms)
            .figure("uncertainty_ms", uncertainty_ms)
    }

    async fn versioning(&self) -> DoctorCheck {
        const NAME: &str = "versioning";
        let Some(admin) = &self.store.admin else {
            let said =
                "this store keeps no versions that qo can see; tasks carry their own history";
            return DoctorCheck::new(NAME, Health::Ok, said);
        };
        match admin.versioning().await {
            Ok(Versioning::On) => DoctorCheck::new(NAME, Health::Ok, "the bucket keeps versions"),
            Ok(Versioning::Off) => {
                let said = "the bucket keeps no versions; tasks carry their own history";
                DoctorCheck::new(NAME, Health::Ok, said)
                    .hint("run `qo init` if you also want every stored version of a task")
            }
            Ok(Versioning::Suspended) => {
                let said = "versioning is suspended: old versions stay, new ones are not kept";
                DoctorCheck::new(NAME, Health::Ok, said)
                    .hint("run `qo init` to switch it on again, or remove the old versions")
            }
            Err(error) => DoctorCheck::new(NAME, Health::Warning, error.to_string())
                .hint("allow s3:GetBucketVersioning, so that qo notices when versioning changes"),
        }
    }

    async fn lifecycle(&self) -> DoctorCheck {
        const NAME: &str = "lifecycle";
        let Some(admin) = &self.store.admin else {
            let said = "this store has no lifecycle rules that qo can see";
            return DoctorCheck::new(NAME, Health::Ok, said);
        };
        let present = match admin.lifecycle().await {
            Ok(present) => present,
            Err(error) => {
                return DoctorCheck::new(NAME, Health::Warning, error.to_string()).hint(
                    "allow s3:GetLifecycleConfiguration, or see to it yourself that old versions of index objects go",
                );
            }
        };
        let wanted = lifecycle_rules(self.store);
        if holds_all(&present, &wanted) {
            let said = "old versions of index, worker and signal objects go after a day";
            return DoctorCheck::new(NAME, Health::Ok, said);
        }
        let keeps_versions = !matches!(admin.versioning().await, Ok(Versioning::Off));
        let hint = "run `qo init`, or set the rules by hand as docs/guides/buckets.md shows";
        if keeps_versions {
            let said =
                "every index, worker and signal object leaves versions behind that nothing removes";
            DoctorCheck::new(NAME, Health::Warning, said).hint(hint)
        } else {
            let said = "there are no lifecycle rules, and none are needed while the bucket keeps no versions";
            DoctorCheck::new(NAME, Health::Ok, said)
        }
    }

    /// Races conditional writes anew, whatever is remembered.
    async fn probe(&self) -> DoctorCheck {
        const NAME: &str = "probe";
        let left = self.deadline.saturating_sub(self.runtime.monotonic());
        let options = ProbeOptions {
            budget: self.options.probe.budget.min(left),
            ..self.options.probe.clone()
        };
        let objects = &self.store.objects;
        let admin = self.store.admin.as_deref();
        let verdict = match probe::probe(objects, admin, self.runtime, &options).await {
            Ok(verdict) => verdict,
            Err(error) => return DoctorCheck::new(NAME, Health::Failed, error.to_string()),
        };
        probe::save_report(objects, self.runtime, &options, &verdict).await;
        let figures = verdict.figures.clone();
        let check = if verdict.trusted {
            let said = format!(
                "{} races of up to {} writers had one winner each",
                figures.create_rounds + figures.swap_rounds,
                figures.writers_max
            );
            DoctorCheck::new(NAME, Health::Ok, said)
        } else {
            let refusal = ProbeError::Untrusted(Box::new(verdict)).to_string();
            let (said, hint) = refusal.split_once('\n').unwrap_or((&refusal, ""));
            DoctorCheck::new(NAME, Health::Failed, said).hint(hint)
        };
        check
            .figure("create_rounds", figures.create_rounds)
            .figure("swap_rounds", figures.swap_rounds)
            .figure("writers_max", figures.writers_max)
            .figure("requests", figures.requests)
            .figure("duration_ms", figures.duration_ms)
    }
}
