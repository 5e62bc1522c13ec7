//! Runs a worker and stops it gracefully.
//!
//! | when | what |
//! | --- | --- |
//! | first stop, or an operator asks for it | no new claims; tasks of claims under way are released |
//! | one grace period before the deadline | running handlers are asked to stop |
//! | a fifth of the grace period before the deadline | handlers that still run are dropped, and their tasks released |
//! | five seconds after the deadline | outcomes that the store has not accepted are abandoned: those tasks are retried when their leases expire |
//! | end | maintenance is stopped, the worker's record removed, the queue closed |
//! | second stop, at any time | everything is abandoned. After a stop that an operator asked for, one stop of the process changes nothing |

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};
use qo_direct::{Maintenance, MaintenanceHandle};
use qo_store::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::claims::claim_until;
use super::heartbeat::Heartbeat;
use super::run::{AbandonOnDrop, Plan, ShutdownPhase, WorkerRun};
use super::{WorkerReport, host};
use crate::error::Error;
use crate::schedule::ScheduleDriver;

/// Time limit for the last writes after the deadline.
const LAST_WRITES_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the log line about running tasks.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Signals that follow another one within this time count as the same: `timeout` sends its signal to the process and to its group.
#[cfg(unix)]
const ONE_SIGNAL: Duration = Duration::from_millis(250);

/// Runs a worker. The first item of `stops` stops it gracefully, the second immediately.
pub(super) async fn run(
    plan: &Arc<Plan>,
    mut stops: BoxStream<'_, ()>,
) -> Result<WorkerReport, Error> {
    let run = WorkerRun::start(plan, plan.run_in)?;
    plan.batches.set_hurried(false);
    let guard = AbandonOnDrop(Arc::clone(&run));
    let heartbeat = Heartbeat::new(&run, host::host_name());
    tracing::info!(worker = %plan.id, slots = plan.concurrency, "worker started");
    let maintenance = start_maintenance(plan);
    let stopping = CancellationToken::new();
    let work = async {
        // Registered before the first claim, so that other workers leave it a share of the work.
        heartbeat.beat(&run).await;
        let claims = async {
            claim_until(&run, &stopping).await;
            run.running.wait_for(0).await;
        };
        // Heartbeats continue while tasks run after the stop.
        tokio::select! {
            biased;
            () = claims => {}
            () = heartbeat.run(&run) => {}
            () = drive_schedules(plan, &stopping) => {}
        }
    };
    let mut work = std::pin::pin!(work);
    let is_asked = tokio::select! {
        biased;
        () = next(&mut stops) => false,
        _ = plan.requests.stop() => true,
        () = &mut work => false,
    };
    stopping.cancel();
    let ending = async {
        finish(&run, work).await;
        clean_up(&run, maintenance).await;
    };
    let second_stop = async {
        if is_asked {
            next(&mut stops).await;
        }
        next(&mut stops).await;
    };
    let is_graceful = tokio::select! {
        biased;
        () = second_stop => false,
        () = ending => true,
    };
    let running = run.running.count();
    drop(guard);
    if !is_graceful {
        tracing::warn!(running, "stopped immediately");
        return Err(Error::StoppedAtOnce { running });
    }
    let report = run.counters.report();
    tracing::info!(worker = %plan.id, ?report, "worker stopped");
    Ok(report)
}

fn start_maintenance(plan: &Plan) -> Option<MaintenanceHandle> {
    let engine = plan.queue.direct_engine()?.clone();
    let config = plan.maintenance.clone()?;
    Some(Maintenance::spawn(engine, config))
}

/// Fires the queue's schedules until the worker stops, and then waits forever.
async fn drive_schedules(plan: &Plan, stopping: &CancellationToken) {
    if plan.drives_schedules {
        // Boxed, so that it does not enlarge the future of the worker.
        let driver = Box::pin(ScheduleDriver::new(plan.queue.clone()).run());
        tokio::select! {
            biased;
            () = stopping.cancelled() => {}
            () = driver => {}
        }
    }
    std::future::pending::<()>().await;
}

