//! The messages that callers send to the commit loop. Each carries the reply channel of its own type.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use qo_core::transition::Action;
use qo_core::{
    DocumentName, LimitUsage, PauseNote, PauseTarget, Payload, Submission, Task, TaskId, Timestamp,
};
use qo_engine::EngineError;
use qo_engine::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, ListPosition, Stats, SubmitRequest,
    Submitted, TaskFilter, WaitReason,
};
use tokio::sync::oneshot;

use super::inbox::{Lane, SubmitPermit};
use super::payload_guard::PayloadGuard;

/// The approximate size of a record without its input.
const RECORD_BYTES: u64 = 700;

/// A request and its caller.
///
/// The response is set when the request is applied and sent when its group is durable. A group that lost its write to another
/// process is applied again, which replaces the response.
#[derive(Debug)]
pub(super) struct Call<Q, R> {
    pub(super) request: Q,
    /// None for requests of the loop itself.
    reply: Option<oneshot::Sender<Result<R, EngineError>>>,
    response: Option<Result<R, EngineError>>,
}

impl<Q, R> Call<Q, R> {
    /// A call, and the receiver of its response.
    pub(super) fn new(request: Q) -> (Self, oneshot::Receiver<Result<R, EngineError>>) {
        let (reply, response) = oneshot::channel();
        let call = Self {
            request,
            reply: Some(reply),
            response: None,
        };
        (call, response)
    }

    /// A call without a caller.
    pub(super) fn without_caller(request: Q) -> Self {
        Self {
            request,
            reply: None,
            response: None,
        }
    }

    /// Sets the response that is sent once the group is durable.
    pub(super) fn respond(&mut self, response: Result<R, EngineError>) {
        self.response = Some(response);
    }

    /// Whether the caller has gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Sends the response. Returns it if the caller has gone.
    pub(super) fn deliver(self) -> Option<R> {
        match (self.reply, self.response) {
            (Some(reply), Some(response)) => reply.send(response).err()?.ok(),
            _ => None,
        }
    }

    /// Sends an error instead of a response.
    pub(super) fn refuse(mut self, error: &EngineError) {
        self.respond(Err(error.clone()));
        self.deliver();
    }
}

/// A result for each of many operations.
pub(super) type TaskResults = Vec<Result<Arc<Task>, EngineError>>;

/// A call that waits for tasks.
pub(super) type ClaimCall = Call<ClaimOrder, Claimed>;

/// Claimed tasks, or due ones for a claim that only looks.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub(super) tasks: Vec<Arc<Task>>,
    /// The index of the entry that granted the claim, if the journal is a replicated log. It is known only when the group is durable.
    pub(super) log_index: Option<NonZeroU64>,
}

impl From<Vec<Arc<Task>>> for Claimed {
    fn from(tasks: Vec<Arc<Task>>) -> Self {
        Self {
            tasks,
            log_index: None,
        }
    }
}

impl Claimed {
    /// The tasks with the index. If the state holds a task too, the copy is made here, outside of the loop.
    pub(super) fn into_tasks(self) -> Vec<Task> {
        let owned = self.tasks.into_iter().map(|task| {
            let mut task = Arc::unwrap_or_clone(task);
            task.log_index = self.log_index;
            task
        });
        owned.collect()
    }
}

/// A request to the loop.
#[derive(Debug)]
pub(super) enum Message {
    Submit(Call<Vec<Submit>, Vec<Result<Accepted, EngineError>>>),
    Claim(ClaimCall),
    Act(Call<(TaskId, Action), Arc<Task>>),
    /// Each is applied on its own. Tasks that the state does not hold are not looked up.
    ActMany(Call<Vec<(TaskId, Action)>, TaskResults>),
    SetPause(Call<(PauseTarget, Option<PauseNote>), ()>),
    Purge(Call<TaskId, Arc<Task>>),
    Get(Call<TaskId, Arc<Task>>),
    WaitsFor(Call<TaskId, Option<WaitReason>>),
    LimitUsage(Call<(), BTreeMap<DocumentName, LimitUsage>>),
    List(Call<ListOrder, Listed>),
    Stats(Call<(), Box<Stats>>),
    Documents(Call<DocumentQuery, Vec<Document>>),
    WriteDocument(Call<Box<DocumentOrder>, Option<Document>>),
    /// Ends expired leases, and reads what other processes wrote.
    Maintain(Call<(), ()>),
    Close(Call<(), ()>),
}

