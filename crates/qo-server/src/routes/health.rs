//! What those ask who run the server: is it there, can it serve, what does it measure.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use qo::Stats;
use qo_store::runtime::RuntimeExt;

use crate::answer::Answer;
use crate::app::App;
use crate::metrics::Surroundings;

/// How old the last look at the store may be, so that health checks cost little.
const READY_FOR: Duration = Duration::from_secs(5);

/// What was found out not long ago.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    ready: Mutex<Option<(Duration, Result<(), String>)>>,
    stats: Mutex<Option<(Duration, Arc<Stats>)>>,
}

fn text(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let value = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

/// Ask whether the process is there
#[utoipa::path(
    get, path = "/healthz", tag = "run", operation_id = "health", security(()),
    responses((status = 200, description = "It is", body = String, content_type = "text/plain"))
)]
pub(crate) async fn health() -> Answer {
    Ok(text(StatusCode::OK, "ok\n"))
}

/// Ask whether the process can serve
///
/// Whether it leads, and whether its store answers.
#[utoipa::path(
    get, path = "/readyz", tag = "run", operation_id = "ready", security(()),
    responses(
        (status = 200, description = "It can", body = String, content_type = "text/plain"),
        (status = 503, description = "It cannot, and why", body = String, content_type = "text/plain")
    )
)]
pub(crate) async fn ready(State(app): State<App>) -> Answer {
    if app.lead().await.is_none() {
        return Ok(text(
            StatusCode::SERVICE_UNAVAILABLE,
            "standby: another process serves\n",
        ));
    }
    let now = app.runtime().monotonic();
    let known = lock(&app.findings.ready).clone();
    let found = match known {
        Some((at, found)) if now.saturating_sub(at) < READY_FOR => found,
        _ => {
            // A task that is not there is found missing by a store that answers.
            let found = match app.engine().get(app.runtime().new_task_id()).await {
                Err(error) if !error.is_not_found() => Err(error.to_string()),
                _ => Ok(()),
            };
            *lock(&app.findings.ready) = Some((now, found.clone()));
            found
        }
    };
    Ok(match found {
        Ok(()) => text(StatusCode::OK, "ready\n"),
        Err(error) => {
            tracing::warn!(error, "not ready");
            // Everybody may ask this, so that the details stay in the log.
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the store does not answer; the log says more\n",
            )
        }
    })
}

/// Read the metrics
///
/// In the text form of Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "run", operation_id = "metrics",
    responses((status = 200, description = "The metrics", body = String, content_type = "text/plain"))
)]
pub(crate) async fn metrics(State(app): State<App>) -> Answer {
    let epoch = app.lead().await;
    // A standby has nothing to count.
    let stats = match epoch {
        Some(_) => stats(&app).await,
        None => None,
    };
    let counts = app.counts.as_ref().map(|counts| {
        let counts = counts();
        let dollars = counts.dollars(&app.prices);
        (counts, dollars)
    });
    let written = app.metrics.write(&Surroundings {
        stats: stats.as_deref(),
        counts,
        is_leader: epoch.is_some(),
        epoch: epoch.filter(|_| app.leader.is_some()),
        connections: app.connections(),
    });
    let mut response = text(StatusCode::OK, written);
    let value = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, value);
    Ok(response)
}

/// The numbers of tasks, counted anew if they are too old; none, if they cannot be counted.
async fn stats(app: &App) -> Option<Arc<Stats>> {
    let now = app.runtime().monotonic();
    let known = lock(&app.findings.stats).clone();
    if let Some((at, stats)) = known
        && now.saturating_sub(at) < app.stats_max_age
    {
        return Some(stats);
    }
    match app.engine().stats().await {
        Ok(stats) => {
            let stats = Arc::new(stats);
            *lock(&app.findings.stats) = Some((now, Arc::clone(&stats)));
            Some(stats)
        }
        Err(error) => {
            tracing::warn!(%error, "the tasks were not counted for the metrics");
            None
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
