//! Runs a worker to its end, and ends it in order.
//!
//! | when | what |
//! | --- | --- |
//! | the first stop | no new claims; a claim on its way is waited for, and what it brings is given back |
//! | the grace before the deadline | handlers that still run are told to stop |
//! | a fifth of the grace before the deadline | those that have not returned are dropped, and their tasks given back |
//! | five seconds after the deadline | what the store has not taken by then is left alone: its lease runs out by itself |
//! | the end | the worker's record is removed, its maintenance stopped, the queue closed |
//! | the second stop, whenever it comes | everything is left alone |

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};
use qo_direct::{Maintenance, MaintenanceHandle};
use tokio_util::sync::CancellationToken;

use super::claims::claim_until;
use super::heartbeat::Heart;
use super::run::{Leash, Plan, Run, Stage};
use super::{WorkerReport, host};
use crate::error::Error;

/// How long the store has for what is left to be written after the deadline.
const STORE_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is said what is waited for.
const TELL_INTERVAL: Duration = Duration::from_secs(5);

/// Runs a worker. The first item of `stops` stops it in order, the second at once.
pub(super) async fn run(
    plan: &Arc<Plan>,
    mut stops: BoxStream<'_, ()>,
) -> Result<WorkerReport, Error> {
    let run = Run::start(plan, plan.run_in)?;
    let leash = Leash(Arc::clone(&run));
    let heart = Heart::new(&run, host::name());
    tracing::info!(worker = %plan.id, slots = plan.concurrency, "worker starts");
    let maintenance = start_maintenance(plan);
    let stopping = CancellationToken::new();
    let work = async {
        // Others leave its share of the work to a worker that they know of.
        heart.beat(&run).await;
        let claims = async {
            claim_until(&run, &stopping).await;
            run.running.wait_for(0).await;
        };
        // What runs after the stop still belongs to a worker that is there.
        tokio::select! {
            biased;
            () = claims => {}
            () = heart.keep_beating(&run) => {}
        }
    };
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        () = next(&mut stops) => {}
        () = &mut work => {}
    }
    stopping.cancel();
    let ending = async {
        finish(&run, work).await;
        clear_away(&run, maintenance).await;
    };
    let is_orderly = tokio::select! {
        biased;
        () = next(&mut stops) => false,
        () = ending => true,
    };
    let running = run.running.count();
    drop(leash);
    if !is_orderly {
        tracing::warn!(running, "stopped at once");
        return Err(Error::StoppedAtOnce { running });
    }
    let report = run.counters.report();
    tracing::info!(worker = %plan.id, ?report, "worker stopped");
    Ok(report)
}

fn start_maintenance(plan: &Plan) -> Option<MaintenanceHandle> {
    let engine = plan.queue.objects_engine()?.clone();
    let config = plan.maintenance.clone()?;
    Some(Maintenance::spawn(engine, config))
}

/// Waits for the next stop; for ever, if there is none.
async fn next(stops: &mut BoxStream<'_, ()>) {
    if stops.next().await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Waits for what runs, and then sees to it that it ends.
async fn finish(run: &Run, mut ended: Pin<&mut impl Future<Output = ()>>) {
    let runtime = run.plan.runtime();
    let deadline = run.plan.shutdown_deadline;
    let grace = run.plan.grace.min(deadline);
    let mut left = deadline.saturating_sub(grace);
    while !left.is_zero() {
        let running = run.running.count();
        if running > 0 {
            tracing::info!("waiting for {running} tasks, up to {:?}", left + grace);
        }
        let pause = left.min(TELL_INTERVAL);
        tokio::select! {
            biased;
            () = &mut ended => return,
            () = runtime.sleep(pause) => left -= pause,
        }
    }
    let running = run.running.count();
    if running > 0 {
        tracing::info!("telling {running} tasks to stop");
    }
    run.stage.send_replace(Stage::Stopping(grace * 4 / 5));
    tokio::select! {
        biased;
        () = &mut ended => return,
        () = runtime.sleep(grace + STORE_PATIENCE) => {}
    }
    tracing::warn!(
        "leaving {} tasks alone; their leases run out by themselves",
        run.running.count()
    );
    run.stage.send_replace(Stage::Abandoned);
    // Keepers end at once then. One that is being polled somewhere needs a moment.
    tokio::select! {
        biased;
        () = run.running.wait_for(0) => {}
        () = runtime.sleep(STORE_PATIENCE) => {}
    }
}

/// Leaves nothing behind that only looks as if the worker were there. Nothing correct rests on it.
async fn clear_away(run: &Run, maintenance: Option<MaintenanceHandle>) {
    let clearing = async {
        if let Some(maintenance) = maintenance {
            maintenance.stop().await;
        }
        if let Err(error) = run.plan.queue.deregister(&run.plan.id).await {
            tracing::warn!(%error, "could not remove this worker's record; it is forgotten in a day");
        }
        run.plan.queue.close().await;
    };
    tokio::select! {
        biased;
        () = clearing => {}
        () = run.plan.runtime().sleep(STORE_PATIENCE) => {
            tracing::warn!("the store does not answer; leaving without a word");
        }
    }
}

/// The signals that ask this process to stop.
#[cfg(unix)]
pub(super) fn signals() -> Result<impl Stream<Item = ()> + Send, Error> {
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
    Ok(stream::unfold(both, |(mut term, mut int)| async move {
        let name = tokio::select! {
            biased;
            Some(()) = term.recv() => "SIGTERM",
            Some(()) = int.recv() => "SIGINT",
            else => return None,
        };
        tracing::info!("got {name}");
        Some(((), (term, int)))
    }))
}

/// The signals that ask this process to stop.
#[cfg(not(unix))]
pub(super) fn signals() -> Result<impl Stream<Item = ()> + Send, Error> {
    Ok(stream::unfold((), |()| async {
        tokio::signal::ctrl_c().await.ok()?;
        tracing::info!("got Ctrl-C");
        Some(((), ()))
    }))
}