/// Evaluates the same expression with the call of any message.
macro_rules! with_call {
    ($message:expr, $call:ident => $body:expr) => {
        match $message {
            Message::Submit($call) => $body,
            Message::Claim($call) => $body,
            Message::Act($call) => $body,
            Message::ActMany($call) => $body,
            Message::SetPause($call) => $body,
            Message::Purge($call) | Message::Get($call) => $body,
            Message::WaitsFor($call) => $body,
            Message::LimitUsage($call) => $body,
            Message::List($call) => $body,
            Message::Stats($call) => $body,
            Message::Documents($call) => $body,
            Message::WriteDocument($call) => $body,
            Message::Maintain($call) | Message::Close($call) => $body,
        }
    };
}

impl Message {
    /// Whether the caller has gone.
    pub(super) fn is_abandoned(&self) -> bool {
        with_call!(self, call => call.is_abandoned())
    }

    /// Sends an error instead of a response.
    pub(super) fn refuse(self, error: &EngineError) {
        with_call!(self, call => call.refuse(error));
    }

    /// Sends the response, that of a claim with the index of its group. Returns the claimed tasks that were not received.
    pub(super) fn deliver(self, index: Option<NonZeroU64>) -> Vec<Arc<Task>> {
        if let Self::Claim(mut call) = self {
            if let Some(Ok(claimed)) = &mut call.response {
                claimed.log_index = index;
            }
            let only_looks = call.request.only_looks;
            let tasks = call.deliver().unwrap_or_default().tasks;
            return if only_looks { Vec::new() } else { tasks };
        }
        with_call!(self, call => {
            call.deliver();
        });
        Vec::new()
    }

    /// The lane on which it goes to the loop.
    pub(super) fn lane(&self) -> Lane {
        match self {
            Self::Submit(_) => Lane::Submits,
            Self::Act(call) if is_of_lease(&call.request.1) => Lane::Leases,
            Self::ActMany(call) if call.request.iter().any(|(_, action)| is_of_lease(action)) => {
                Lane::Leases
            }
            _ => Lane::Others,
        }
    }

    /// Whether applying it may change something.
    pub(super) fn may_write(&self) -> bool {
        !matches!(
            self,
            Self::Get(_)
                | Self::WaitsFor(_)
                | Self::LimitUsage(_)
                | Self::List(_)
                | Self::Stats(_)
                | Self::Documents(_)
                | Self::Maintain(_)
                | Self::Close(_)
        )
    }

    /// The number of tasks that it submits, and the approximate size of their records.
    pub(super) fn submits(&self) -> (u64, u64) {
        match self {
            Self::Submit(call) => {
                let bytes = call.request.iter().map(Submit::bytes).sum();
                (call.request.len() as u64, bytes)
            }
            _ => (0, 0),
        }
    }

    /// The task that this is about, if it is about one.
    pub(super) fn task_id(&self) -> Option<TaskId> {
        match self {
            Self::Submit(call) => call.request.first().map(|submit| submit.id),
            Self::Act(call) => Some(call.request.0),
            Self::Get(call) | Self::Purge(call) => Some(call.request),
            _ => None,
        }
    }

    /// Notes which of its tasks have finished records that cannot be read. Returns the error if that refuses all of the message: one task among
    /// several that are submitted together does not refuse the others.
    pub(super) fn mark_unreadable(
        &mut self,
        unreadable: &BTreeMap<TaskId, EngineError>,
    ) -> Option<EngineError> {
        if let Self::Submit(call) = self {
            for submit in &mut call.request {
                submit.unreadable = unreadable.get(&submit.id).cloned();
            }
            return None;
        }
        unreadable.get(&self.task_id()?).cloned()
    }
}

