//! `qo monitor`: the maintenance of direct mode, without a worker.

use std::time::Duration;

use qo::{DirectEngine, Maintenance, MaintenanceConfig};
use qo_direct::SweepNext;

use crate::args::MonitorArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::time;
use crate::session::Session;
use crate::signals::{Signals, close_in_time};

/// Maximum number of steps of a sweep with `--once`, however large the store is.
const STEPS_MAX: usize = 100_000;

pub(super) async fn run(args: &MonitorArgs, session: &mut Session) -> Result<(), Failure> {
    let config = settings(args, session)?;
    let queue = session.connect().await?;
    let Some(engine) = queue.direct_engine() else {
        return Err(Failure::new(
            FailureKind::Unsupported,
            "this queue needs no monitor: its server does the maintenance",
        ));
    };
    if args.once {
        let result = once(engine, &config, session).await;
        queue.close().await;
        return result;
    }
    let signals = Signals::listen(&session.runtime)?;
    let maintenance = Maintenance::spawn(engine.clone(), config.clone());
    let sweeps = if config.sweep_interval.is_zero() {
        "never".to_owned()
    } else {
        format!("every {}", time::duration(config.sweep_interval))
    };
    tracing::info!(
        store = queue.store().map_or("", |store| store.description.as_str()),
        "monitoring: leases every {}, sweeps {sweeps}; Ctrl-C stops",
        time::duration(config.check_interval),
    );
    signals.stop.cancelled().await;
    tracing::info!("stopping");
    let closing = async {
        maintenance.stop().await;
        queue.close().await;
    };
    let closing = close_in_time(session.runtime.as_ref(), closing);
    signals
        .unless_stopped_at_once(async {
            closing.await;
            Ok(())
        })
        .await
}

/// The defaults, overridden by the environment, overridden by the flags.
fn settings(args: &MonitorArgs, session: &Session) -> Result<MaintenanceConfig, Failure> {
    let mut config =
        MaintenanceConfig::from_env(&session.environment.variables).map_err(qo::Error::from)?;
    if let Some(seconds) = args.check_interval {
        config.check_interval = Duration::from_secs(seconds);
    }
    if let Some(seconds) = args.worker_health_threshold {
        config.worker_health_threshold = Duration::from_secs(seconds);
    }
    if let Some(seconds) = args.sweep_interval {
        config.sweep_interval = Duration::from_secs(seconds);
    }
    if let Some(size) = args.sweep_page_size {
        config.sweep_page_size = usize::try_from(size).unwrap_or(usize::MAX);
    }
    Ok(config)
}

/// One pass over leases, tasks and workers.
async fn once(
    engine: &DirectEngine,
    config: &MaintenanceConfig,
    session: &mut Session,
) -> Result<(), Failure> {
    let leases = engine.check_leases().await.map_err(qo::Error::from)?;
    let (mut repaired, mut expired, mut quarantined, mut listed) = (0, 0, 0, 0);
    let mut skipped = false;
    if !config.sweep_interval.is_zero() {
        for _ in 0..STEPS_MAX {
            let report = engine.sweep_step().await.map_err(qo::Error::from)?;
            repaired += report.repaired;
            expired += report.expired;
            quarantined += report.quarantined;
            listed += report.listed;
            match report.next {
                SweepNext::Continue => {}
                SweepNext::Rest => break,
                SweepNext::NotBefore(_) => {
                    skipped = listed == 0;
                    break;
                }
            }
        }
    }
    let health = engine
        .check_workers(config.worker_health_threshold)
        .await
        .map_err(qo::Error::from)?;
    let screen = &mut session.screen;
    if screen.json {
        return screen.json(&serde_json::json!({
            "leases_expired": leases.expired,
            "tasks_looked_at": listed,
            "tasks_repaired": repaired,
            "tasks_expired": expired,
            "objects_quarantined": quarantined,
            "workers_healthy": health.healthy,
            "workers_stale": health.stale,
            "workers_removed": health.removed,
        }));
    }
    screen.line(format_args!(
        "leases   {} expired and recovered",
        leases.expired
    ))?;
    screen.line(if skipped {
        "sweep    skipped: not due yet, or running in another process".to_owned()
    } else {
        format!("sweep    {listed} objects checked, {repaired} repaired, {expired} expired, {quarantined} quarantined")
    })?;
    screen.line(format_args!(
        "workers  {} healthy, {} stale, {} removed",
        health.healthy,
        health.stale.len(),
        health.removed.len()
    ))?;
    Ok(())
}
