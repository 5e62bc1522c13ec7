//! A queue behind another process's HTTP API.
//!
//! ```text
//! callers ──► RemoteEngine ──► batches (submits, ends, signs of life) ──► Connection ──► server 1, server 2, ...
//!                   └────────── claims, reads, the rest ───────────────────────┘
//! ```
//!
//! - [`connection`]: one request, repeated under one name until it is answered.
//! - [`directory`]: which server is asked, and which one next.
//! - [`batch`]: what many callers ask at once goes in one request; one caller alone does not wait for others.
//! - [`inputs`]: what answers need not repeat.
//!
//! # When an answer is lost
//!
//! A request that got no answer is sent again, with the same name (`X-Request-Id`) and the same bytes. That is harmless:
//!
//! | request | why |
//! | --- | --- |
//! | submit | it carries an id that was drawn here, and a second submit of an id returns the first task |
//! | claim | the server remembers for a while what it handed out under a name, and hands out the same again. A server that does not remember, because it was restarted, hands out others; the first ones come back when their leases run out |
//! | complete, fail, release, snooze | the second one finds its lease gone. If the history shows that the attempt of the lease ended in just this way, nobody else can have done it, so that it counts as done ([`leases`]) |
//! | renew, progress, heartbeat, pause, resume | doing it twice is doing it once |
//! | cancel, run now, replay, archive, unarchive, purge | the second one may be refused because the first one did it; the error says in which state the task is |

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

use self::batch::{Batch, Batcher, Sent};
use self::connection::{Ask, Connection};
use self::inputs::{Inputs, with_input};
use self::leases::{EndEvent, Leases};
use crate::wire::{
    BATCH_MAX, CancelBody, Info, OutcomeAnswer, OutcomeItem, SubmitAnswer, SubmitBody,
};

pub use config::{InvalidServer, RemoteConfig, Token};
pub use directory::{Discovery, Found};
pub use ping::Ping;

/// How many requests of one sort are under way at once; what comes meanwhile goes with the next.
const FLIGHTS_MAX: usize = 4;

/// A queue behind an HTTP API. Clones share everything.
#[derive(Clone)]
pub struct RemoteEngine {
    shared: Arc<Shared>,
}

struct Shared {
    connection: Arc<Connection>,
    runtime: Arc<dyn Runtime>,
    leases: Arc<Leases>,
    inputs: Inputs,
    submits: Batcher<SubmitBody, SubmitAnswer>,
    /// Complete, fail, release, snooze.
    ends: Batcher<OutcomeItem, OutcomeAnswer>,
    /// Renew and progress: they must not wait behind outputs.
    signs: Batcher<OutcomeItem, OutcomeAnswer>,
}

impl RemoteEngine {
    /// An engine that will ask these servers. Nothing is sent yet.
    pub fn new(config: RemoteConfig, runtime: Arc<dyn Runtime>) -> Result<Self, InvalidServer> {
        let connection = Arc::new(Connection::new(config, Arc::clone(&runtime))?);
        let submits = {
            let connection = Arc::clone(&connection);
            Batcher::new(Arc::clone(&runtime), FLIGHTS_MAX, move |bodies| {
                let connection = Arc::clone(&connection);
                Box::pin(async move { connection.send_batch("/v1/tasks", &bodies).await })
            })
        };
        let outcomes = || {
            let connection = Arc::clone(&connection);
            Batcher::new(Arc::clone(&runtime), FLIGHTS_MAX, move |items| {
                let connection = Arc::clone(&connection);
                Box::pin(async move { connection.send_batch("/v1/outcomes", &items).await })
            })
        };
        let (ends, signs) = (outcomes(), outcomes());
        Ok(Self {
            shared: Arc::new(Shared {
                connection,
                runtime,
                leases: Arc::new(Leases::default()),
                inputs: Inputs::default(),
                submits,
                ends,
                signs,
            }),
        })
    }

    /// Asks the server who it is: whether it can be reached, and whether it takes the token.
    pub async fn check(&self) -> Result<Info, EngineError> {
        self.connection().read("/v1/info").await
    }

    fn connection(&self) -> &Connection {
        &self.shared.connection
    }

    /// The body of a submit, and the id that is this submit's alone.
    ///
    /// A policy whose numbers are none could not be told from one that leaves them out, so that it is judged here.
    fn named(&self, request: SubmitRequest) -> Result<(SubmitBody, Own), EngineError> {
        request.retry_policy.validate().map_err(Rejection::from)?;
        let mut body = SubmitBody::from_request(request);
        body.omit_input = true;
        let own = body.id.is_none().then(|| self.shared.runtime.new_task_id());
        body.id = body.id.or(own);
        // With a key, another submit may have made the task under this very id, on this one's behalf.
        let own = own.filter(|_| body.idempotency_key.is_none());
        Ok((body, own))
    }

    async fn submit_one(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        let input = request.input.clone();
        let (body, own) = self.named(request)?;
        let sent = self.shared.submits.send(body).await?;
        self.submitted(sent.answer, own, input, sent.repeated)
    }

