//! Submitting tasks, and looking at them.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use qo::{Error, Event, IdempotencyKey, Json, Task, TaskId};
use qo_core::{Payload, TraceParent};
use qo_remote::wire::query::PAGE_DEFAULT;
use qo_remote::wire::{
    BATCH_MAX, BytesPayload, IDEMPOTENCY_HEADER, ListQuery, PageAnswer, SubmitAnswer, SubmitBody,
    SubmittedAnswer, TRACE_HEADER, VERSIONS_MAX, VersionsAnswer, VersionsQuery, schema,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::answer::{Answer, Refusal, json, json_of_parts, json_with, raw_json};
use crate::app::App;
use crate::body::{JsonText, Named, Params, parse};

/// One task to be, or many of them.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum SubmitForm {
    One(Box<SubmitBody>),
    Many(Vec<SubmitBody>),
}

/// What became of it, or of each of them.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is there to be described")]
pub(crate) enum SubmitResult {
    One(Box<SubmittedAnswer>),
    Many(Vec<SubmitAnswer>),
}

/// Submit tasks
///
/// One, or an array of up to 1,000. It is durable when it is answered. Of an array, each has its own answer, in order: a failure of one says
/// nothing about the others. A submit with an id or an idempotency key can be repeated; it returns the first task.
#[utoipa::path(
    post, path = "/v1/tasks", tag = "tasks", operation_id = "submit",
    params(
        ("Idempotency-Key" = Option<schema::Key>, Header, description = "Makes a second submit return the task of the first; for a single one"),
        ("traceparent" = Option<String>, Header, description = "The W3C trace context that the handler goes on with")
    ),
    request_body = SubmitForm,
    responses(
        (status = 201, description = "The task is there", body = SubmittedAnswer),
        (status = 200, description = "It was there before; or the answers to an array", body = SubmitResult)
    )
)]
pub(crate) async fn submit(State(app): State<App>, headers: HeaderMap, body: JsonText) -> Answer {
    let started = app.runtime().monotonic();
    let trace = headers
        .get(TRACE_HEADER)
        .and_then(|value| value.to_str().ok()?.parse::<TraceParent>().ok());
    let answer = if body.is_array() {
        submit_many(&app, &headers, &body, trace.as_ref()).await
    } else {
        submit_one(&app, &headers, &body, trace).await
    };
    let took = app.runtime().monotonic().saturating_sub(started);
    if answer.is_ok() {
        app.metrics.submit_seconds.observe(took);
    }
    answer
}

async fn submit_one(
    app: &App,
    headers: &HeaderMap,
    body: &JsonText,
    trace: Option<TraceParent>,
) -> Answer {
    let mut body: SubmitBody = body.parse()?;
    if let Some(key) = key_of(headers)? {
        match &body.idempotency_key {
            Some(own) if *own != key => {
                return Err(Refusal::bad_request(
                    "the header Idempotency-Key and the body's idempotency_key differ; give one of them",
                ));
            }
            _ => body.idempotency_key = Some(key),
        }
    }
    let omits_input = body.omit_input;
    let mut request = body.into_request()?;
    request.traceparent = request.traceparent.or(trace);
    let mut submitted = app.engine().submit(request).await?;
    if !submitted.duplicate {
        app.events.tell("submit", &submitted.task);
    }
    let status = if submitted.duplicate {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    if omits_input && !submitted.duplicate {
        submitted.task = submitted.task.without_input();
    }
    let location = format!("/v1/tasks/{}", submitted.task.id);
    let mut response = json_with(status, &SubmittedAnswer::from(submitted))?;
    if let Ok(value) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, value);
    }
    Ok(response)
}