/// Waits for the next stop, possibly forever.
async fn next(stops: &mut BoxStream<'_, ()>) {
    if stops.next().await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Waits for running tasks, and ends them at the deadline.
async fn finish(run: &WorkerRun, mut ended: Pin<&mut impl Future<Output = ()>>) {
    let runtime = run.plan.runtime();
    let deadline = run.plan.shutdown_deadline;
    let grace = run.plan.grace.min(deadline);
    let mut left = deadline.saturating_sub(grace);
    while !left.is_zero() {
        let running = run.running.count();
        if running > 0 {
            tracing::info!("waiting for {running} tasks, up to {:?}", left + grace);
        }
        let pause = left.min(LOG_INTERVAL);
        tokio::select! {
            biased;
            () = &mut ended => return,
            () = runtime.sleep(pause) => left -= pause,
        }
    }
    let running = run.running.count();
    if running > 0 {
        tracing::info!("asking {running} tasks to stop");
    }
    run.phase
        .send_replace(ShutdownPhase::Stopping(grace * 4 / 5));
    tokio::select! {
        biased;
        () = &mut ended => return,
        () = runtime.sleep(grace + LAST_WRITES_TIMEOUT) => {}
    }
    tracing::warn!(
        "abandoning {} tasks; they are retried when their leases expire",
        run.running.count()
    );
    run.phase.send_replace(ShutdownPhase::Abandoned);
    // Supervisors end at once now, except one that is being polled at this moment.
    tokio::select! {
        biased;
        () = run.running.wait_for(0) => {}
        () = runtime.sleep(LAST_WRITES_TIMEOUT) => {}
    }
}

/// Removes the worker's record and closes the queue. Correctness does not depend on it.
async fn clean_up(run: &WorkerRun, maintenance: Option<MaintenanceHandle>) {
    let cleaning = async {
        if let Some(maintenance) = maintenance {
            maintenance.stop().await;
        }
        if let Err(error) = run.plan.queue.deregister(&run.plan.id).await {
            tracing::warn!(%error, "could not remove this worker's record; it expires in a day");
        }
        run.plan.queue.close().await;
    };
    tokio::select! {
        biased;
        () = cleaning => {}
        () = run.plan.runtime().sleep(LAST_WRITES_TIMEOUT) => {
            tracing::warn!("the store does not respond; the worker's record remains");
        }
    }
}

/// The signals that stop this process.
#[cfg(unix)]
pub(super) fn signals(runtime: Arc<dyn Runtime>) -> Result<impl Stream<Item = ()> + Send, Error> {
    use tokio::signal::unix::{SignalKind, signal};

    let listen = |kind| {
        signal(kind).map_err(|error| Error::NoSignals {
            detail: error.to_string(),
        })
    };
    let both = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    let start = (both, runtime, None::<Duration>);
    Ok(stream::unfold(
        start,
        |((mut term, mut int), runtime, last)| async move {
            loop {
                let name = tokio::select! {
                    biased;
                    Some(()) = term.recv() => "SIGTERM",
                    Some(()) = int.recv() => "SIGINT",
                    else => return None,
                };
                let now = runtime.monotonic();
                if last.is_some_and(|last| now.saturating_sub(last) < ONE_SIGNAL) {
                    continue;
                }
                tracing::info!("received {name}");
                return Some(((), ((term, int), runtime, Some(now))));
            }
        },
    ))
}

/// The signals that stop this process.
#[cfg(not(unix))]
pub(super) fn signals(_runtime: Arc<dyn Runtime>) -> Result<impl Stream<Item = ()> + Send, Error> {
    Ok(stream::unfold((), |()| async {
        tokio::signal::ctrl_c().await.ok()?;
        tracing::info!("received Ctrl-C");
        Some(((), ()))
    }))
}
