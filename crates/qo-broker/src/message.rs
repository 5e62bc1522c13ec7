//! What callers hand to the commit loop, and what it hands back.

use std::sync::Arc;
use std::time::Duration;

use qo_core::transition::Action;
use qo_core::{Payload, QueueName, Submission, Task, TaskId, TaskType, Timestamp, WorkerId};
use tokio::sync::oneshot;

use qo_engine::EngineError;
use qo_engine::api::{Stats, SubmitRequest, Submitted, TaskFilter};

/// One caller's wish. A caller that goes away before it was taken in leaves nothing; afterwards it is carried out whole.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) ask: Ask,
    /// Nothing, for what the loop wishes itself.
    pub(super) reply: Option<oneshot::Sender<Answer>>,
    /// What was looked up for it beyond the state and is not there.
    pub(super) absent: Absent,
}

/// What a journal that keeps more than the state was asked for, and does not have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Absent {
    pub(super) id: bool,
    pub(super) key: bool,
    /// The task that the key stands for, while it is being looked up.
    pub(super) holder: Option<TaskId>,
}

impl Entry {
    pub(super) fn new(ask: Ask, reply: oneshot::Sender<Answer>) -> Self {
        Self {
            ask,
            reply: Some(reply),
            absent: Absent::default(),
        }
    }

    /// Something that nobody waits for.
    pub(super) fn unasked(ask: Ask) -> Self {
        Self {
            ask,
            reply: None,
            absent: Absent::default(),
        }
    }

    /// Whether the caller has gone.
    pub(super) fn is_given_up(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Tells the caller. Gives the answer back if the caller has gone.
    pub(super) fn answer(self, answer: Answer) -> Result<(), Answer> {
        match self.reply {
            Some(reply) => reply.send(answer),
            None => Ok(()),
        }
    }

    /// Tells the caller that it could not be done.
    pub(super) fn refuse(self, error: &EngineError) {
        let answer = self.ask.refusal(error);
        // Whoever has gone need not be told.
        let _ = self.answer(answer);
    }
}

/// What is wished.
#[derive(Debug)]
pub(super) enum Ask {
    Submit(Vec<Submit>),
    Claim(Wish),
    Act {
        id: TaskId,
        action: Action,
    },
    /// The same for many, each on its own. Only tasks that the state holds can be meant.
    Acts(Vec<(TaskId, Action)>),
    SetPaused {
        queue: QueueName,
        paused: bool,
    },
    Purge(TaskId),
    Get(TaskId),
    List(ListAsk),
    Stats,
    /// Put right what the dead left behind, and take in what others wrote.
    Tend,
    Close,
}

/// A task to be.
#[derive(Debug)]
pub(super) struct Submit {
    pub(super) id: TaskId,
    /// Whether the caller chose the id, so that there may be such a task.
    pub(super) id_is_chosen: bool,
    pub(super) request: SubmitRequest,
    pub(super) input: Payload,
}

impl Submit {
    pub(super) fn submission(&self, now: Timestamp) -> Submission {
        self.request
            .clone()
            .into_submission(self.id, self.input.clone(), now)
    }
}

/// A wish for work.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) worker: WorkerId,
    pub(super) queues: Vec<QueueName>,
    pub(super) types: Vec<TaskType>,
    pub(super) max: usize,
    pub(super) lease_ms: u64,
    /// Until when to wait for the first task, in the runtime's monotonic time.
    pub(super) until: Duration,
}

/// A part of the list of tasks.
#[derive(Debug)]
pub(super) struct ListAsk {
    pub(super) filter: TaskFilter,
    pub(super) after: Option<TaskId>,
    pub(super) limit: usize,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Answer {
    Submitted(Vec<Result<Taken, EngineError>>),
    Tasks(Result<Vec<Arc<Task>>, EngineError>),
    Task(Result<Arc<Task>, EngineError>),
    Each(Vec<Result<Arc<Task>, EngineError>>),
    Listed(Result<Listed, EngineError>),
    Stats(Result<Box<Stats>, EngineError>),
    Done(Result<(), EngineError>),
}

/// A task that was submitted, now or before.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) task: Arc<Task>,
    pub(super) duplicate: bool,
}

impl Taken {
    /// What the caller is told. A copy is made here, beside the loop, if the state has the task too.
    pub(super) fn told(self) -> Submitted {
        Submitted {
            task: Arc::unwrap_or_clone(self.task),
            duplicate: self.duplicate,
        }
    }
}

/// A part of the list of tasks.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) tasks: Vec<Task>,
    /// The last task that was looked at, if there may be more behind it.
    pub(super) last: Option<TaskId>,
}

impl Ask {
    /// The answer to this wish if it could not be carried out.
    pub(super) fn refusal(&self, error: &EngineError) -> Answer {
        let error = error.clone();
        match self {
            Self::Submit(submits) => {
                Answer::Submitted(submits.iter().map(|_| Err(error.clone())).collect())
            }
            Self::Claim(_) => Answer::Tasks(Err(error)),
            Self::Acts(acts) => Answer::Each(acts.iter().map(|_| Err(error.clone())).collect()),
            Self::Act { .. } | Self::Get(_) | Self::Purge(_) => Answer::Task(Err(error)),
            Self::List(_) => Answer::Listed(Err(error)),
            Self::Stats => Answer::Stats(Err(error)),
            Self::SetPaused { .. } | Self::Tend | Self::Close => Answer::Done(Err(error)),
        }
    }

    /// The task that this wish is about, if it is about one.
    pub(super) fn task_id(&self) -> Option<TaskId> {
        match self {
            Self::Submit(submits) => submits.first().map(|submit| submit.id),
            Self::Act { id, .. } | Self::Get(id) | Self::Purge(id) => Some(*id),
            _ => None,
        }
    }
}
