//! Submits and reads tasks.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use qo::{AttemptLog, Error, Event, IdempotencyKey, Json, Task, TaskId};
use qo_core::{Payload, TraceParent};
use qo_remote::wire::query::PAGE_DEFAULT;
use qo_remote::wire::{
    BATCH_MAX, BytesPayload, DuplicateResponse, IDEMPOTENCY_HEADER, SubmitBody, SubmitResponse,
    SubmitResult, TRACE_HEADER, VERSIONS_MAX, VersionsQuery, VersionsResponse, WaitsForResponse,
    schema,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::{ArrayError, JsonText, PathParam, QueryParams, parse};
use crate::config::Limits;
use crate::response::{
    ApiError, ApiResult, json, json_results, json_with_status, no_content, raw_json,
};
use crate::response_room::TakenRoom;
use crate::tokens::{Caller, Scope};

/// One task to submit, or an array of them.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum SubmitForm {
    One(Box<SubmitBody>),
    Many(Vec<SubmitBody>),
}

/// The submitted task, or an array of results.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum SubmitFormResponse {
    One(Box<SubmitResponse>),
    Duplicate(DuplicateResponse),
    Many(Vec<SubmitResult>),
}

/// Submit tasks
///
/// One task, or an array of up to 1,000. A task is durable when the response is sent. For an array, the response has one result per
/// task, in order; the failure of one does not affect the others. When the tasks in the response reach 8 MiB, unless the server is
/// configured otherwise, the remaining ones come without input and output. A submit with an id or an idempotency key can be repeated and
/// returns the first task. A token without the scope `read` or `work` gets only its id and status.
#[utoipa::path(
    post, path = "/v1/tasks", tag = "tasks", operation_id = "submit",
    params(
        ("Idempotency-Key" = Option<schema::Key>, Header, description = "A second submit with this key returns the first task; only for a single task"),
        ("traceparent" = Option<String>, Header, description = "The W3C trace context that the handler continues")
    ),
    request_body = SubmitForm,
    responses(
        (status = 201, description = "The task was created", body = SubmitResponse),
        (status = 200, description = "The task existed before, or the results of an array", body = SubmitFormResponse)
    )
)]
pub(crate) async fn submit(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: JsonText,
) -> ApiResult {
    let started = app.runtime().monotonic();
    let trace = headers
        .get(TRACE_HEADER)
        .and_then(|value| value.to_str().ok()?.parse::<TraceParent>().ok());
    let response = if body.is_array() {
        submit_many(&app, &caller, &headers, &body, trace.as_ref()).await
    } else {
        submit_one(&app, &caller, &headers, &body, trace).await
    };
    let took = app.runtime().monotonic().saturating_sub(started);
    if response.is_ok() {
        app.metrics.submit_seconds.observe(took);
    }
    response
}

async fn submit_one(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: &JsonText,
    trace: Option<TraceParent>,
) -> ApiResult {
    let may_read = caller.may(&[Scope::Read, Scope::Work]);
    let mut body: SubmitBody = body.parse()?;
    if let Some(key) = key_of(headers)? {
        match &body.idempotency_key {
            Some(own) if *own != key => {
                return Err(ApiError::bad_request(
                    "the header Idempotency-Key and the body's idempotency_key differ; use only one of them",
                ));
            }
            _ => body.idempotency_key = Some(key),
        }
    }
    let omits_input = body.omit_input;
    let mut request = body.into_request()?;
    request.traceparent = request.traceparent.or(trace);
    let limits = &caller.limits;
    caller.check_submit(&request)?;
    let mut submitted = app.engine().submit(request).await?;
    if submitted.duplicate {
        limits.check_duplicate(&submitted.task)?;
    } else {
        app.publish("submit", &submitted.task);
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
    let mut response = if submitted.duplicate && !may_read {
        json_with_status(status, &DuplicateResponse::of(&submitted))?
    } else {
        json_with_status(status, &SubmitResponse::from(submitted))?
    };
    if let Ok(value) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, value);
    }
    Ok(response)
}

