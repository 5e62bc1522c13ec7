//! Keeps direct mode healthy: looks at the leases, sweeps, and watches the workers, for as long as it is let.
//!
//! It runs inside of every worker, or alone, in any number. What goes wrong is logged and tried again at the next interval.
//! Stopping it in the middle of something is like a crash there, which every part of it allows.
//!
//! # What an idle bucket costs, at the default intervals and S3's prices
//!
//! | part | requests a day | dollars a month |
//! | --- | --- | --- |
//! | leases | 3,000 GETs answered 304, 290 LISTs | 0.08 for each process |
//! | workers | 330 LISTs | 0.05 for each process |
//! | tasks that become due | 1,100 LISTs | 0.17 for a process that only monitors; a worker asks this anyway |
//! | sweep | 290 LISTs, 290 PUTs, 100 LISTs for tidying | 0.10 for the bucket, and 0.003 for each further process |
//!
//! While tasks are running, a LIST of the leases is sent every 24 to 28 s, and each monitor reads a task that runs for longer than
//! its first lease about once a minute.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use qo_core::WorkerId;
use qo_core::keys::{Key, WORKERS_PREFIX};
use qo_engine::EngineError;
use qo_store::client::PAGE_LIMIT_MAX;
use qo_store::runtime::RuntimeExt;
use tokio::sync::watch;

use super::DirectEngine;
use super::sweeper::{SweepNext, SweepPace};

/// The record of a worker that was not heard of for so long is deleted.
const WORKER_FORGOTTEN_MS: u64 = 24 * 3_600_000;
/// The workers are looked at every so many health thresholds: it is only told to the log.
const HEALTH_THRESHOLDS: u32 = 5;
/// The pause between two steps of a pass: a tenth of the sweep interval, and never so long that others take the pass over.
const STEP_PAUSE_PART: u32 = 10;
const STEP_PAUSE_MAX: Duration = Duration::from_secs(30);
/// No pause is shorter.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// How often what is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceConfig {
    /// How often leases are looked at, at the least.
    pub check_interval: Duration,
    /// A worker that was not heard of for so long is reported.
    pub worker_health_threshold: Duration,
    /// How long after the beginning of one pass over all tasks the next one begins; zero switches the sweeper off.
    pub sweep_interval: Duration,
    /// How many objects the sweeper asks for at once.
    pub sweep_page_size: usize,
}

impl Default for MaintenanceConfig {
    fn default() -> Self {
        Self {
            check_interval: Duration::from_secs(30),
            worker_health_threshold: Duration::from_mins(1),
            sweep_interval: Duration::from_mins(5),
            sweep_page_size: PAGE_LIMIT_MAX,
        }
    }
}

/// How the workers are, by when their records were last written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerHealth {
    /// How many were heard of within the threshold.
    pub healthy: usize,
    /// Those that were not.
    pub stale: Vec<WorkerId>,
    /// Those that were not heard of for more than a day, whose records were deleted.
    pub removed: Vec<WorkerId>,
}

impl DirectEngine {
    /// Looks at when the workers were last heard of, and deletes the records of those that must be long gone. One LIST.
    pub async fn check_workers(&self, threshold: Duration) -> Result<WorkerHealth, EngineError> {
        let threshold_ms = u64::try_from(threshold.as_millis()).unwrap_or(u64::MAX);
        let mut health = WorkerHealth::default();
        let mut after: Option<String> = None;
        loop {
            let page = self
                .client()
                .page(WORKERS_PREFIX, after.as_deref(), PAGE_LIMIT_MAX)
                .await?;
            let now = self.client().now();
            for entry in page.entries {
                let Ok(Key::Worker(worker)) = entry.key.parse() else {
                    continue;
                };
                if entry.last_modified.plus_millis(threshold_ms) >= now {
                    health.healthy += 1;
                } else if entry.last_modified.plus_millis(WORKER_FORGOTTEN_MS) >= now {
                    health.stale.push(worker);
                } else {
                    // A worker that is there after all writes its record again with its next heartbeat.
                    self.remove_worker(&worker).await?;
                    health.removed.push(worker);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(health),
            }
        }
    }
}

/// The work that goes on beside the queue's own.
#[derive(Debug)]
pub struct Maintenance {
    engine: DirectEngine,
    config: MaintenanceConfig,
}

/// Stops the maintenance that was started with it, when it is told to or dropped.
#[derive(Debug)]
pub struct MaintenanceHandle {
    stop: watch::Sender<bool>,
    stopped: watch::Receiver<bool>,
}

impl MaintenanceHandle {
    /// Stops and waits until nothing goes on any more.
    pub async fn stop(mut self) {
        // Nobody listens any more if it has ended already, and then the wait ends at once, too.
        let _ = self.stop.send(true);
        let _ = self.stopped.wait_for(|stopped| *stopped).await;
    }
}

impl Maintenance {
    /// The maintenance of the store that an engine works on.
    pub fn new(engine: DirectEngine, config: MaintenanceConfig) -> Self {
        Self { engine, config }
    }

