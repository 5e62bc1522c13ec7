//! What the programs play with: a process whose requests are struck, and the usual beginnings.

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

/// How a program ended otherwise than it should.
#[derive(Debug)]
pub(super) struct Surprise(pub(super) String);

impl From<EngineError> for Surprise {
    fn from(error: EngineError) -> Self {
        Self(error.to_string())
    }
}

pub(super) type Outcome = Result<(), Surprise>;

/// Everything that a program plays with.
pub(super) struct Stage {
    pub(super) bucket: Arc<Bucket>,
    pub(super) log: CallLog,
    /// The process whose requests are struck.
    pub(super) actor: Process,
    pub(super) plan: FaultPlan,
    armed: Cell<bool>,
}

impl Stage {
    pub(super) fn new(bucket: Arc<Bucket>, plan: FaultPlan, delay: Option<Delay>) -> Self {
        let log = CallLog::new(bucket.ticks.clone());
        let setting = Setting {
            delay,
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

    /// Counts requests from here on, and strikes as planned.
    pub(super) fn arm(&self) {
        self.actor.faults.set_plan(self.plan.clone());
        self.armed.set(true);
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.get()
    }

    /// Another process, whose requests are not struck.
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

    pub(super) async fn submitted(&self) -> Result<TaskId, Surprise> {
        Ok(self.actor.submit(self.request()).await?.task.id)
    }

    /// A task that the actor has claimed.
    pub(super) async fn claimed(&self) -> Result<Task, Surprise> {
        self.submitted().await?;
        self.claim().await
    }

    /// Claims one task, as a worker does that asks until it gets one.
    pub(super) async fn claim(&self) -> Result<Task, Surprise> {
        for _ in 0..20 {
            if let Some(task) = self.actor.claim(1, 10_000).await?.pop() {
                return Ok(task);
            }
        }
        Err(Surprise("nothing could be claimed".to_owned()))
    }

    /// A task that has been completed, with a large input and a large output.
    pub(super) async fn completed(&self, request: SubmitRequest) -> Result<Task, Surprise> {
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

/// A payload that does not fit into a record.
pub(super) fn large(mark: &str) -> Json {
    Json::parse(format!("\"{}\"", mark.repeat(40_000))).unwrap()
}

pub(super) fn small() -> Json {
    Json::parse("{\"done\":true}").unwrap()
}

pub(super) fn expect(holds: bool, what: impl fmt::Display) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(Surprise(format!("expected {what}")))
    }
}

pub(super) fn expect_status(task: &Task, status: Status) -> Outcome {
    expect(
        task.status == status,
        format_args!("{status}, found {}", task.status),
    )
}