/// A message on its way to the loop, or in it.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) message: Message,
    /// Whether everything that the journal holds for it has just been looked up and is in the state.
    pub(super) is_looked_up: bool,
    /// When its caller sent it, in the runtime's monotonic time. None for messages of the loop itself.
    pub(super) sent_at: Option<Duration>,
    /// Its share of the limit on submits that have no response yet.
    pub(super) permit: Option<SubmitPermit>,
}

impl From<Message> for QueuedMessage {
    fn from(message: Message) -> Self {
        Self {
            message,
            is_looked_up: false,
            sent_at: None,
            permit: None,
        }
    }
}

/// A task to submit.
#[derive(Debug)]
pub(super) struct Submit {
    pub(super) id: TaskId,
    /// Whether the caller chose the id, so that the task may exist already.
    pub(super) id_is_chosen: bool,
    /// Why it cannot be told whether the task exists, if its finished record cannot be read.
    pub(super) unreadable: Option<EngineError>,
    pub(super) request: SubmitRequest,
    pub(super) input: Payload,
    /// Whether the task is added even if the queue is full.
    pub(super) is_exempt: bool,
    /// Keeps the stored input from being deleted until the submit has a response.
    pub(super) _input_guard: Option<PayloadGuard>,
}

impl Submit {
    /// The approximate size of its record.
    pub(super) fn bytes(&self) -> u64 {
        let input = match &self.input {
            Payload::Inline(json) => json.size() as u64,
            // It is in its own object already.
            Payload::Stored(_) => 0,
        };
        RECORD_BYTES + input
    }

    pub(super) fn submission(&self, now: Timestamp) -> Submission {
        let request = self.request.clone();
        Submission {
            is_exempt: self.is_exempt,
            ..request.into_submission(self.id, self.input.clone(), now)
        }
    }
}

/// A change of a document, and the tasks to submit with it.
#[derive(Debug)]
pub(super) struct DocumentOrder {
    pub(super) write: DocumentWrite,
    pub(super) submits: Vec<Submit>,
}

/// A claim request with its defaults filled in.
#[derive(Debug)]
pub(super) struct ClaimOrder {
    pub(super) request: ClaimRequest,
    pub(super) lease_ms: u64,
    /// Whether to return the due tasks without claiming them.
    pub(super) only_looks: bool,
    /// Until when to wait for the first task, in the runtime's monotonic time.
    pub(super) until: Duration,
    /// The number that the loop gave it when it arrived. Claims are served in this order.
    pub(super) arrival: Option<u64>,
}

/// Which page of the list of tasks to read.
#[derive(Debug)]
pub(super) struct ListOrder {
    pub(super) filter: TaskFilter,
    /// The place after which to start. The filter has the order.
    pub(super) after: Option<ListPosition>,
    pub(super) limit: usize,
}

/// A task that was submitted, now or before.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) task: Arc<Task>,
    pub(super) duplicate: bool,
}

impl From<Accepted> for Submitted {
    /// If the state holds the task too, the copy is made here, outside of the loop.
    fn from(accepted: Accepted) -> Self {
        Self {
            task: Arc::unwrap_or_clone(accepted.task),
            duplicate: accepted.duplicate,
        }
    }
}

/// A page of the list of tasks.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) tasks: Vec<Task>,
    /// The place of the last task that was read, if there may be more after it.
    pub(super) last: Option<ListPosition>,
    /// How many tasks were read.
    pub(super) examined: usize,
}

/// Whether only the holder of a task's lease does this.
fn is_of_lease(action: &Action) -> bool {
    if let Action::Logged { action, .. } = action {
        return is_of_lease(action);
    }
    matches!(
        action,
        Action::Renew { .. }
            | Action::Progress { .. }
            | Action::Complete { .. }
            | Action::Fail { .. }
            | Action::Release { .. }
            | Action::Snooze { .. }
    )
}