async fn submit_many(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: &JsonText,
    trace: Option<&TraceParent>,
) -> ApiResult {
    let may_read = caller.may(&[Scope::Read, Scope::Work]);
    let limits = &caller.limits;
    if headers.contains_key(IDEMPOTENCY_HEADER) {
        return Err(ApiError::bad_request(
            "the header Idempotency-Key is for a single task; set idempotency_key in each item of an array",
        ));
    }
    let items: Vec<Result<SubmitBody, ApiError>> = array_items(body)?;
    // For each item whether its result omits the input, or the error if the item is invalid.
    let mut parsed = Vec::with_capacity(items.len());
    let mut requests = Vec::with_capacity(items.len());
    for item in items {
        let omits_input = item.and_then(|body| {
            let omits_input = body.omit_input;
            let mut request = body.into_request()?;
            request.traceparent = request.traceparent.or_else(|| trace.cloned());
            caller.check_submit(&request)?;
            requests.push(request);
            Ok(omits_input)
        });
        parsed.push(omits_input);
    }
    let mut results = app.engine().submit_many(requests).await.into_iter();
    let mut bytes = 0;
    let submit_results: Vec<SubmitResult> = parsed
        .into_iter()
        .filter_map(|parsed| {
            let result = match parsed {
                Err(error) => Err(error),
                Ok(omits_input) => match results.next()? {
                    Ok(submitted)
                        if submitted.duplicate
                            && limits.check_duplicate(&submitted.task).is_err() =>
                    {
                        limits.check_duplicate(&submitted.task).map(|()| submitted)
                    }
                    Ok(mut submitted) => {
                        if !submitted.duplicate {
                            app.publish("submit", &submitted.task);
                        }
                        if omits_input && !submitted.duplicate {
                            submitted.task = submitted.task.without_input();
                        }
                        if submitted.duplicate && !may_read {
                            bytes += DUPLICATE_BYTES;
                            return Some(SubmitResult::duplicate(&submitted));
                        }
                        Ok(submitted)
                    }
                    Err(error) => Err(ApiError::from(error)),
                },
            };
            let mut result = SubmitResult::from(result.map_err(|error| error.0));
            result.task = result
                .task
                .map(|task| within(&app.limits, &mut bytes, task, Task::without_payloads));
            Some(result)
        })
        .collect();
    json_results(&app.response_room, bytes, &submit_results, |result| {
        result.problem.as_ref()
    })
    .await
}

/// The task for the next result of an array, cut short if the response would become too large. `bytes` is its size so far.
pub(super) fn within(
    limits: &Limits,
    bytes: &mut usize,
    task: Task,
    cut: fn(Task) -> Task,
) -> Task {
    let task = if *bytes + size_of(&task) > limits.response_max_bytes {
        cut(task)
    } else {
        task
    };
    *bytes += size_of(&task);
    task
}

/// The size of a response to a duplicate for a client that may not read tasks.
const DUPLICATE_BYTES: usize = 128;
/// The approximate size of a record without its payloads.
pub(crate) const RECORD_BYTES: usize = 1_024;

/// The approximate size of a task in a response.
pub(crate) fn size_of(task: &Task) -> usize {
    let size = |payload: Payload| match payload {
        Payload::Inline(json) => json.size(),
        Payload::Stored(_) => 0,
    };
    RECORD_BYTES + size(task.input()) + task.output().map_or(0, size) + task.log_bytes()
}

/// The items of an array. Most arrays are valid and are parsed as a whole. Otherwise each item is parsed separately, so that an
/// invalid item does not affect the others.
pub(super) fn array_items<T: DeserializeOwned>(
    body: &JsonText,
) -> Result<Vec<Result<T, ApiError>>, ApiError> {
    let too_long = || {
        ApiError::bad_request(format!(
            "an array may have at most {BATCH_MAX} items, but this one has more; send several requests"
        ))
    };
    match body.parse_array(BATCH_MAX) {
        Ok(items) => return Ok(items.into_iter().map(Ok).collect()),
        Err(ArrayError::TooLong) => return Err(too_long()),
        Err(ArrayError::Invalid(_)) => {}
    }
    let items: Vec<&RawValue> = match body.parse_array(BATCH_MAX) {
        Ok(items) => items,
        Err(ArrayError::TooLong) => return Err(too_long()),
        Err(ArrayError::Invalid(error)) => return Err(error),
    };
    let parsed = items.into_iter().map(|item| parse(item.get().as_bytes()));
    Ok(parsed.collect())
}

fn key_of(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_HEADER) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .map_err(|_| ApiError::bad_request("the header Idempotency-Key is not plain ASCII text"))?;
    // Some clients send it as a quoted string.
    let text = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(text);
    let key =
        IdempotencyKey::new(text).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(Some(key))
}

/// How to read a task.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TaskParams {
    /// How long to wait for the task to finish, in milliseconds. The server caps it at its own limit.
    #[serde(default)]
    wait_ms: Option<u64>,
}

/// Read a task
///
/// With `wait_ms` the response comes when the task has finished or that time is over.
#[utoipa::path(
    get, path = "/v1/tasks/{id}", tag = "tasks", operation_id = "read",
    params(("id" = schema::Id, Path, description = "The task"), TaskParams),
    responses((status = 200, description = "The task", body = schema::TaskRecord))
)]
pub(crate) async fn read(
    State(app): State<App>,
    PathParam(id): PathParam<TaskId>,
    QueryParams(query): QueryParams<TaskParams>,
) -> ApiResult {
    let Some(wait_ms) = query.wait_ms else {
        return json(&app.engine().get(id).await?);
    };
    let wait = Duration::from_millis(wait_ms).min(app.limits.wait_max);
    let _waiting = app.admit_waiting()?;
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

/// The form of a payload.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PayloadQuery {
    /// Returns a binary payload as bytes with its content type, not in its stored JSON form.
    #[serde(default)]
    raw: Option<bool>,
}