async fn submit_many(
    app: &App,
    headers: &HeaderMap,
    body: &JsonText,
    trace: Option<&TraceParent>,
) -> Answer {
    if headers.contains_key(IDEMPOTENCY_HEADER) {
        return Err(Refusal::bad_request(
            "the header Idempotency-Key is for a single submit; give each part of an array its own idempotency_key",
        ));
    }
    let parts: Vec<Result<SubmitBody, Refusal>> = parts(body)?;
    // Whether each part could be read, and whether its answer is to leave out the input.
    let mut fates = Vec::with_capacity(parts.len());
    let mut requests = Vec::with_capacity(parts.len());
    for part in parts {
        let read = part.and_then(|body| {
            let omits_input = body.omit_input;
            let mut request = body.into_request()?;
            request.traceparent = request.traceparent.or_else(|| trace.cloned());
            requests.push(request);
            Ok(omits_input)
        });
        fates.push(read);
    }
    let mut results = app.engine().submit_many(requests).await.into_iter();
    let mut bytes = 0;
    let answers: Vec<SubmitAnswer> = fates
        .into_iter()
        .filter_map(|fate| {
            let result = match fate {
                Err(refusal) => Err(refusal),
                Ok(omits_input) => match results.next()? {
                    Ok(mut submitted) => {
                        if !submitted.duplicate {
                            app.events.tell("submit", &submitted.task);
                        }
                        if omits_input && !submitted.duplicate {
                            submitted.task = submitted.task.without_input();
                        }
                        Ok(submitted)
                    }
                    Err(error) => Err(Refusal::from(error)),
                },
            };
            let answer = SubmitAnswer::from(result.map_err(|refusal| refusal.0));
            bytes += answer.task.as_ref().map_or(RECORD_BYTES, size_of);
            Some(answer)
        })
        .collect();
    json_of_parts(bytes, &answers, |answer| answer.problem.as_ref())
}

/// About what a record takes beside its payloads.
const RECORD_BYTES: usize = 1_024;

/// About what a task takes in an answer.
pub(super) fn size_of(task: &Task) -> usize {
    let size = |payload: Payload| match payload {
        Payload::Inline(json) => json.size(),
        Payload::Stored(_) => 0,
    };
    RECORD_BYTES + size(task.input()) + task.output().map_or(0, size)
}

/// The parts of an array. Most arrays are right and are read as a whole; where one is not, each part is read on its own, so that what is
/// wrong with one says nothing about the others.
pub(super) fn parts<T: DeserializeOwned>(
    body: &JsonText,
) -> Result<Vec<Result<T, Refusal>>, Refusal> {
    let bounded = |count: usize| {
        if count <= BATCH_MAX {
            return Ok(());
        }
        Err(Refusal::bad_request(format!(
            "an array has at most {BATCH_MAX} parts, and this one has {count}; send several"
        )))
    };
    if let Ok(parts) = body.parse::<Vec<T>>() {
        bounded(parts.len())?;
        return Ok(parts.into_iter().map(Ok).collect());
    }
    let parts: Vec<&RawValue> = body.borrow()?;
    bounded(parts.len())?;
    let read = parts.into_iter().map(|part| parse(part.get().as_bytes()));
    Ok(read.collect())
}

fn key_of(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Refusal> {
    let Some(value) = headers.get(IDEMPOTENCY_HEADER) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .map_err(|_| Refusal::bad_request("the header Idempotency-Key is not plain text"))?;
    // Some clients write it as a quoted string.
    let text = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(text);
    let key = IdempotencyKey::new(text).map_err(|error| Refusal::bad_request(error.to_string()))?;
    Ok(Some(key))
}

/// List tasks
///
/// Page by page: `next` is the `cursor` of the page after. The order is the store's own.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", operation_id = "list", params(ListQuery),
    responses((status = 200, description = "A part of the tasks that match", body = PageAnswer))
)]
pub(crate) async fn list(State(app): State<App>, Params(query): Params<ListQuery>) -> Answer {
    let filter = query.filter()?;
    let limit = query.limit()?;
    let page = app
        .engine()
        .list(&filter, query.cursor.as_deref(), limit)
        .await?;
    json(&PageAnswer::from(page))
}

/// How to look at a task.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TaskQuery {
    /// Wait so long for the task to come to its end. The server cuts it to its own limit.
    #[serde(default)]
    wait_ms: Option<u64>,
}

