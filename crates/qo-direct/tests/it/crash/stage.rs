//! The stage of a program: a process whose requests fail, and common first steps.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use qo_check::CallLog;
use qo_core::{Json, Status, Task, TaskId};
use qo_engine::api::{IdempotencyRequest, SubmitRequest};
use qo_engine::{Engine, EngineError};
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::wrap::{Delay, FaultPlan};

use super::bucket::Bucket;
use super::process::{Process, Setting};

/// An unexpected result of a program.
#[derive(Debug)]
pub(super) struct Unexpected(pub(super) String);

impl From<EngineError> for Unexpected {
    fn from(error: EngineError) -> Self {
        Self(error.to_string())
    }
}

pub(super) type ProgramResult = Result<(), Unexpected>;

/// The state of a program.
pub(super) struct Stage {
    pub(super) bucket: Arc<Bucket>,
    pub(super) log: CallLog,
    /// The process whose requests fail.
    pub(super) actor: Process,
    pub(super) plan: FaultPlan,
    armed: Cell<bool>,
}

impl Stage {
    pub(super) fn new(
        bucket: Arc<Bucket>,
        plan: FaultPlan,
        delay: Option<Delay>,
        trusts_refusals: bool,
    ) -> Self {
        let log = CallLog::new(bucket.ticks.clone());
        let setting = Setting {
            delay,
            trusts_refusals,
            ..Setting::new("actor", 1)
        };
        let actor = Process::start(&bucket, &log, setting);
        Self {
            bucket,
            log,
            actor,
            plan,
            armed: Cell::new(false),
        }
    }

    /// Counts requests from here on, and injects the planned faults.
    pub(super) fn arm(&self) {
        self.actor.faults.set_plan(self.plan.clone());
        self.armed.set(true);
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.get()
    }

    /// Another process, without faults.
    pub(super) fn other(&self, name: &str, seed: u64) -> Process {
        Process::start(&self.bucket, &self.log, Setting::new(name, seed))
    }

    pub(super) fn request(&self) -> SubmitRequest {
        let mut request = SubmitRequest::new("job".parse().unwrap(), Json::parse("7").unwrap());
        request.id = Some(self.actor.runtime.new_task_id());
        request
    }

    pub(super) fn keyed(&self) -> SubmitRequest {
        let mut request = self.request();
        request.idempotency = Some(IdempotencyRequest {
            key: "order-7".parse().unwrap(),
            scope: qo_core::task::IdempotencyScope::Queue,
            window_ms: None,
        });
        request
    }

    pub(super) async fn submitted(&self) -> Result<TaskId, Unexpected> {
        Ok(self.actor.submit(self.request()).await?.task.id)
    }

    /// Submits and claims a task.
    pub(super) async fn claimed(&self) -> Result<Task, Unexpected> {
        self.submitted().await?;
        self.claim().await
    }

    /// Claims until there is a task.
    pub(super) async fn claim(&self) -> Result<Task, Unexpected> {
        for _ in 0..20 {
            if let Some(task) = self.actor.claim(1, 10_000).await?.pop() {
                return Ok(task);
            }
        }
        Err(Unexpected("nothing could be claimed".to_owned()))
    }

    /// Completes a task with a large input and a large output.
    pub(super) async fn completed(&self, request: SubmitRequest) -> Result<Task, Unexpected> {
        let request = SubmitRequest {
            input: large("in"),
            ..request
        };
        self.actor.submit(request).await?;
        let task = self.claim().await?;
        Ok(self.actor.complete(&task, large("out")).await?)
    }

    pub(super) async fn finished(&self) {
        self.actor.engine.close().await;
        self.actor.runtime.sleep(Duration::from_secs(3)).await;
    }
}

/// A payload that is too large for a record.
pub(super) fn large(mark: &str) -> Json {
    Json::parse(format!("\"{}\"", mark.repeat(40_000))).unwrap()
}

pub(super) fn small() -> Json {
    Json::parse("{\"done\":true}").unwrap()
}

pub(super) fn expect(holds: bool, what: impl fmt::Display) -> ProgramResult {
    if holds {
        Ok(())
    } else {
        Err(Unexpected(format!("expected {what}")))
    }
}

pub(super) fn expect_status(task: &Task, status: Status) -> ProgramResult {
    expect(
        task.status == status,
        format_args!("{status}, found {}", task.status),
    )
}
