//! The job routes of queuey-queue: a program by content address, run by the runner that claims it.
//!
//! A job is an ordinary task of the type `wasi` ([`qo::blob::job`]). A claim takes a lease of the abandoned age, a tickle renews it, and a
//! job whose lease expires is retried like any other task.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use qo::blob::job::{InvalidJob, JobFailure, JobInput, JobOutput, TASK_TYPE};
use qo::{
    BlobAddress, BlobError, ClaimRequest, EngineError, Failure, FailureKind, LeaseId, Operation,
    Rejection, RetryPolicy, Status, SubmitRequest, Task, TaskId,
};
use qo_core::Payload;
use qo_remote::wire::{
    Condition, Job, JobClaimBody, JobCompleteBody, JobCreateBody, JobOutcome, JobStatus,
    JobTickleBody, schema,
};

use crate::app::App;
use crate::body::{JsonBody, OptionalBody, PathParam};
use crate::claims::ClaimKey;
use crate::middleware::RequestId;
use crate::response::{ApiError, ApiResult, json, json_with_status, no_content};
use crate::routes::blobs::blobs;
use crate::tokens::Caller;

/// How many tasks that are no jobs a claim sets aside before it responds that there is nothing to do. The next claim continues.
const SET_ASIDE_MAX: usize = 100;

/// Check that the job queue is there
#[utoipa::path(
    get, path = "/ping", tag = "jobs", operation_id = "ping", security(()),
    responses((status = 200, description = "It is", body = String, content_type = "text/plain"))
)]
pub(crate) async fn ping() -> Response {
    let mut response = Response::new(Body::from("pong\n"));
    let value = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

/// Create a job
///
/// The program and its input must have been uploaded. The job is durable when the response is sent.
#[utoipa::path(
    post, path = "/jobs/create", tag = "jobs", operation_id = "create_job", request_body = JobCreateBody,
    responses((status = 201, description = "The job was created", body = Job))
)]
pub(crate) async fn create(
    State(app): State<App>,
    JsonBody(body): JsonBody<JobCreateBody>,
) -> ApiResult {
    let input = JobInput {
        binary_addr: body.binary_addr,
        input_addr: body.input_addr,
        args: body.args,
    };
    let invalid = |error: InvalidJob| ApiError::bad_request(error.to_string());
    let json = input.to_json().map_err(invalid)?;
    JobInput::parse(&json).map_err(invalid)?;
    let mut request = SubmitRequest::new(task_type()?, json);
    request.queue = body.queue.unwrap_or_default();
    request.max_retries = Some(app.jobs.attempts_max.saturating_sub(1));
    request.timeout_seconds = body.timeout_seconds;
    // An abandoned job is pending again at once.
    request.retry_policy = RetryPolicy {
        initial_interval_ms: 0,
        max_interval_ms: 0,
        ..RetryPolicy::default()
    };
    let blobs = blobs(&app)?;
    let addresses: Vec<BlobAddress> = input.blobs().collect();
    let runtime = app.runtime().as_ref();
    let submitted =
        qo::blob::submit_with_blobs(app.engine(), blobs.as_ref(), runtime, request, &addresses);
    let submitted = submitted.await.map_err(missing)?;
    app.publish("submit", &submitted.task);
    json_with_status(
        StatusCode::CREATED,
        &job_of(&app, &submitted.task, input, false).await?,
    )
}

fn task_type() -> Result<qo::TaskType, ApiError> {
    let invalid = |error: qo_core::names::InvalidName| ApiError::bad_request(error.to_string());
    qo::TaskType::new(TASK_TYPE).map_err(invalid)
}

/// A blob that a request refers to and that does not exist is not what the request asks for.
fn missing(error: BlobError) -> ApiError {
    match error {
        BlobError::NotFound { address } => ApiError::new(
            Condition::MissingBlob { address },
            format!("there is no blob {address}; upload it with PUT /blobs first"),
        ),
        error => error.into(),
    }
}

/// Read a job
#[utoipa::path(
    get, path = "/jobs/{id}", tag = "jobs", operation_id = "get_job",
    params(("id" = schema::Id, Path, description = "The job")),
    responses((status = 200, description = "The job", body = Job))
)]
pub(crate) async fn read(State(app): State<App>, PathParam(id): PathParam<String>) -> ApiResult {
    let (task, input) = job_task(&app, &id).await?;
    json(&job_of(&app, &task, input, false).await?)
}

