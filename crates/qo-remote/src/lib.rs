//! Remote mode: a queue behind the HTTP API of another process.
//!
//! ```text
//! callers ──► RemoteEngine ──► batches (submits, results, renewals) ──► Connection ──► server 1, server 2, ...
//!                   └────────── claims, reads, the rest ─────────────────────┘
//! ```
//!
//! - [`connection`]: sends a request, and retries it under the same id until it gets a response.
//! - [`directory`]: chooses the server, and the next one.
//! - [`batch`]: combines the concurrent requests of many callers into one. A single caller does not wait for others.
//! - [`inputs`]: caches inputs, so that responses need not repeat them.
//!
//! # Lost responses
//!
//! A request without a response is sent again, with the same id (`X-Request-Id`) and the same bytes. That is safe:
//!
//! | request | why |
//! | --- | --- |
//! | submit | it carries an id that this client generated, and a second submit of an id returns the first task |
//! | claim | the server remembers for a while which tasks it returned for a request id, and returns the same tasks again. A server that was restarted does not remember and returns other tasks; the first ones become claimable when their leases expire |
//! | complete, fail, release, snooze | the second request finds the lease gone. If the history shows that the attempt of the lease ended in exactly this way, no other client can have done it, so the request succeeds ([`leases`]) |
//! | renew, progress, heartbeat, pause, resume | they are idempotent |
//! | cancel, run now, replay, archive, unarchive, purge | the second request may be rejected because the first one succeeded; the error names the task's status |

mod batch;
mod config;
mod connection;
mod directory;
mod engine_impl;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod inputs;
mod leases;
mod ping;
mod transport;
pub mod wire;

use std::fmt;
use std::sync::Arc;

use qo_core::{Json, Rejection, Task, TaskId};
use qo_engine::api::{SubmitRequest, Submitted};
use qo_engine::{EngineError, Operation};
use qo_store::runtime::{Runtime, RuntimeExt};

use self::batch::{BatchItem, BatchReply, Batcher};
use self::connection::{Connection, HttpRequest};
use self::inputs::{Inputs, with_input};
use self::leases::{EndEvent, Leases};
use crate::wire::{
    BATCH_MAX, CancelBody, Info, OutcomeItem, OutcomeResult, SubmitBody, SubmitResult,
};

pub use config::{InvalidServer, RemoteConfig, Token};
pub use directory::{BrokerAddress, Discovery};
pub use ping::Ping;

/// How many batches of one kind are in flight at once. Later items join the next batch.
const IN_FLIGHT_MAX: usize = 4;

/// The engine of remote mode. Clones share everything.
#[derive(Clone)]
pub struct RemoteEngine {
    shared: Arc<EngineShared>,
}

struct EngineShared {
    connection: Arc<Connection>,
    runtime: Arc<dyn Runtime>,
    leases: Arc<Leases>,
    inputs: Inputs,
    submits: Batcher<SubmitBody, SubmitResult>,
    /// Complete, fail, release, snooze.
    ends: Batcher<OutcomeItem, OutcomeResult>,
    /// Renew and progress. They must not wait behind outputs.
    renewals: Batcher<OutcomeItem, OutcomeResult>,
}

impl RemoteEngine {
    /// An engine that uses these servers. Nothing is sent yet.
    pub fn new(config: RemoteConfig, runtime: Arc<dyn Runtime>) -> Result<Self, InvalidServer> {
        let connection = Arc::new(Connection::new(config, Arc::clone(&runtime))?);
        let submits = {
            let connection = Arc::clone(&connection);
            Batcher::new(Arc::clone(&runtime), IN_FLIGHT_MAX, move |bodies| {
                let connection = Arc::clone(&connection);
                Box::pin(async move { connection.send_batch("/v1/tasks", &bodies).await })
            })
        };
        let outcomes = || {
            let connection = Arc::clone(&connection);
            Batcher::new(Arc::clone(&runtime), IN_FLIGHT_MAX, move |items| {
                let connection = Arc::clone(&connection);
                Box::pin(async move { connection.send_batch("/v1/outcomes", &items).await })
            })
        };
        let (ends, renewals) = (outcomes(), outcomes());
        Ok(Self {
            shared: Arc::new(EngineShared {
                connection,
                runtime,
                leases: Arc::new(Leases::default()),
                inputs: Inputs::default(),
                submits,
                ends,
                renewals,
            }),
        })
    }

    /// Checks that the server is reachable and accepts the token, and returns its description.
    pub async fn check(&self) -> Result<Info, EngineError> {
        self.connection().read("/v1/info").await
    }

    fn connection(&self) -> &Connection {
        &self.shared.connection
    }

    /// The body of a submit, and the id that was generated for it.
    ///
    /// The retry policy is validated here: JSON has no NaN, so an invalid number would arrive as a missing one.
    fn prepare(&self, request: SubmitRequest) -> Result<(SubmitBody, GeneratedId), EngineError> {
        request.retry_policy.validate().map_err(Rejection::from)?;
        let mut body = SubmitBody::from_request(request);
        body.omit_input = true;
        let generated = body.id.is_none().then(|| self.shared.runtime.new_task_id());
        body.id = body.id.or(generated);
        // With an idempotency key, another submit may have created the task under this id for this one.
        let generated = generated.filter(|_| body.idempotency_key.is_none());
        Ok((body, generated))
    }

    async fn submit_one(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        let input = request.input.clone();
        let (body, generated) = self.prepare(request)?;
        let reply = self.shared.submits.send(body).await?;
        self.submitted(reply.result, generated, input, reply.repeated)
    }