    /// Starts it beside the caller.
    pub fn spawn(engine: DirectEngine, config: MaintenanceConfig) -> MaintenanceHandle {
        let (stop, stopping) = watch::channel(false);
        let (ended, stopped) = watch::channel(false);
        let runtime = std::sync::Arc::clone(&engine.shared.runtime);
        let maintenance = Self::new(engine, config);
        runtime.spawn(Box::pin(async move {
            maintenance.run(stopping).await;
            // Nobody waits if the handle is gone.
            let _ = ended.send(true);
        }));
        MaintenanceHandle { stop, stopped }
    }

    /// Goes on until `stop` says so, or its other end is gone.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let stopped = async {
            // An error means that the other end is gone.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        let work = async {
            tokio::join!(self.check_leases(), self.sweep(), self.check_workers());
        };
        tokio::select! {
            biased;
            () = stopped => {}
            () = work => {}
        }
    }

    async fn check_leases(&self) {
        loop {
            match self.engine.check_leases_if_active().await {
                Ok(Some(report)) => tracing::debug!(?report, "looked at the leases"),
                Ok(None) => {
                    tracing::trace!("nothing was claimed, so there are no leases to look at");
                }
                Err(error) => tracing::warn!(%error, "could not look at the leases"),
            }
            self.pause(self.config.check_interval).await;
        }
    }

    async fn sweep(&self) {
        let rest = self.config.sweep_interval;
        if rest.is_zero() {
            return;
        }
        let pace = SweepPace {
            page_size: self.config.sweep_page_size.clamp(1, PAGE_LIMIT_MAX),
            rest,
        };
        loop {
            let pause = match self.engine.sweep_at(pace).await {
                Ok(report) => {
                    tracing::debug!(?report, "swept");
                    match report.next {
                        SweepNext::Continue => (rest / STEP_PAUSE_PART).min(STEP_PAUSE_MAX),
                        SweepNext::Rest => rest,
                        SweepNext::NotBefore(at) => at.since(self.engine.client().now()).min(rest),
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "could not sweep");
                    rest
                }
            };
            self.sleep(pause.max(PAUSE_MIN)).await;
        }
    }

    async fn check_workers(&self) {
        let mut told = BTreeSet::new();
        loop {
            match self
                .engine
                .check_workers(self.config.worker_health_threshold)
                .await
            {
                Ok(health) => {
                    for worker in &health.stale {
                        if !told.contains(worker) {
                            tracing::warn!(%worker, "a worker was not heard of for a while; its tasks come back when their leases run out");
                        }
                    }
                    told = health.stale.into_iter().collect();
                }
                Err(error) => tracing::warn!(%error, "could not look at the workers"),
            }
            self.pause(self.config.worker_health_threshold * HEALTH_THRESHOLDS)
                .await;
        }
    }

    /// Waits for a little less than an interval, never the same, so that those who started together do not stay together.
    async fn pause(&self, interval: Duration) {
        let part = 0.8 + 0.15 * self.engine.runtime().random_unit();
        self.sleep(interval.mul_f64(part).max(PAUSE_MIN)).await;
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.engine.runtime().sleep(duration)
    }
}