/// Look at a task
///
/// With `wait_ms` the answer comes when the task has come to its end, or when that time is over.
#[utoipa::path(
    get, path = "/v1/tasks/{id}", tag = "tasks", operation_id = "read",
    params(("id" = schema::Id, Path, description = "The task"), TaskQuery),
    responses((status = 200, description = "The task", body = schema::TaskRecord))
)]
pub(crate) async fn read(
    State(app): State<App>,
    Named(id): Named<TaskId>,
    Params(query): Params<TaskQuery>,
) -> Answer {
    let Some(wait_ms) = query.wait_ms else {
        return json(&app.engine().get(id).await?);
    };
    let wait = Duration::from_millis(wait_ms).min(app.limits.wait_max);
    let waited = tokio::select! {
        biased;
        waited = app.queue.wait(id, wait) => Some(waited),
        () = app.stopped() => None,
    };
    match waited {
        Some(Ok(task)) => json(&task),
        Some(Err(Error::StillRunning { .. })) | None => json(&app.engine().get(id).await?),
        Some(Err(error)) => Err(error.into()),
    }
}

/// In which form to give a payload.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PayloadQuery {
    /// Give bytes as bytes, with their content type, and not as the JSON in which they are kept.
    #[serde(default)]
    raw: Option<bool>,
}

/// Read a task's input
///
/// To the byte, wherever it is kept.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/input", tag = "tasks", operation_id = "input",
    params(("id" = schema::Id, Path, description = "The task"), PayloadQuery),
    responses((status = 200, description = "The input", content((schema::AnyJson = "application/json"), (Vec<u8> = "*/*"))))
)]
pub(crate) async fn input(
    State(app): State<App>,
    Named(id): Named<TaskId>,
    Params(query): Params<PayloadQuery>,
) -> Answer {
    let task = app.engine().get(id).await?;
    let input = app.engine().input(&task).await?;
    payload(&input, &query)
}

/// Read a task's output
///
/// To the byte, wherever it is kept; 204, if the task has none.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/output", tag = "tasks", operation_id = "output",
    params(("id" = schema::Id, Path, description = "The task"), PayloadQuery),
    responses(
        (status = 200, description = "The output", content((schema::AnyJson = "application/json"), (Vec<u8> = "*/*"))),
        (status = 204, description = "There is none")
    )
)]
pub(crate) async fn output(
    State(app): State<App>,
    Named(id): Named<TaskId>,
    Params(query): Params<PayloadQuery>,
) -> Answer {
    let task = app.engine().get(id).await?;
    match app.engine().output(&task).await? {
        Some(output) => payload(&output, &query),
        None => Ok(crate::answer::nothing()),
    }
}

fn payload(json: &Json, query: &PayloadQuery) -> Answer {
    if query.raw != Some(true) {
        return Ok(raw_json(StatusCode::OK, json.as_str().to_owned()));
    }
    let refuse =
        || Refusal::bad_request("this payload is JSON, not bytes; ask for it without `raw`");
    let bytes = BytesPayload::from_json(json).ok_or_else(refuse)?;
    let body = STANDARD.decode(&bytes.base64).map_err(|_| refuse())?;
    let content_type = HeaderValue::from_str(&bytes.content_type).map_err(|_| refuse())?;
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Whoever submits a task chooses these bytes: no browser may run them in the server's name.
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    Ok(response)
}

#[derive(Serialize)]
struct Events {
    events: Vec<Event>,
}

/// Read what happened to a task
///
/// The newest 64 changes, oldest first.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/history", tag = "tasks", operation_id = "history",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The events", body = schema::HistoryAnswer))
)]
pub(crate) async fn history(State(app): State<App>, Named(id): Named<TaskId>) -> Answer {
    let events = app.engine().history(id).await?;
    json(&Events { events })
}

/// Read the stored versions of a task
///
/// Oldest first, where the store keeps them; 409 where it does not.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/versions", tag = "tasks", operation_id = "versions",
    params(("id" = schema::Id, Path, description = "The task"), VersionsQuery),
    responses((status = 200, description = "The versions", body = VersionsAnswer))
)]
pub(crate) async fn versions(
    State(app): State<App>,
    Named(id): Named<TaskId>,
    Params(query): Params<VersionsQuery>,
) -> Answer {
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=VERSIONS_MAX).contains(&limit) {
        return Err(Refusal::bad_request(format!(
            "limit must be 1 to {VERSIONS_MAX}"
        )));
    }
    let versions = app.engine().versions(id, limit).await?;
    json(&VersionsAnswer::from(versions))
}
