//! The stream of events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use http::HeaderMap;
use qo::{EngineError, QueueName, TaskType};
use qo_engine::watch::TaskChange;
use qo_remote::wire::{Condition, schema};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::QueryParams;
use crate::events::{NumberedEvent, Subscription};
use crate::response::{ApiError, ApiResult};
use crate::tokens::{Caller, Scope};

/// The interval of keep-alive lines, with which both sides notice a broken connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Which events to receive.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Of this queue.
    #[serde(default)]
    #[param(value_type = Option<schema::Name>)]
    queue: Option<QueueName>,
    /// Of this type.
    #[serde(default)]
    #[param(value_type = Option<schema::Name>)]
    task_type: Option<TaskType>,
}

impl EventsQuery {
    fn matches(&self, event: &TaskChange) -> bool {
        self.queue
            .as_ref()
            .is_none_or(|queue| *queue == event.queue)
            && self
                .task_type
                .as_ref()
                .is_none_or(|task_type| *task_type == event.task_type)
    }
}

/// Listen to events
///
/// Server-sent events: each durable change of a task by this process, including its maintenance, as `event: task` with JSON. Changes by
/// other processes on the same store are not included. A slow listener gets `event: missed` with the number of missed events. A listener
/// that reconnects with `Last-Event-ID` first gets the events since then, or `event: missed` with the data `unknown` if they are no longer
/// kept. The stream ends when its token is revoked or expires.
#[utoipa::path(
    get, path = "/v1/events", tag = "inspect", operation_id = "events",
    params(EventsQuery, ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event that was received")),
    responses((status = 200, description = "Events, until either side stops or another process leads", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn events(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    QueryParams(query): QueryParams<EventsQuery>,
) -> ApiResult {
    let Ok(permit) = Arc::clone(&app.listeners).try_acquire_owned() else {
        return Err(ApiError::new(
            Condition::Overloaded,
            "the server has the maximum number of listeners; try again later",
        ));
    };
    let last_id = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok());
    let subscription = app.events.listen(app.state(), last_id);
    let Some(epoch) = app.confirm_leader().await else {
        return Err(EngineError::NotLeader.into());
    };
    let limits = caller.limits.clone();
    let token_ended = {
        let app = app.clone();
        Box::pin(async move {
            app.guard.ended(&caller, &[Scope::Read], || app.now()).await;
        })
    };
    let state = (app, subscription, (query, limits), permit, token_ended);
    let events = stream::unfold(
        state,
        move |(app, mut subscription, query, permit, mut token_ended)| async move {
            if std::mem::take(&mut subscription.has_gap) {
                let event = Event::default().event("missed").data("unknown");
                let state = (app, subscription, query, permit, token_ended);
                return Some((Ok::<_, Infallible>(event), state));
            }
            loop {
                let received = tokio::select! {
                    biased;
                    () = app.stopped() => return None,
                    () = &mut token_ended => return None,
                    // From now on another process makes the changes.
                    () = app.epoch_ended(epoch) => return None,
                    received = next_event(&mut subscription) => received,
                };
                let event = match received {
                    Ok(event)
                        if query.0.matches(&event.change)
                            && query.1.allow(&event.change.queue, &event.change.task_type) =>
                    {
                        // An event consists of strings and numbers, so it can always be serialized.
                        Event::default()
                            .event("task")
                            .json_data(&*event.change)
                            .unwrap_or_default()
                            .id(app.events.id_of(&event))
                    }
                    Ok(_) => continue,
                    Err(RecvError::Lagged(count)) => {
                        Event::default().event("missed").data(count.to_string())
                    }
                    Err(RecvError::Closed) => return None,
                };
                let state = (app, subscription, query, permit, token_ended);
                return Some((Ok::<_, Infallible>(event), state));
            }
        },
    );
    let alive = KeepAlive::new().interval(HEARTBEAT).text("alive");
    Ok(Sse::new(events).keep_alive(alive).into_response())
}

/// The next event: first those that the listener has missed while it was away.
async fn next_event(subscription: &mut Subscription) -> Result<NumberedEvent, RecvError> {
    match subscription.missed.pop_front() {
        Some(event) => Ok(event),
        None => subscription.receiver.recv().await,
    }
}
