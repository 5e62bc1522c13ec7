//! Handlers that run several tasks of a type in one call.
//!
//! Each task of a batch is an attempt of its own, with its own supervisor: it has its lease, its renewals, its deadline, its cancellation
//! and its outcome, as if it ran alone. Only the calls of the handler are joined. The call that gathers the first task opens a batch, and
//! later ones join it. It starts as soon as one of these is true:
//!
//! | condition | why |
//! | --- | --- |
//! | it has as many tasks as the limit | nothing can join |
//! | its first task has waited for the given time | |
//! | the worker stops, or drains and finds no more tasks, and no task is on its way | nothing will join |
//!
//! A task that is cancelled, times out or loses its lease leaves a batch that is still filling. If that happens during the call, the other tasks
//! continue, and the outcome of this one is discarded. All attempts of a batch drive its call together, so the call continues as long as one of
//! them is left.

use std::collections::BTreeSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_core::{Json, TaskId};
use serde::Serialize;
use tokio::sync::watch;

use super::attempt::{HandlerResult, panic_message};
use super::handler::{HandlerOutput, parse_input};
use super::{Context, TaskError, TaskHandler, TaskInput};
use crate::lock;

/// The maximum number of tasks in a batch.
pub(super) const LIMIT_MAX: usize = CLAIM_MAX_TASKS;
/// The maximum time that a batch gathers tasks.
pub(super) const WAIT_MAX: Duration = Duration::from_hours(1);

/// An async function that handles several tasks with input `T` in one call:
/// `async fn(Vec<(T, Context)>) -> Result<Vec<Result<O, TaskError>>, E>`, where `O` is serializable and `E` converts to [`TaskError`]. It
/// returns one result per task, in the order of the tasks; an error of the call counts for each of them. Implemented for all such functions
/// and closures.
pub trait BatchFunction<T>: Send + Sync + 'static {
    /// Runs the tasks.
    fn call(
        &self,
        tasks: Vec<(T, Context)>,
    ) -> BoxFuture<'static, Result<Vec<Result<HandlerOutput, TaskError>>, TaskError>>;
}

impl<T, F, R, O, E> BatchFunction<T> for F
where
    F: Fn(Vec<(T, Context)>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Vec<Result<O, TaskError>>, E>> + Send + 'static,
    O: Serialize,
    E: Into<TaskError>,
{
    fn call(
        &self,
        tasks: Vec<(T, Context)>,
    ) -> BoxFuture<'static, Result<Vec<Result<HandlerOutput, TaskError>>, TaskError>> {
        self(tasks)
            .map(|called| {
                let results = called.map_err(Into::into)?.into_iter();
                Ok(results
                    .map(|result| result.map(|output| HandlerOutput::of(&output)))
                    .collect())
            })
            .boxed()
    }
}

/// What a worker tells the handlers of batches.
pub(super) trait Gatherer: Send + Sync {
    /// The task types.
    fn types(&self) -> Vec<String>;

    /// The maximum number of tasks in a batch.
    fn limit(&self) -> usize;

    /// How long a batch gathers tasks.
    fn wait(&self) -> Duration;

    /// An attempt has begun and will call the handler.
    fn expect(&self, id: TaskId, attempt: u32);

    /// An attempt has ended, and may not have called the handler.
    fn ended(&self, id: TaskId, attempt: u32);

    /// Whether more tasks may come. If not, batches start as soon as all expected tasks have joined.
    fn set_hurried(&self, is_hurried: bool);
}

/// Gathers tasks and calls the function with them.
pub(super) struct BatchHandler<T, F> {
    function: Arc<F>,
    limit: usize,
    wait: Duration,
    state: Mutex<State<T>>,
}

struct State<T> {
    open: Option<OpenBatch<T>>,
    /// The number of the last batch, and of the last seat.
    last_number: u64,
    /// The attempts that have not called the handler yet.
    expected: BTreeSet<(TaskId, u32)>,
    is_hurried: bool,
}

