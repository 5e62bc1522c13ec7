//! Events as they happen.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use qo::{EngineError, QueueName, TaskType};
use qo_engine::watch::TaskChange;
use qo_remote::wire::{Condition, schema};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use crate::answer::{Answer, Refusal};
use crate::app::App;
use crate::body::Params;

/// How often a line is sent where nothing happens, so that both sides notice a broken connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Which events to hear.
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

/// Listen
///
/// Server-sent events: each change of a task that becomes durable through this process, its maintenance included, as `event: task` with JSON. What other processes
/// do on the same store is not seen here. A listener that is too slow gets `event: missed` with a number.
#[utoipa::path(
    get, path = "/v1/events", tag = "look", operation_id = "events", params(EventsQuery),
    responses((status = 200, description = "Events, until either side stops or another process leads", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn events(State(app): State<App>, Params(query): Params<EventsQuery>) -> Answer {
    let Ok(place) = Arc::clone(&app.listeners).try_acquire_owned() else {
        return Err(Refusal::new(
            Condition::Overloaded,
            "there are as many listeners as the server takes; try again later",
        ));
    };
    let heard = app.events.listen();
    let Some(epoch) = app.lead().await else {
        return Err(EngineError::NotLeader.into());
    };
    let state = (app, heard, query, place);
    let told = stream::unfold(state, move |(app, mut heard, query, place)| async move {
        loop {
            let received = tokio::select! {
                biased;
                () = app.stopped() => return None,
                // What happens from now on happens elsewhere.
                () = app.led(epoch) => return None,
                received = heard.recv() => received,
            };
            let event = match received {
                Ok(event) if query.matches(&event) => {
                    // An event is made of texts and numbers, which can be written.
                    Event::default()
                        .event("task")
                        .json_data(&*event)
                        .unwrap_or_default()
                }
                Ok(_) => continue,
                Err(RecvError::Lagged(count)) => {
                    Event::default().event("missed").data(count.to_string())
                }
                Err(RecvError::Closed) => return None,
            };
            return Some((Ok::<_, Infallible>(event), (app, heard, query, place)));
        }
    });
    let alive = KeepAlive::new().interval(HEARTBEAT).text("alive");
    Ok(Sse::new(told).keep_alive(alive).into_response())
}
