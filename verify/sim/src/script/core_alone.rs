//! A script on the state machine alone, without an engine, a store or a clock.

use std::time::Duration;

use async_trait::async_trait;
use qo_core::queue_state::{Claim, CommandOutcome, Request, StateCommand};
use qo_core::transition::Action;
use qo_core::{
    Jitter, LeaseId, OpId, PauseNote, PauseTarget, Payload, QueueName, QueueState, Rejection, Task,
    TaskId, Timestamp,
};
use qo_engine::EngineError;
use qo_engine::api::SubmitRequest;

use super::steps::{LEASE_MS, Player, play};
use crate::sched::true_time;

/// The margin of the engines.
const LEASE_MARGIN_MS: u64 = 1_000;

struct CoreAlone {
    state: QueueState,
    now: Timestamp,
    commands: u128,
}

/// Plays the script of a seed on the core alone.
pub fn through_the_core(seed: u64) -> Vec<String> {
    let mut player = CoreAlone {
        state: QueueState::new(),
        now: true_time(Duration::ZERO),
        commands: 0,
    };
    let playing = play(&mut player, seed);
    // The player never waits.
    futures_util::FutureExt::now_or_never(playing).unwrap_or_default()
}

impl CoreAlone {
    fn command(&mut self, request: Request) -> CommandOutcome {
        self.commands += 1;
        let op = OpId::from_random(self.commands << 8);
        self.state.apply(StateCommand { op, request }, self.now).0
    }

    fn task(&self, id: TaskId) -> Result<Task, EngineError> {
        let task = self.state.task(id).cloned();
        task.ok_or_else(|| Rejection::NotFound { id }.into())
    }

    fn changed(&self, outcome: CommandOutcome, id: TaskId) -> Result<Task, EngineError> {
        match outcome {
            CommandOutcome::Rejected(rejection) => Err(rejection.into()),
            _ => self.task(id),
        }
    }
}

#[async_trait]
impl Player for CoreAlone {
    async fn wait_until(&mut self, at: Duration) {
        self.now = true_time(at);
    }

    async fn expire(&mut self) -> Result<(), EngineError> {
        self.command(Request::ExpireLeases {
            limit: 1_000,
            lease_margin_ms: LEASE_MARGIN_MS,
            jitter: Jitter::new(0),
        });
        Ok(())
    }

    async fn submit(&mut self, request: SubmitRequest) -> Result<Task, EngineError> {
        let now = self.now;
        let id = request.id.unwrap_or_else(|| TaskId::from_random(0));
        let input = Payload::Inline(request.input.clone());
        let mut submission = request.into_submission(id, input, now);
        submission.idempotency = None;
        let outcome = self.command(Request::Submit(Box::new(submission)));
        self.changed(outcome, id)
    }

    async fn claim(&mut self, task_type: &str) -> Result<Option<Task>, EngineError> {
        let queues = vec![QueueName::default()];
        if let Some(stopped) = self.state.pauses().stop_all(&queues, &[]) {
            return Err(stopped.into());
        }
        let (Ok(worker), Ok(task_type)) = ("caller".parse(), task_type.parse()) else {
            return Ok(None);
        };
        let claim = Claim {
            worker,
            queues,
            types: vec![task_type],
            leases: vec![LeaseId::from_random(self.commands << 8)],
            lease_ms: LEASE_MS,
        };
        match self.command(Request::Claim(claim)) {
            CommandOutcome::Claimed(claimed) => match claimed.first() {
                Some(claimed) => self.task(claimed.id).map(Some),
                None => Ok(None),
            },
            CommandOutcome::Rejected(rejection) => Err(rejection.into()),
            _ => Ok(None),
        }
    }

    async fn act(&mut self, id: TaskId, action: Action) -> Result<Task, EngineError> {
        let outcome = self.command(Request::Task { id, action });
        self.changed(outcome, id)
    }

    /// An engine archives a task before it removes it. Callers do not see this.
    async fn purge(&mut self, id: TaskId) -> Result<(), EngineError> {
        let task = self.task(id)?;
        if !task.status.is_terminal() {
            let status = task.status;
            let action = "purge";
            return Err(Rejection::WrongStatus { action, status }.into());
        }
        if task.stops_line() {
            return Err(Rejection::StopsLine { action: "purge" }.into());
        }
        self.command(Request::Purge(id));
        Ok(())
    }

    async fn set_paused(&mut self, paused: bool) -> Result<(), EngineError> {
        let queue = PauseTarget::Queue(QueueName::default());
        self.command(if paused {
            Request::Pause(queue, PauseNote::default())
        } else {
            Request::Resume(queue)
        });
        Ok(())
    }

    async fn get(&mut self, id: TaskId) -> Result<Task, EngineError> {
        self.task(id)
    }
}
