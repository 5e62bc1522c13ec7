//! Background maintenance of direct mode: checks the leases, sweeps, and checks the workers.
//!
//! It runs in every worker, or in a process of its own, in any number of processes. Failures are logged and retried at the next
//! interval. Stopping it at any point is like a crash at that point, which every part tolerates.
//!
//! # Requests in an idle bucket, at the default intervals
//!
//! | part | requests a day | by |
//! | --- | --- | --- |
//! | leases | 3,000 GETs answered with 304, 290 LISTs | each process |
//! | workers | 330 GETs answered with 304 | each process |
//! | workers | 330 LISTs, and 330 LISTs and PUTs more by the first | each of the first two workers |
//! | tasks that become due | 1,100 LISTs | a process that only runs maintenance; a worker sends these requests anyway |
//! | sweep | 290 LISTs, 290 PUTs, 100 LISTs for tidying | one process; each further one sends 290 GETs answered with 304 |
//!
//! `docs/guides/buckets.md` has the price.
//!
//! While tasks are running, a LIST of the leases is sent every 24 to 28 s, and each process reads a task that runs for longer than
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

/// The record of a worker without a heartbeat for this long is deleted.
const WORKER_REMOVAL_MS: u64 = 24 * 3_600_000;
/// The workers are checked once per this number of health thresholds, because the result is only logged.
const HEALTH_THRESHOLDS: u32 = 5;
/// The pause between two steps of a pass: a tenth of the sweep interval, and short enough that no other process takes over the pass.
const STEP_PAUSE_PART: u32 = 10;
const STEP_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The shortest pause.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Intervals of the maintenance.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaintenanceConfig {
    /// The maximum time between two checks of the leases.
    pub check_interval: Duration,
    /// A worker without a heartbeat for this long is reported.
    pub worker_health_threshold: Duration,
    /// The time from the start of one pass over all tasks to the start of the next; zero switches the sweeper off.
    pub sweep_interval: Duration,
    /// The page size of the sweeper's LISTs.
    pub sweep_page_size: usize,
    /// How long the sweeper keeps finished tasks; forever if absent.
    pub retention: Option<Duration>,
}

impl Default for MaintenanceConfig {
    fn default() -> Self {
        Self {
            check_interval: Duration::from_secs(30),
            worker_health_threshold: Duration::from_mins(1),
            sweep_interval: Duration::from_mins(5),
            sweep_page_size: PAGE_LIMIT_MAX,
            retention: None,
        }
    }
}

/// The health of the workers, by the time when their records were last written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerHealth {
    /// The number of workers with a heartbeat within the threshold.
    pub healthy: usize,
    /// The workers without one.
    pub stale: Vec<WorkerId>,
    /// The workers without a heartbeat for more than a day, whose records were deleted.
    pub removed: Vec<WorkerId>,
}

impl DirectEngine {
    /// Checks when the workers last sent a heartbeat, and deletes the records of dead ones. Costs one LIST.
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
                } else if entry.last_modified.plus_millis(WORKER_REMOVAL_MS) >= now {
                    health.stale.push(worker);
                } else {
                    // A worker that is alive after all writes its record again with its next heartbeat.
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

/// The background maintenance of a queue.
#[derive(Debug)]
pub struct Maintenance {
    engine: DirectEngine,
    config: MaintenanceConfig,
}

/// Stops the maintenance when [`MaintenanceHandle::stop`] is called or the handle is dropped.
#[derive(Debug)]
pub struct MaintenanceHandle {
    stop: watch::Sender<bool>,
    stopped: watch::Receiver<bool>,
}

impl MaintenanceHandle {
    /// Stops the maintenance and waits until it has ended.
    pub async fn stop(mut self) {
        // Both fail only if the maintenance has ended already.
        let _ = self.stop.send(true);
        let _ = self.stopped.wait_for(|stopped| *stopped).await;
    }
}

impl Maintenance {
    /// Maintenance of the engine's store.
    pub fn new(engine: DirectEngine, config: MaintenanceConfig) -> Self {
        Self { engine, config }
    }

    /// Starts the maintenance in the background.
    pub fn spawn(engine: DirectEngine, config: MaintenanceConfig) -> MaintenanceHandle {
        let (stop, stopping) = watch::channel(false);
        let (ended, stopped) = watch::channel(false);
        let runtime = std::sync::Arc::clone(&engine.shared.runtime);
        let maintenance = Self::new(engine, config);
        runtime.spawn(Box::pin(async move {
            maintenance.run(stopping).await;
            // This fails only if the handle was dropped.
            let _ = ended.send(true);
        }));
        MaintenanceHandle { stop, stopped }
    }

    /// Runs until `stop` becomes true or its sender is dropped.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let stopped = async {
            // An error means that the sender was dropped.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        let work = async {
            tokio::join!(
                self.check_leases(),
                self.promote(),
                self.sweep(),
                self.check_workers()
            );
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
                Ok(Some(report)) => tracing::debug!(?report, "checked the leases"),
                Ok(None) => {
                    tracing::trace!("no claims, so there are no leases to check");
                }
                Err(error) => tracing::warn!(%error, "could not check the leases"),
            }
            self.pause(self.config.check_interval).await;
        }
    }

    /// Promotes scheduled tasks. The claims of a worker do so as well, but a worker without a free slot does not claim.
    async fn promote(&self) {
        loop {
            let signal = &self.engine.shared.signal;
            let epoch = signal.epoch();
            if let Err(error) = self.engine.promote_due().await {
                tracing::warn!(%error, "could not promote the scheduled tasks that are due");
            }
            if !self.engine.watches_scheduled() {
                self.pause(self.config.check_interval).await;
                continue;
            }
            let now = self.engine.client().now();
            let due_in = self.engine.next_promotion().map(|due| due.since(now));
            let limit = due_in.map_or(self.config.check_interval, |due_in| {
                due_in.min(self.config.check_interval)
            });
            signal.wait(epoch, limit.max(PAUSE_MIN)).await;
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
            retention: self.config.retention,
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
        let mut reported = BTreeSet::new();
        loop {
            self.engine.refresh_peers_if_due().await;
            if !self.engine.is_among_first() {
                // The first workers report it.
                self.pause(self.config.worker_health_threshold * HEALTH_THRESHOLDS)
                    .await;
                continue;
            }
            match self
                .engine
                .check_workers(self.config.worker_health_threshold)
                .await
            {
                Ok(health) => {
                    for worker in &health.stale {
                        if !reported.contains(worker) {
                            tracing::warn!(%worker, "a worker has stopped sending heartbeats; its tasks are retried when their leases expire");
                        }
                    }
                    reported = health.stale.into_iter().collect();
                }
                Err(error) => tracing::warn!(%error, "could not check the workers"),
            }
            self.pause(self.config.worker_health_threshold * HEALTH_THRESHOLDS)
                .await;
        }
    }

    /// Sleeps for a little less than `interval`, with jitter, so that processes that started together do not stay in step.
    async fn pause(&self, interval: Duration) {
        let factor = 0.8 + 0.15 * self.engine.runtime().random_unit();
        self.sleep(interval.mul_f64(factor).max(PAUSE_MIN)).await;
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.engine.runtime().sleep(duration)
    }
}
