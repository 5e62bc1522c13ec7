//! Remote mode: a queue behind the HTTP API of another process.
//!
//! ```text
//! callers ──► RemoteEngine ──► batches (submits, results, renewals) ──► Connection ──► server 1, server 2, ...
//!                   └────────── claims, reads, the rest ─────────────────────┘
//! ```
//!
//! - [`connection`]: sends a request, and retries it under the same id until it gets a response.
//! - [`directory`]: chooses the server, and the next one.
//! - [`cluster_url`]: the servers of a `cluster:` URL.
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
//! | renew, progress, heartbeat, pause, resume, all requests about blobs | they are idempotent |
//! | write a document | it carries an operation id, by which the queue recognises the first copy |
//! | cancel, run now, replay, archive, unarchive, purge | the second request may be rejected because the first one succeeded; the error names the task's status |

mod batch;
mod blobs;
mod cluster_url;
mod config;
mod connection;
mod directory;
mod engine_impl;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod http_request;
mod inputs;
mod leases;
mod ping;
mod transport;
pub mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use qo_core::transition::Submission;
use qo_core::{Json, Payload, QueueName, Rejection, Status, Task, TaskId, TaskType};
use qo_engine::api::{SubmitRequest, Submitted};
use qo_engine::{Engine as _, EngineError, Operation};
use qo_store::runtime::{Runtime, RuntimeExt};

use self::batch::{BatchItem, BatchReply, Batcher};
use self::connection::Connection;
use self::http_request::HttpRequest;
use self::inputs::{Inputs, with_input};
use self::leases::{EndEvent, Leases};
use crate::wire::cluster::MemberBody;
use crate::wire::token::{TokenBody, TokenInfo};
use crate::wire::{
    BATCH_MAX, CancelBody, Info, OutcomeItem, OutcomeResult, RedriveBody, SubmitBody, SubmitResult,
};

pub use blobs::RemoteBlobs;
pub use config::{InvalidServer, RemoteConfig, Token};
pub use directory::{BrokerAddress, Discovery};
pub use ping::Ping;

