//! Liveness, readiness and metrics.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use qo::{Stats, WorkerInfo};
use qo_remote::wire::BROKER_HEADER;
use qo_store::runtime::RuntimeExt;

use crate::app::App;
use crate::metrics::{ExternalMetrics, WorkerCounts};
use crate::response::ApiResult;

/// How long a readiness check is cached, so that health checks cost little.
const READY_FOR: Duration = Duration::from_secs(5);

/// A worker without a heartbeat for this long counts as dead.
const WORKER_LIVE_MS: u64 = 60_000;
/// The most tasks that one count for the metrics reads from the store.
const STATS_READS_MAX: usize = 1_000;

/// Cached results of health checks and task counts.
#[derive(Debug, Default)]
pub(crate) struct HealthCache {
    ready: Mutex<Option<(Duration, Result<(), String>)>>,
    /// Locked while the tasks are counted, so that scrapes at the same time share one count.
    stats: tokio::sync::Mutex<Option<(Duration, Arc<Stats>)>>,
    /// Locked while the workers are counted.
    workers: tokio::sync::Mutex<Option<(Duration, WorkerCounts)>>,
}

fn text(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let value = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

/// Check liveness
///
/// A standby pings its leader here and names it in `Qo-Broker`.
#[utoipa::path(
    get, path = "/healthz", tag = "run", operation_id = "health", security(()),
    responses(
        (status = 200, description = "The process is running", body = String, content_type = "text/plain"),
        (status = 503, description = "The request names this broker, which cannot prove that it leads: it may be cut off from the store", body = String, content_type = "text/plain")
    )
)]
pub(crate) async fn health(State(app): State<App>, headers: HeaderMap) -> ApiResult {
    let is_named = headers.contains_key(BROKER_HEADER);
    if is_named
        && app
            .leader
            .as_ref()
            .is_some_and(|leader| !leader.is_confirmed())
    {
        return Ok(text(
            StatusCode::SERVICE_UNAVAILABLE,
            "unconfirmed: this broker cannot prove that it leads\n",
        ));
    }
    Ok(text(StatusCode::OK, "ok\n"))
}

/// Check readiness
///
/// Whether the process leads and its store responds.
#[utoipa::path(
    get, path = "/readyz", tag = "run", operation_id = "ready", security(()),
    responses(
        (status = 200, description = "The process is ready", body = String, content_type = "text/plain"),
        (status = 503, description = "The process is not ready, with the reason", body = String, content_type = "text/plain")
    )
)]
pub(crate) async fn ready(State(app): State<App>) -> ApiResult {
    if app.confirm_leader().await.is_none() {
        return Ok(text(
            StatusCode::SERVICE_UNAVAILABLE,
            "standby: another process serves\n",
        ));
    }
    let now = app.runtime().monotonic();
    let cached = lock(&app.health_cache.ready).clone();
    let result = match cached {
        Some((at, result)) if now.saturating_sub(at) < READY_FOR => result,
        _ => {
            // A store that responds reports that this task does not exist.
            let result = match app.engine().get(app.runtime().new_task_id()).await {
                Err(error) if !error.is_not_found() => Err(error.to_string()),
                _ => Ok(()),
            };
            *lock(&app.health_cache.ready) = Some((now, result.clone()));
            result
        }
    };
    Ok(match result {
        Ok(()) => text(StatusCode::OK, "ready\n"),
        Err(error) => {
            tracing::warn!(error, "not ready");
            // This route is public, so the details are only in the log.
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the store does not respond; see the log\n",
            )
        }
    })
}

/// Read the metrics
///
/// In Prometheus's text format.
#[utoipa::path(
    get, path = "/metrics", tag = "run", operation_id = "metrics",
    responses((status = 200, description = "The metrics", body = String, content_type = "text/plain"))
)]
pub(crate) async fn metrics(State(app): State<App>) -> ApiResult {
    let epoch = app.confirm_leader().await;
    // A standby has nothing to count.
    let (stats, workers) = match epoch {
        Some(_) => (stats(&app).await, workers(&app).await),
        None => (None, None),
    };
    let counts = app.counts.as_ref().map(|counts| {
        let counts = counts();
        let dollars = counts.dollars(&app.prices);
        (counts, dollars)
    });
    let written = app.metrics.write(&ExternalMetrics {
        stats: stats.as_deref(),
        counts,
        is_leader: epoch.is_some(),
        epoch: epoch.filter(|_| app.leader.is_some()),
        connections: app.connections(),
        gauges: app
            .cluster
            .as_ref()
            .map_or_else(Vec::new, |cluster| cluster.gauges()),
        activity: &app.activity,
        workers,
        now: app.now(),
    });
    let mut response = text(StatusCode::OK, written);
    let value = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, value);
    Ok(response)
}

/// The task counts, refreshed if they are too old. `None` if the tasks cannot be counted.
async fn stats(app: &App) -> Option<Arc<Stats>> {
    let mut cached = app.health_cache.stats.lock().await;
    if let Some((at, stats)) = cached.as_ref()
        && app.runtime().monotonic().saturating_sub(*at) < app.stats_max_age
    {
        return Some(Arc::clone(stats));
    }
    match app.engine().stats_within(STATS_READS_MAX).await {
        Ok(stats) => {
            let stats = Arc::new(stats);
            *cached = Some((app.runtime().monotonic(), Arc::clone(&stats)));
            Some(stats)
        }
        Err(error) => {
            tracing::warn!(%error, "could not count the tasks for the metrics");
            None
        }
    }
}

/// The number of workers, refreshed if it is too old. `None` if they cannot be listed.
async fn workers(app: &App) -> Option<WorkerCounts> {
    let mut cached = app.health_cache.workers.lock().await;
    if let Some((at, counts)) = *cached
        && app.runtime().monotonic().saturating_sub(at) < app.stats_max_age
    {
        return Some(counts);
    }
    match app.engine().workers().await {
        Ok(workers) => {
            let now = app.now();
            let is_live = |worker: &&WorkerInfo| worker.is_healthy(now, WORKER_LIVE_MS);
            let live = workers.iter().filter(is_live).count();
            let counts = WorkerCounts {
                live,
                dead: workers.len() - live,
            };
            *cached = Some((app.runtime().monotonic(), counts));
            Some(counts)
        }
        Err(error) => {
            tracing::warn!(%error, "could not count the workers for the metrics");
            None
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