/// Claim a job
///
/// Returns the job that has been pending for the longest time. It is active until it is completed, or until the abandoned age has passed
/// without a tickle. A request that is repeated with the same `X-Request-Id` within ten seconds gets the same job again.
#[utoipa::path(
    post, path = "/jobs/claim", tag = "jobs", operation_id = "claim_job", request_body = JobClaimBody,
    params(("X-Request-Id" = Option<String>, Header, description = "The id of the request, so that it can be repeated")),
    responses(
        (status = 200, description = "The job, with the lease of the claim", body = Job),
        (status = 204, description = "There is nothing to do")
    )
)]
pub(crate) async fn claim(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    JsonBody(body): JsonBody<JobClaimBody>,
) -> ApiResult {
    let mut request = ClaimRequest::new(body.runner_id, vec![task_type()?]);
    if let Some(queue) = body.queue {
        request.queues = vec![queue];
    }
    request.lease_ms = Some(app.jobs.abandoned_ms());
    request.in_order = true;
    // Anyone may submit tasks of this type whose input is not that of a job. No runner can run them.
    for number in 0..SET_ASIDE_MAX {
        // If the request is repeated, it passes the same tasks and gets the same job.
        let request_id = match number {
            0 => request_id.clone(),
            _ => format!("{request_id}/{number}"),
        };
        let key = ClaimKey {
            token: caller.token.clone(),
            request_id,
        };
        let result = app.claims.claim(key, request.clone()).await?;
        let tasks = match result.as_ref() {
            Ok(tasks) => tasks,
            Err(EngineError::QueuePaused { .. }) => break,
            Err(error) => return Err(error.clone().into()),
        };
        let Some(task) = tasks.first() else { break };
        match input_of(&app, task).await {
            Ok(Ok(input)) => {
                app.publish("claim", task);
                return json(&job_of(&app, task, input, true).await?);
            }
            Ok(Err(invalid)) => {
                set_aside(&app, task, FailureKind::Permanent, &invalid.to_string()).await?;
            }
            // The store failed, or has lost the input. A retry tells which.
            Err(error) => {
                set_aside(&app, task, FailureKind::Retryable, &error.0.detail).await?;
                return Err(error);
            }
        }
    }
    Ok(no_content())
}

/// Ends the attempt of a claimed task that cannot be handed out.
async fn set_aside(
    app: &App,
    task: &Task,
    kind: FailureKind,
    detail: &str,
) -> Result<(), ApiError> {
    let Some(lease) = task.lease_id else {
        return Ok(());
    };
    let failure = Failure {
        kind,
        error: detail.into(),
    };
    match app.engine().fail(task.id, lease, failure).await {
        Ok(failed) => {
            app.publish("fail", &failed);
            Ok(())
        }
        // The first copy of a repeated request has done it.
        Err(EngineError::Rejected(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Tickle a job
///
/// A sign of life of its runner: the job stays active for another abandoned age.
#[utoipa::path(
    post, path = "/jobs/{id}/tickle", tag = "jobs", operation_id = "tickle_job", request_body = Option<JobTickleBody>,
    params(("id" = schema::Id, Path, description = "The job")),
    responses((status = 200, description = "The job", body = Job))
)]
pub(crate) async fn tickle(
    State(app): State<App>,
    PathParam(id): PathParam<String>,
    OptionalBody(body): OptionalBody<JobTickleBody>,
) -> ApiResult {
    let (task, input, lease) = active(&app, &id, body.lease_id).await?;
    let operation = Operation::Renew {
        lease,
        lease_ms: Some(app.jobs.abandoned_ms()),
    };
    let task = act(&app, task.id, operation, body.lease_id).await?;
    json(&job_of(&app, &task, input, false).await?)
}

/// Complete a job
///
/// The output must have been uploaded. A job that is `failed` is not tried again.
#[utoipa::path(
    post, path = "/jobs/{id}/complete", tag = "jobs", operation_id = "complete_job", request_body = JobCompleteBody,
    params(("id" = schema::Id, Path, description = "The job")),
    responses((status = 200, description = "The job", body = Job))
)]
pub(crate) async fn complete(
    State(app): State<App>,
    PathParam(id): PathParam<String>,
    JsonBody(body): JsonBody<JobCompleteBody>,
) -> ApiResult {
    let (task, input, lease) = active(&app, &id, body.lease_id).await?;
    if let Some(address) = body.output_addr {
        blobs(&app)?.touch(address).await.map_err(missing)?;
    }
    let operation = match body.status {
        JobOutcome::Completed => {
            let output = JobOutput {
                output_addr: body.output_addr,
                exit_code: body.exit_code,
            };
            let output = output.to_json();
            let output = output.map_err(|error| ApiError::bad_request(error.to_string()))?;
            Operation::Complete {
                lease,
                output: Some(output),
            }
        }
        JobOutcome::Failed => {
            let failure = JobFailure {
                exit_code: body.exit_code,
                output_addr: body.output_addr,
                message: body
                    .error
                    .unwrap_or_else(|| "the runner reported a failure".to_owned()),
            };
            Operation::Fail {
                lease,
                failure: Failure {
                    kind: FailureKind::Permanent,
                    error: failure.to_string().into(),
                },
            }
        }
    };
    let name = operation.name();
    let task = act(&app, task.id, operation, body.lease_id).await?;
    app.publish(name, &task);
    json(&job_of(&app, &task, input, false).await?)
}