/// How long a new node of a cluster may take to catch up.
const CATCH_UP_MAX: Duration = Duration::from_mins(30);
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

    /// The state of a node of a cluster: of the leader, if the last request went there.
    pub async fn cluster(&self) -> Result<serde_json::Value, EngineError> {
        self.connection().read("/v1/cluster").await
    }

    /// Entries of the log of a group on a node, from the first that is kept or `from` on.
    pub async fn cluster_log(
        &self,
        group: u16,
        from: Option<u64>,
        limit: usize,
    ) -> Result<Vec<serde_json::Value>, EngineError> {
        let from = from.map_or_else(String::new, |from| format!("&from={from}"));
        // Earlier versions know no groups.
        let group = (group > 0).then(|| format!("&group={group}"));
        let group = group.unwrap_or_default();
        let path = format!("/v1/cluster/log?limit={limit}{from}{group}");
        self.connection().read(&path).await
    }

    /// Adds a node to a cluster. Returns when the node has caught up.
    pub async fn cluster_add(&self, node: u64, member: &MemberBody) -> Result<(), EngineError> {
        let mut request = HttpRequest::put(format!("/v1/cluster/members/{node}"), member)?;
        request.wait = CATCH_UP_MAX;
        self.connection().bytes(request).await.map(drop)
    }

    /// Lets a node of a cluster vote.
    pub async fn cluster_promote(&self, node: u64) -> Result<(), EngineError> {
        let path = format!("/v1/cluster/members/{node}/promote");
        let request = HttpRequest::post(path, &NoBody {})?;
        self.connection().bytes(request).await.map(drop)
    }

    /// Removes a node from a cluster.
    pub async fn cluster_remove(&self, node: u64) -> Result<(), EngineError> {
        let request = HttpRequest::delete(format!("/v1/cluster/members/{node}"));
        self.connection().bytes(request).await.map(drop)
    }

    /// Makes a snapshot of a node.
    pub async fn cluster_snapshot(&self) -> Result<(), EngineError> {
        let request = HttpRequest::post("/v1/cluster/snapshot".to_owned(), &NoBody {})?;
        self.connection().bytes(request).await.map(drop)
    }

    /// The tokens of the server.
    pub async fn tokens(&self) -> Result<Vec<TokenInfo>, EngineError> {
        self.connection().read("/v1/tokens").await
    }

    /// Stores a token under its id.
    pub async fn create_token(&self, id: &str, token: &TokenBody) -> Result<(), EngineError> {
        let request = HttpRequest::put(format!("/v1/tokens/{id}"), token)?;
        self.connection().bytes(request).await.map(drop)
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &str) -> Result<(), EngineError> {
        let request = HttpRequest::delete(format!("/v1/tokens/{id}"));
        self.connection().bytes(request).await.map(drop)
    }

    /// The blobs of the queue.
    pub fn blobs(&self) -> RemoteBlobs {
        RemoteBlobs::new(Arc::clone(&self.shared.connection))
    }

    fn connection(&self) -> &Connection {
        &self.shared.connection
    }

    /// The body of a submit, and the id that was generated for it.
    ///
    /// The retry policy is validated here: JSON has no NaN, so an invalid number would arrive as a missing one.
    fn prepare(&self, request: SubmitRequest) -> Result<(SubmitBody, GeneratedId), EngineError> {
        request.retry_policy.validate().map_err(Rejection::from)?;
        let route = request.route();
        let mut body = SubmitBody::from_request(request);
        body.omit_input = true;
        let generated = body.id.is_none().then(|| {
            let id = self.shared.runtime.new_task_id();
            // A partitioned queue finds both in the same partition.
            route.map_or(id, |route| id.with_route(route))
        });
        body.id = body.id.or(generated);
        // With an idempotency key, another submit may have created the task under this id for this one.
        let generated = generated.filter(|_| body.idempotency_key.is_none());
        Ok((body, generated))
    }

    async fn submit_one(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        let sent = SentSubmit::of(&request);
        let (body, generated) = self.prepare(request)?;
        let reply = self.shared.submits.send(body).await?;
        self.submitted(reply.result, generated, sent, reply.repeated)
            .await
    }

    async fn submit_all(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        let mut results: Vec<Option<Result<Submitted, EngineError>>> = Vec::new();
        let mut chunk = Chunk::default();
        for request in requests {
            let index = results.len();
            let sent = SentSubmit::of(&request);
            match self.prepare(request) {
                Err(error) => results.push(Some(Err(error))),
                Ok((body, generated)) => {
                    results.push(None);
                    if !chunk.has_room_for(&body) {
                        self.submit_chunk(std::mem::take(&mut chunk), &mut results)
                            .await;
                    }
                    chunk.add(body, generated, sent, index);
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
                    let result = self
                        .submitted(reply, submit.generated, submit.sent, repeated)
                        .await;
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

    async fn submitted(
        &self,
        result: SubmitResult,
        generated: GeneratedId,
        sent: SentSubmit,
        repeated: bool,
    ) -> Result<Submitted, EngineError> {
        let existing = result.id.zip(result.status);
        // No other client can have used this generated id: the duplicate is the first copy of this request.
        let was_duplicate = result.duplicate;
        let is_duplicate = |id: TaskId| was_duplicate && !(repeated && generated == Some(id));
        let task = match (result.task, existing, result.problem) {
            // A large response has no room for all tasks in full. The input of a duplicate is not the one that was sent.
            (Some(task), ..) if is_duplicate(task.id) && !task.names_input() => {
                self.get(task.id).await?
            }
            (Some(task), ..) => with_input(task, Some(sent.input)),
            (None, Some((id, status)), _) => self.unread_task(id, status, sent)?,
            (None, None, Some(problem)) => {
                return Err(problem.into_error(&self.connection().server_url()));
            }
            (None, None, None) => {
                return Err(self
                    .connection()
                    .invalid_response("a result with neither a task nor a problem"));
            }
        };
        let duplicate = is_duplicate(task.id);
        Ok(Submitted { duplicate, task })
    }

    /// An existing task. The server reveals only its id and status, because this client may not read tasks. The rest is what the
    /// client has sent, or a default.
    fn unread_task(
        &self,
        id: TaskId,
        status: Status,
        sent: SentSubmit,
    ) -> Result<Task, EngineError> {
        let input = Payload::Inline(Json::null());
        let submission = Submission::new(id, sent.task_type, input);
        let op = self.shared.runtime.new_op_id();
        let mut task = qo_core::transition::submit(submission, op, self.shared.connection.now())?;
        task.queue = sent.queue;
        task.status = status;
        Ok(task.with_input(sent.input))
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
        let (operation, actor) = operation.split();
        let mut request = match operation {
            Operation::Cancel { reason } => HttpRequest::post(path, &CancelBody { reason })?,
            Operation::Redrive { to } => HttpRequest::post(path, &RedriveBody { to })?,
            _ => HttpRequest::post(path, &NoBody {})?,
        };
        request.actor = actor;
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

/// What this client knows of a task that it submits: the response omits the input, or everything but id and status.
struct SentSubmit {
    task_type: TaskType,
    queue: QueueName,
    input: Json,
}

impl SentSubmit {
    fn of(request: &SubmitRequest) -> Self {
        Self {
            task_type: request.task_type.clone(),
            queue: request.queue.clone(),
            input: request.input.clone(),
        }
    }
}

/// A submit in flight.
struct PendingSubmit {
    generated: GeneratedId,
    sent: SentSubmit,
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

    fn add(&mut self, body: SubmitBody, generated: GeneratedId, sent: SentSubmit, index: usize) {
        self.bytes += body.bytes();
        self.bodies.push(body);
        self.submits.push(PendingSubmit {
            generated,
            sent,
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