    async fn submit_all(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        let mut results: Vec<Option<Result<Submitted, EngineError>>> = Vec::new();
        let mut chunk = Chunk::default();
        for request in requests {
            let index = results.len();
            let input = request.input.clone();
            match self.prepare(request) {
                Err(error) => results.push(Some(Err(error))),
                Ok((body, generated)) => {
                    results.push(None);
                    if !chunk.has_room_for(&body) {
                        self.submit_chunk(std::mem::take(&mut chunk), &mut results)
                            .await;
                    }
                    chunk.add(body, generated, input, index);
                }
            }
        }
        self.submit_chunk(chunk, &mut results).await;
        let missing = || {
            self.connection()
                .invalid_response("fewer results than it was sent submits")
        };
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err(missing())))
            .collect()
    }

    async fn submit_chunk(
        &self,
        chunk: Chunk,
        results: &mut [Option<Result<Submitted, EngineError>>],
    ) {
        if chunk.bodies.is_empty() {
            return;
        }
        let replies: batch::BatchReplies<SubmitResult> = self
            .connection()
            .send_batch("/v1/tasks", &chunk.bodies)
            .await;
        match replies {
            Ok((replies, repeated)) => {
                for (reply, submit) in replies.into_iter().zip(chunk.submits) {
                    let result = self.submitted(reply, submit.generated, submit.input, repeated);
                    results[submit.index] = Some(result);
                }
            }
            Err(error) => {
                for submit in chunk.submits {
                    results[submit.index] = Some(Err(error.clone()));
                }
            }
        }
    }

    fn submitted(
        &self,
        result: SubmitResult,
        generated: GeneratedId,
        input: Json,
        repeated: bool,
    ) -> Result<Submitted, EngineError> {
        match (result.task, result.problem) {
            (Some(task), _) => {
                // No other client can have used this generated id: the duplicate is the first copy of this request.
                let own_copy = repeated && generated == Some(task.id);
                Ok(Submitted {
                    duplicate: result.duplicate && !own_copy,
                    task: with_input(task, Some(input)),
                })
            }
            (None, Some(problem)) => Err(problem.into_error(&self.connection().server_url())),
            (None, None) => Err(self
                .connection()
                .invalid_response("a result with neither a task nor a problem")),
        }
    }

    /// Carries out a worker's operation, in a batch with others.
    async fn act_as_worker(
        &self,
        item: OutcomeItem,
        operation: &Operation,
    ) -> Result<Task, EngineError> {
        let id = item.id;
        let batcher = if operation.ends_attempt() {
            &self.shared.ends
        } else {
            &self.shared.renewals
        };
        let input = self.shared.inputs.of(operation);
        let item = OutcomeItem {
            omit_input: input.is_some(),
            ..item
        };
        let reply: Result<BatchReply<OutcomeResult>, _> = batcher.send(item).await;
        let (error, repeated) = match reply {
            Err(error) => (error, false),
            Ok(reply) => match (reply.result.task, reply.result.problem) {
                (Some(task), _) => return Ok(with_input(task, input)),
                (None, Some(problem)) => (
                    problem.into_error(&self.connection().server_url()),
                    reply.repeated,
                ),
                (None, None) => {
                    return Err(self
                        .connection()
                        .invalid_response("a result with neither a task nor a problem"));
                }
            },
        };
        let Some((lease, end)) = EndEvent::of(operation) else {
            return Err(error);
        };
        self.shared.leases.record_error(lease, &error);
        if error.is_lease_lost()
            && let Some(attempt) = self.shared.leases.attempt_in_doubt(lease, repeated)
        {
            let task: Task = self.connection().read(&format!("/v1/tasks/{id}")).await?;
            if end.is_end_of(&task, attempt) {
                return Ok(task);
            }
        }
        Err(error)
    }

    /// Carries out an operator's operation.
    async fn act_as_operator(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        let path = format!("/v1/tasks/{id}/{}", operation.name());
        let request = match operation {
            Operation::Cancel { reason } => HttpRequest::post(path, &CancelBody { reason })?,
            _ => HttpRequest::post(path, &NoBody {})?,
        };
        self.connection().json(request).await
    }
}

/// The empty body.
#[derive(serde::Serialize)]
struct NoBody {}

impl fmt::Debug for RemoteEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteEngine")
            .field("connection", &self.shared.connection)
            .finish_non_exhaustive()
    }
}

/// The id that this client generated for a submit, which no other client can use.
type GeneratedId = Option<TaskId>;

/// A submit in flight.
struct PendingSubmit {
    generated: GeneratedId,
    /// The response omits it.
    input: Json,
    /// The index of its result.
    index: usize,
}

/// Submits that are sent in one request.
#[derive(Default)]
struct Chunk {
    bodies: Vec<SubmitBody>,
    submits: Vec<PendingSubmit>,
    bytes: usize,
}

impl Chunk {
    fn has_room_for(&self, body: &SubmitBody) -> bool {
        self.bodies.is_empty()
            || (self.bodies.len() < BATCH_MAX && self.bytes + body.bytes() <= batch::BYTES_MAX)
    }

    fn add(&mut self, body: SubmitBody, generated: GeneratedId, input: Json, index: usize) {
        self.bytes += body.bytes();
        self.bodies.push(body);
        self.submits.push(PendingSubmit {
            generated,
            input,
            index,
        });
    }
}

impl BatchItem for SubmitBody {
    fn bytes(&self) -> usize {
        // The rest of the body is a few hundred bytes.
        self.input.as_ref().map_or(0, qo_core::Json::size) + 512
    }
}

impl BatchItem for OutcomeItem {
    fn bytes(&self) -> usize {
        let output = self.complete.as_ref().and_then(|body| body.output.as_ref());
        let error = self.fail.as_ref().map_or(0, |body| body.error.len());
        output.map_or(0, qo_core::Json::size) + error + 512
    }
}