/// The task of a job, and its input. Ids may be in upper case, as queuey-queue writes them.
async fn job_task(app: &App, id: &str) -> Result<(Task, JobInput), ApiError> {
    let not_found = || ApiError::new(Condition::JobNotFound, "there is no job with this id");
    let id: TaskId = id.to_ascii_lowercase().parse().map_err(|_| not_found())?;
    let task = app.engine().get(id).await.map_err(|error| {
        if error.is_not_found() {
            not_found()
        } else {
            error.into()
        }
    })?;
    if task.task_type.as_str() != TASK_TYPE {
        return Err(not_found());
    }
    let input = input_of(app, &task).await?.map_err(|_| not_found())?;
    Ok((task, input))
}

/// The input of a job. A task of the same type with another input is no job.
async fn input_of(app: &App, task: &Task) -> Result<Result<JobInput, InvalidJob>, ApiError> {
    let input = match task.input() {
        Payload::Inline(json) => json,
        Payload::Stored(_) => app.engine().input(task).await?,
    };
    Ok(JobInput::parse(&input))
}

/// An active job, and the lease with which to change it: the given one, or the current one.
async fn active(
    app: &App,
    id: &str,
    lease: Option<LeaseId>,
) -> Result<(Task, JobInput, LeaseId), ApiError> {
    let (task, input) = job_task(app, id).await?;
    match (task.status, lease.or(task.lease_id)) {
        (Status::Running, Some(lease)) => Ok((task, input, lease)),
        _ => Err(not_active(status_of(&task))),
    }
}

fn not_active(status: JobStatus) -> ApiError {
    let name = status.name();
    ApiError::new(
        Condition::JobNotActive {
            job_status: name.to_owned(),
        },
        format!("the job is {name}; only an active job can be tickled or completed"),
    )
}

/// Carries out an operation. Without a lease of the caller, a lost race means that the job is no longer what was read.
async fn act(
    app: &App,
    id: TaskId,
    operation: Operation,
    presented: Option<LeaseId>,
) -> Result<Task, ApiError> {
    match app.engine().act(id, operation).await {
        Ok(task) => Ok(task),
        Err(EngineError::Rejected(Rejection::LeaseLost { .. })) if presented.is_none() => {
            let task = app.engine().get(id).await?;
            Err(not_active(status_of(&task)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The status of a job. A cancelled job has failed, and an archived one keeps its status.
fn status_of(task: &Task) -> JobStatus {
    let of = |status| match status {
        Status::Pending => JobStatus::Pending,
        Status::Running => JobStatus::Active,
        Status::Completed => JobStatus::Completed,
        _ => JobStatus::Failed,
    };
    if task.status != Status::Archived {
        return of(task.status);
    }
    let earlier = task
        .events
        .iter()
        .rev()
        .find(|event| event.to != Status::Archived);
    earlier.map_or(JobStatus::Failed, |event| of(event.to))
}

/// The job of a task with this input.
async fn job_of(
    app: &App,
    task: &Task,
    input: JobInput,
    with_lease: bool,
) -> Result<Job, ApiError> {
    let output = match app.engine().output(task).await? {
        Some(json) => JobOutput::parse(&json).unwrap_or_default(),
        None => JobOutput::default(),
    };
    let failure = task.last_error.as_deref().map(JobFailure::parse);
    let failure = failure.filter(|_| task.status != Status::Completed);
    let status = status_of(task);
    let runner_id = match status {
        JobStatus::Pending => None,
        JobStatus::Active => task.worker_id.clone(),
        JobStatus::Completed | JobStatus::Failed => {
            let mut events = task.events.iter().rev();
            events.find_map(|event| event.worker.clone())
        }
    };
    Ok(Job {
        job_id: task.id,
        binary_addr: input.binary_addr,
        input_addr: input.input_addr,
        created_at: task.created_at.as_millis(),
        updated_at: task.updated_at.as_millis(),
        completed_at: task.completed_at.map(qo::Timestamp::as_millis),
        status,
        run_attempts: task.attempt,
        runner_id,
        output_addr: output
            .output_addr
            .or(failure.as_ref().and_then(|failure| failure.output_addr)),
        exit_code: output
            .exit_code
            .or(failure.as_ref().and_then(|failure| failure.exit_code)),
        error: failure.map(|failure| failure.message),
        lease_id: task.lease_id.filter(|_| with_lease),
    })
}