/// A batch that gathers tasks.
struct OpenBatch<T> {
    number: u64,
    opened_at: Duration,
    members: Vec<Member<T>>,
    started: watch::Sender<Option<StartedBatch>>,
}

struct Member<T> {
    seat: u64,
    input: T,
    context: Context,
}

/// A batch whose call runs.
#[derive(Clone)]
struct StartedBatch {
    /// The seats, in the order of the results.
    seats: Arc<[u64]>,
    call: Shared<BoxFuture<'static, Arc<[HandlerResult]>>>,
}

/// A task's place in a batch. Dropping it leaves the batch, if that has not started.
struct Seat<'a, T: TaskInput, F: BatchFunction<T>> {
    handler: &'a BatchHandler<T, F>,
    batch: u64,
    number: u64,
    opened_at: Duration,
    started: watch::Receiver<Option<StartedBatch>>,
}

impl<T: TaskInput, F: BatchFunction<T>> BatchHandler<T, F> {
    pub(super) fn new(limit: usize, wait: Duration, function: F) -> Self {
        Self {
            function: Arc::new(function),
            limit,
            wait,
            state: Mutex::new(State {
                open: None,
                last_number: 0,
                expected: BTreeSet::new(),
                is_hurried: false,
            }),
        }
    }

    /// Joins the open batch, or opens one.
    fn join(&self, input: T, context: Context) -> Seat<'_, T, F> {
        let now = context.queue().runtime().monotonic();
        let mut state = lock(&self.state);
        let State {
            open, last_number, ..
        } = &mut *state;
        let mut next_number = || {
            *last_number += 1;
            *last_number
        };
        let seat = next_number();
        let batch = open.get_or_insert_with(|| OpenBatch {
            number: next_number(),
            opened_at: now,
            members: Vec::new(),
            started: watch::Sender::new(None),
        });
        batch.members.push(Member {
            seat,
            input,
            context,
        });
        let joined = Seat {
            handler: self,
            batch: batch.number,
            number: seat,
            opened_at: batch.opened_at,
            started: batch.started.subscribe(),
        };
        let is_full = batch.members.len() >= self.limit;
        if is_full {
            self.start(&mut state);
        } else {
            self.start_if_complete(&mut state);
        }
        joined
    }

    /// Starts the open batch if nothing will join it.
    fn start_if_complete(&self, state: &mut State<T>) {
        if state.is_hurried && state.expected.is_empty() {
            self.start(state);
        }
    }

    /// Starts the open batch, if there is one.
    fn start(&self, state: &mut State<T>) {
        let Some(batch) = state.open.take() else {
            return;
        };
        let seats = batch.members.iter().map(|member| member.seat).collect();
        let tasks = batch.members.into_iter();
        let tasks = tasks.map(|member| (member.input, member.context)).collect();
        let started = StartedBatch {
            seats,
            call: self.call(tasks).shared(),
        };
        batch.started.send_replace(Some(started));
    }

    /// Calls the function. The result has one element per task.
    fn call(&self, tasks: Vec<(T, Context)>) -> BoxFuture<'static, Arc<[HandlerResult]>> {
        let count = tasks.len();
        let function = Arc::clone(&self.function);
        async move {
            let calling = AssertUnwindSafe(async { function.call(tasks).await });
            let results = match calling.catch_unwind().await {
                Ok(Ok(results)) => results,
                Ok(Err(error)) => return repeat(&Err(error), count),
                Err(panic) => {
                    let message = panic_message(panic.as_ref());
                    tracing::warn!(message, "a batch handler panicked");
                    let error = format_args!("the handler panicked: {message}");
                    return repeat(&Err(TaskError::retryable(error)), count);
                }
            };
            if results.len() != count {
                let error = TaskError::permanent(format_args!(
                    "the batch handler of {} returned {} results for {count} tasks; it must return one per task, in their order",
                    T::TYPE,
                    results.len()
                ));
                return repeat(&Err(error), count);
            }
            let results = results.into_iter();
            results
                .map(|result| result.and_then(|output| output.stored(T::TYPE)))
                .collect()
        }
        .boxed()
    }
}