/// Read a task's input
///
/// Byte for byte, wherever it is stored.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/input", tag = "tasks", operation_id = "input",
    params(("id" = schema::Id, Path, description = "The task"), PayloadQuery),
    responses((status = 200, description = "The input", content((schema::AnyJson = "application/json"), (Vec<u8> = "*/*"))))
)]
pub(crate) async fn input(
    State(app): State<App>,
    PathParam(id): PathParam<TaskId>,
    QueryParams(query): QueryParams<PayloadQuery>,
) -> ApiResult {
    let task = app.engine().get(id).await?;
    let room = app.response_room.take(payload_bytes(task.input()))?;
    let input = app.engine().input(&task).await?;
    payload(&input, &query, room)
}

/// Read a task's output
///
/// Byte for byte, wherever it is stored; 204 if the task has none.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/output", tag = "tasks", operation_id = "output",
    params(("id" = schema::Id, Path, description = "The task"), PayloadQuery),
    responses(
        (status = 200, description = "The output", content((schema::AnyJson = "application/json"), (Vec<u8> = "*/*"))),
        (status = 204, description = "The task has no output")
    )
)]
pub(crate) async fn output(
    State(app): State<App>,
    PathParam(id): PathParam<TaskId>,
    QueryParams(query): QueryParams<PayloadQuery>,
) -> ApiResult {
    let task = app.engine().get(id).await?;
    let bytes = task.output().map_or(0, payload_bytes);
    let room = app.response_room.take(bytes)?;
    match app.engine().output(&task).await? {
        Some(output) => payload(&output, &query, room),
        None => Ok(no_content()),
    }
}

fn payload_bytes(payload: Payload) -> usize {
    match payload {
        Payload::Inline(json) => json.size(),
        Payload::Stored(reference) => usize::try_from(reference.size).unwrap_or(usize::MAX),
    }
}

fn payload(json: &Json, query: &PayloadQuery, room: TakenRoom) -> ApiResult {
    if query.raw != Some(true) {
        let text = json.as_str().as_bytes().to_vec();
        return Ok(raw_json(StatusCode::OK, room.hold(text)));
    }
    let not_binary =
        || ApiError::bad_request("this payload is JSON, not bytes; request it without `raw`");
    let bytes = BytesPayload::from_json(json).ok_or_else(not_binary)?;
    let body = STANDARD.decode(&bytes.base64).map_err(|_| not_binary())?;
    let content_type = HeaderValue::from_str(&bytes.content_type).map_err(|_| not_binary())?;
    let mut response = Response::new(Body::from(room.hold(body)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The submitter of a task chooses these bytes: a browser must not run them in the server's origin.
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    Ok(response)
}

#[derive(Serialize)]
struct Logs<'a> {
    logs: &'a [AttemptLog],
}

#[derive(Serialize)]
struct Events {
    events: Vec<Event>,
}

/// Read what a pending task waits for
///
/// Besides its due time and a worker: another task with the same ordering key, a limit without room, or a pause of its queue or type.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/waits_for", tag = "tasks", operation_id = "waits_for",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The reason, if there is one", body = WaitsForResponse))
)]
pub(crate) async fn waits_for(
    State(app): State<App>,
    PathParam(id): PathParam<TaskId>,
) -> ApiResult {
    let task = app.engine().get(id).await?;
    let waits_for = app.engine().waits_for(&task).await?;
    json(&WaitsForResponse { waits_for })
}

/// Read the history of a task
///
/// The newest 64 changes, oldest first.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/history", tag = "tasks", operation_id = "history",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The events", body = schema::HistoryResponse))
)]
pub(crate) async fn history(State(app): State<App>, PathParam(id): PathParam<TaskId>) -> ApiResult {
    let events = app.engine().history(id).await?;
    json(&Events { events })
}

/// Read the logs of a task
///
/// The end of what the handlers of the last three attempts printed, oldest first. A log is stored when its attempt ends.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/logs", tag = "tasks", operation_id = "logs",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The logs", body = schema::LogsResponse))
)]
pub(crate) async fn logs(State(app): State<App>, PathParam(id): PathParam<TaskId>) -> ApiResult {
    let task = app.engine().get(id).await?;
    json(&Logs { logs: task.logs() })
}

/// Read the stored versions of a task
///
/// Oldest first, if the store keeps versions; otherwise 409.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/versions", tag = "tasks", operation_id = "versions",
    params(("id" = schema::Id, Path, description = "The task"), VersionsQuery),
    responses((status = 200, description = "The versions", body = VersionsResponse))
)]
pub(crate) async fn versions(
    State(app): State<App>,
    PathParam(id): PathParam<TaskId>,
    QueryParams(query): QueryParams<VersionsQuery>,
) -> ApiResult {
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=VERSIONS_MAX).contains(&limit) {
        return Err(ApiError::bad_request(format!(
            "limit must be 1 to {VERSIONS_MAX}"
        )));
    }
    let bytes = app
        .limits
        .response_max_bytes
        .min(limit * super::list::TASK_MAX_BYTES);
    let room = app.response_room.take(bytes)?;
    let versions = app.engine().versions(id, limit).await?;
    room.json(0, &VersionsResponse::from(versions))
}