    async fn submit_all(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        let mut results: Vec<Option<Result<Submitted, EngineError>>> = Vec::new();
        let mut chunk = Chunk::default();
        for request in requests {
            let place = results.len();
            let input = request.input.clone();
            match self.named(request) {
                Err(error) => results.push(Some(Err(error))),
                Ok((body, own)) => {
                    results.push(None);
                    if !chunk.has_room_for(&body) {
                        self.submit_chunk(std::mem::take(&mut chunk), &mut results)
                            .await;
                    }
                    chunk.add(body, own, input, place);
                }
            }
        }
        self.submit_chunk(chunk, &mut results).await;
        let missing = || {
            self.connection()
                .nonsense("fewer answers than it was asked for")
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
        let answers: batch::Answers<SubmitAnswer> = self
            .connection()
            .send_batch("/v1/tasks", &chunk.bodies)
            .await;
        match answers {
            Ok((answers, repeated)) => {
                for (answer, part) in answers.into_iter().zip(chunk.places) {
                    let result = self.submitted(answer, part.own, part.input, repeated);
                    results[part.place] = Some(result);
                }
            }
            Err(error) => {
                for part in chunk.places {
                    results[part.place] = Some(Err(error.clone()));
                }
            }
        }
    }

    fn submitted(
        &self,
        answer: SubmitAnswer,
        own: Own,
        input: Json,
        repeated: bool,
    ) -> Result<Submitted, EngineError> {
        match (answer.task, answer.problem) {
            (Some(task), _) => {
                // Nobody else can have used an id that was drawn here: it was the first copy of this very request.
                let own_copy = repeated && own == Some(task.id);
                Ok(Submitted {
                    duplicate: answer.duplicate && !own_copy,
                    task: with_input(task, Some(input)),
                })
            }
            (None, Some(problem)) => Err(problem.into_error(&self.connection().place())),
            (None, None) => Err(self
                .connection()
                .nonsense("an answer with neither a task nor a problem")),
        }
    }

    /// Carries out a worker's operation. It goes in a batch with others.
    async fn act_as_worker(
        &self,
        item: OutcomeItem,
        operation: &Operation,
    ) -> Result<Task, EngineError> {
        let id = item.id;
        let batcher = if operation.ends_attempt() {
            &self.shared.ends
        } else {
            &self.shared.signs
        };
        let input = self.shared.inputs.of(operation);
        let item = OutcomeItem {
            omit_input: input.is_some(),
            ..item
        };
        let sent: Result<Sent<OutcomeAnswer>, _> = batcher.send(item).await;
        let (error, repeated) = match sent {
            Err(error) => (error, false),
            Ok(sent) => match (sent.answer.task, sent.answer.problem) {
                (Some(task), _) => return Ok(with_input(task, input)),
                (None, Some(problem)) => (
                    problem.into_error(&self.connection().place()),
                    sent.repeated,
                ),
                (None, None) => {
                    return Err(self
                        .connection()
                        .nonsense("a response with neither a task nor a problem"));
                }
            },
        };
        let Some((lease, end)) = EndEvent::of(operation) else {
            return Err(error);
        };
        self.shared.leases.heard(lease, &error);
        if error.is_lease_lost()
            && let Some(attempt) = self.shared.leases.told_before(lease, repeated)
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
        let ask = match operation {
            Operation::Cancel { reason } => Ask::post(path, &CancelBody { reason })?,
            _ => Ask::post(path, &NoBody {})?,
        };
        self.connection().ask(ask).await
    }
}

/// The body of requests that need none.
#[derive(serde::Serialize)]
struct NoBody {}

impl fmt::Debug for RemoteEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteEngine")
            .field("connection", &self.shared.connection)
            .finish_non_exhaustive()
    }
}

/// The id that was drawn for a submit and that nobody else can use.
type Own = Option<TaskId>;

/// What is known of a submit that is under way.
struct Part {
    own: Own,
    /// The answer leaves it out.
    input: Json,
    /// Where the answer belongs.
    place: usize,
}

/// Submits that go in one request.
#[derive(Default)]
struct Chunk {
    bodies: Vec<SubmitBody>,
    places: Vec<Part>,
    bytes: usize,
}

impl Chunk {
    fn has_room_for(&self, body: &SubmitBody) -> bool {
        self.bodies.is_empty()
            || (self.bodies.len() < BATCH_MAX && self.bytes + body.bytes() <= batch::BYTES_MAX)
    }

    fn add(&mut self, body: SubmitBody, own: Own, input: Json, place: usize) {
        self.bytes += body.bytes();
        self.bodies.push(body);
        self.places.push(Part { own, input, place });
    }
}

/// What a batch needs to know of its parts.
impl Batch for SubmitBody {
    fn bytes(&self) -> usize {
        // What is not the input is a few hundred bytes.
        self.input.as_ref().map_or(0, qo_core::Json::size) + 512
    }
}

impl Batch for OutcomeItem {
    fn bytes(&self) -> usize {
        let output = self.complete.as_ref().and_then(|body| body.output.as_ref());
        let error = self.fail.as_ref().map_or(0, |body| body.error.len());
        output.map_or(0, qo_core::Json::size) + error + 512
    }
}