/// The same result for each task.
fn repeat(result: &HandlerResult, count: usize) -> Arc<[HandlerResult]> {
    std::iter::repeat_n(result.clone(), count).collect()
}

impl<T: TaskInput, F: BatchFunction<T>> Seat<'_, T, F> {
    /// Waits until the batch has started. Fails if the attempt is asked to stop before that.
    async fn started(&mut self, context: &Context) -> Result<StartedBatch, TaskError> {
        let runtime = context.queue().runtime();
        let start_at = self.opened_at + self.handler.wait;
        let mut is_due = false;
        loop {
            let pause = start_at.saturating_sub(runtime.monotonic());
            tokio::select! {
                biased;
                started = wait_for_start(&mut self.started) => return started.ok_or_else(left),
                () = context.cancellation().cancelled() => {
                    if self.leave() {
                        return Err(left());
                    }
                }
                () = runtime.sleep(pause), if !is_due => {
                    is_due = true;
                    let mut state = lock(&self.handler.state);
                    if state.open.as_ref().is_some_and(|open| open.number == self.batch) {
                        self.handler.start(&mut state);
                    }
                }
            }
        }
    }

    /// Leaves the batch. Returns false if it has started.
    fn leave(&self) -> bool {
        let mut state = lock(&self.handler.state);
        let Some(open) = state.open.as_mut() else {
            return false;
        };
        if open.number != self.batch {
            return false;
        }
        open.members.retain(|member| member.seat != self.number);
        if open.members.is_empty() {
            state.open = None;
        }
        true
    }
}

impl<T: TaskInput, F: BatchFunction<T>> Drop for Seat<'_, T, F> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Waits until a batch has started. Returns `None` if it never will, because all of its tasks have left it.
async fn wait_for_start(
    started: &mut watch::Receiver<Option<StartedBatch>>,
) -> Option<StartedBatch> {
    started.wait_for(Option::is_some).await.ok()?.clone()
}

/// The error of a task that left its batch. What is stored for it follows from the reason to stop.
fn left() -> TaskError {
    TaskError::retryable("stopped before its batch started")
}

#[async_trait]
impl<T: TaskInput, F: BatchFunction<T>> TaskHandler for BatchHandler<T, F> {
    fn task_type(&self) -> &str {
        T::TYPE
    }

    fn aliases(&self) -> Vec<String> {
        T::ALIASES.iter().map(|&name| name.to_owned()).collect()
    }

    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        let input = parse_input::<T>(&input);
        // A task whose input is invalid joins no batch, and none waits for it.
        lock(&self.state)
            .expected
            .remove(&(context.id(), context.attempt()));
        let input = match input {
            Ok(input) => input,
            Err(error) => {
                self.start_if_complete(&mut lock(&self.state));
                return Err(error);
            }
        };
        let mut seat = self.join(input, context.clone());
        let StartedBatch { seats, call } = seat.started(&context).await?;
        let results = call.await;
        let position = seats.iter().position(|number| *number == seat.number);
        let result = position.and_then(|position| results.get(position));
        result.cloned().unwrap_or_else(|| Err(left()))
    }
}

impl<T: TaskInput, F: BatchFunction<T>> Gatherer for BatchHandler<T, F> {
    fn types(&self) -> Vec<String> {
        std::iter::once(T::TYPE)
            .chain(T::ALIASES.iter().copied())
            .map(str::to_owned)
            .collect()
    }

    fn limit(&self) -> usize {
        self.limit
    }

    fn wait(&self) -> Duration {
        self.wait
    }

    fn expect(&self, id: TaskId, attempt: u32) {
        lock(&self.state).expected.insert((id, attempt));
    }

    fn ended(&self, id: TaskId, attempt: u32) {
        let mut state = lock(&self.state);
        if state.expected.remove(&(id, attempt)) {
            self.start_if_complete(&mut state);
        }
    }

    fn set_hurried(&self, is_hurried: bool) {
        let mut state = lock(&self.state);
        state.is_hurried = is_hurried;
        self.start_if_complete(&mut state);
    }
}
