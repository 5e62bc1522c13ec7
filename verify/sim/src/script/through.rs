//! A script on an engine, in the simulated runtime, without faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use qo_core::transition::Action;
use qo_core::{Payload, QueueName, Task, TaskId, WorkerId};
use qo_engine::EngineError;
use qo_engine::api::{ClaimRequest, SubmitRequest};

use super::steps::{LEASE_MS, Player, WAIT_MS, play};
use crate::plan::Plan;
use crate::run::Stage;
use crate::sched::{Scheduler, lock};
use crate::subject::{Running, Subject};

struct OnEngine {
    running: Running,
    scheduler: Scheduler,
}

/// Plays the script of a seed on an engine.
pub fn through(subject: &Arc<dyn Subject>, seed: u64) -> Vec<String> {
    let plan = Plan {
        faults: [].into(),
        latency_us: (100, 3_000),
        ..Plan::of(seed)
    };
    let stage = Stage::new(&plan, Arc::clone(subject), false);
    let scheduler = stage.scheduler().clone();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (main, written) = (Arc::clone(&stage), Arc::clone(&log));
    let played = scheduler.run(Box::pin(async move {
        let running = main.only_caller("caller").await;
        let scheduler = main.scheduler().clone();
        let mut player = OnEngine { running, scheduler };
        let lines = play(&mut player, seed).await;
        *lock(&written) = lines;
    }));
    let mut lines = std::mem::take(&mut *lock(&log));
    if let Err(stuck) = played {
        lines.push(format!("{stuck:?}"));
    }
    scheduler.finish();
    lines
}

#[async_trait]
impl Player for OnEngine {
    async fn wait_until(&mut self, at: Duration) {
        let left = at.saturating_sub(self.scheduler.elapsed());
        self.scheduler.sleep(left).await;
    }

    async fn expire(&mut self) -> Result<(), EngineError> {
        (self.running.tidy)().await
    }

    async fn submit(&mut self, request: SubmitRequest) -> Result<Task, EngineError> {
        let submitted = self.running.engine.submit(request).await?;
        Ok(submitted.task)
    }

    async fn claim(&mut self, task_type: &str) -> Result<Option<Task>, EngineError> {
        let (Ok(worker), Ok(task_type)) = ("caller".parse::<WorkerId>(), task_type.parse()) else {
            return Ok(None);
        };
        let mut request = ClaimRequest::new(worker, vec![task_type]);
        request.queues = vec![QueueName::default()];
        request.wait_ms = WAIT_MS;
        request.lease_ms = Some(LEASE_MS);
        Ok(self.running.engine.claim(&request).await?.pop())
    }

    async fn act(&mut self, id: TaskId, action: Action) -> Result<Task, EngineError> {
        let engine = &self.running.engine;
        match action {
            Action::Complete { lease, output } => {
                let output = output.and_then(|output| match output {
                    Payload::Inline(json) => Some(json),
                    Payload::Stored(_) => None,
                });
                engine.complete(id, lease, output).await
            }
            Action::Fail { lease, failure, .. } => engine.fail(id, lease, failure).await,
            Action::Release { lease } => engine.release(id, lease).await,
            Action::Snooze { lease, delay_ms } => engine.snooze(id, lease, delay_ms).await,
            Action::Renew { lease, lease_ms } => engine.renew(id, lease, Some(lease_ms)).await,
            Action::Progress { lease, report } => engine.progress(id, lease, report).await,
            Action::Cancel { reason } => engine.cancel(id, reason.map(String::from)).await,
            Action::Replay => engine.replay(id).await,
            Action::Redrive { to } => engine.redrive(id, to).await,
            Action::Archive => engine.archive(id).await,
            Action::Unarchive => engine.unarchive(id).await,
            Action::RunNow => engine.run_now(id).await,
            // Engines do these on their own. Scripts do not request them.
            Action::Claim { .. }
            | Action::Amend { .. }
            | Action::ExpireLease { .. }
            | Action::Expire
            | Action::Fence
            | Action::Logged { .. }
            | Action::By { .. } => Err(EngineError::Closed),
        }
    }

    async fn purge(&mut self, id: TaskId) -> Result<(), EngineError> {
        self.running.engine.purge(id).await
    }

    async fn set_paused(&mut self, paused: bool) -> Result<(), EngineError> {
        let queue = QueueName::default();
        if paused {
            self.running.engine.pause(&queue).await
        } else {
            self.running.engine.resume(&queue).await
        }
    }

    async fn get(&mut self, id: TaskId) -> Result<Task, EngineError> {
        self.running.engine.get(id).await
    }
}
