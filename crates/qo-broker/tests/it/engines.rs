//! Engines of both journals, and the steps that most tests take.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use qo_broker::BrokerEngine;
use qo_broker::{BrokerConfig, JsonConfig, SlateConfig};
use qo_core::{Json, LeaseId, Task};
use qo_engine::api::{ClaimRequest, SubmitRequest, TaskFilter, TaskQuery};
use qo_engine::{Engine, EngineError};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;

/// How long anything may take on a busy machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Journal {
    Json,
    Slate,
}

impl Journal {
    pub(crate) const BOTH: [Self; 2] = [Self::Json, Self::Slate];

    pub(crate) async fn open(
        self,
        objects: Arc<dyn ObjectStore>,
        runtime: &Arc<dyn Runtime>,
    ) -> Result<BrokerEngine, EngineError> {
        let clock = Arc::new(StoreClock::new());
        let (runtime, client) = (Arc::clone(runtime), ClientConfig::default());
        let mut state = BrokerConfig::default();
        // Leases expire only in tests that set a shorter time.
        state.lease_ms = 600_000;
        match self {
            Self::Json => {
                let mut config = JsonConfig::local();
                config.state = state;
                Ok(BrokerEngine::json(objects, clock, runtime, client, config))
            }
            Self::Slate => {
                let mut config = SlateConfig::default();
                config.state = state;
                BrokerEngine::slate(objects, clock, runtime, client, config).await
            }
        }
    }
}

pub(crate) fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

pub(crate) fn job(task_type: &str) -> SubmitRequest {
    SubmitRequest::new(task_type.parse().unwrap(), json("{\"n\":1}"))
}

pub(crate) fn claim_request(task_type: &str, max: usize, wait_ms: u64) -> ClaimRequest {
    ClaimRequest {
        max,
        wait_ms,
        ..ClaimRequest::new("w-1".parse().unwrap(), vec![task_type.parse().unwrap()])
    }
}

/// Claims the only task of a type.
pub(crate) async fn claim_one(engine: &dyn Engine, task_type: &str) -> (Task, LeaseId) {
    let mut tasks = engine
        .claim(&claim_request(task_type, 1, 30_000))
        .await
        .unwrap();
    let task = tasks.pop().expect("a task can be claimed");
    let lease = task.lease_id.unwrap();
    (task, lease)
}

/// All tasks with archived ones, in the order of their ids.
pub(crate) async fn all_tasks(engine: &dyn Engine) -> Vec<Task> {
    let filter = TaskFilter {
        statuses: qo_core::Status::ALL.to_vec(),
        ..TaskFilter::default()
    };
    let mut tasks = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = engine
            .list(TaskQuery::first(&filter, 100).at(cursor.as_deref()))
            .await
            .unwrap();
        tasks.extend(page.tasks);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return tasks,
        }
    }
}
