//! Stores that lose answers, lose requests, answer late, apply twice and refuse for no reason: every task exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::ObjectStore;
use qo_broker::BrokerEngine;
use qo_core::{Status, TaskId};
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_engine::{Engine, EngineError};
use qo_store::runtime::{Runtime, RuntimeExt, TokioRuntime};
use qo_store::wrap::{FaultKind, FaultPlan, FaultRule, FaultStore};

use super::place::{Journal, PATIENCE, all_tasks, job, memory, wish};

/// What a store does now and then that keeps its promises.
pub(super) fn plan(rate: f64) -> FaultPlan {
    [
        FaultKind::LostRequest,
        FaultKind::LostResponse,
        FaultKind::LateApply,
        FaultKind::DuplicateApply,
        FaultKind::Conflict,
        FaultKind::ErrorAfterApply,
        FaultKind::TornRead,
    ]
    .into_iter()
    .fold(FaultPlan::none(), |plan, kind| {
        plan.with(FaultRule::new(kind, rate))
    })
    .with(FaultRule::new(FaultKind::Unavailable, rate / 5.0))
}

/// What the callers were told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) submitted: BTreeSet<TaskId>,
    /// Each task's attempts that were told to be complete.
    pub(super) completed: BTreeMap<TaskId, Vec<u32>>,
    /// Attempts whose fate nobody was told.
    pub(super) in_doubt: BTreeSet<TaskId>,
}

/// Submits and works through one engine, trying again whatever is in doubt, until `count` tasks are done in all engines.
async fn bustle(engine: BrokerEngine, told: Arc<Mutex<Told>>, ids: Vec<TaskId>, count: usize) {
    let submits = async {
        for id in ids {
            let request = SubmitRequest {
                id: Some(id),
                ..job("a")
            };
            while let Err(error) = engine.submit(request.clone()).await {
                assert!(matches!(error, EngineError::Store(_)), "{error}");
            }
            told.lock().unwrap().submitted.insert(id);
        }
    };
    let works = async {
        while told.lock().unwrap().completed.len() < count {
            let claim = ClaimRequest {
                lease_ms: Some(120_000),
                ..wish("a", 3, 200)
            };
            let tasks = match engine.claim(&claim).await {
                Ok(tasks) => tasks,
                Err(EngineError::Store(_)) => continue,
                Err(error) => panic!("{error}"),
            };
            for task in tasks {
                let lease = task.lease_id.unwrap();
                match engine.complete(task.id, lease, None).await {
                    Ok(done) => {
                        assert_eq!(
                            (done.status, done.attempt),
                            (Status::Completed, task.attempt)
                        );
                        let mut told = told.lock().unwrap();
                        told.completed
                            .entry(task.id)
                            .or_default()
                            .push(task.attempt);
                    }
                    Err(EngineError::Store(_)) => {
                        told.lock().unwrap().in_doubt.insert(task.id);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    futures_util::future::join(submits, works).await;
}

pub(super) async fn check(engine: &BrokerEngine, told: &Told, expected: usize) {
    let tasks = all_tasks(engine).await;
    assert_eq!(tasks.len(), expected, "each task is there once");
    for task in &tasks {
        assert_eq!(task.status, Status::Completed, "{task:?}");
        assert!(told.submitted.contains(&task.id));
        let completions = told.completed.get(&task.id).map_or(&[][..], Vec::as_slice);
        assert!(completions.len() <= 1, "completed twice: {task:?}");
        if !told.in_doubt.contains(&task.id) {
            assert_eq!(completions, [task.attempt], "{task:?}");
        }
        let ends = task
            .events
            .iter()
            .filter(|event| event.to == Status::Completed);
        assert_eq!(ends.count(), 1, "{task:?}");
        let operations: BTreeSet<_> = task.events.iter().map(|event| event.op_id).collect();
        assert_eq!(
            operations.len(),
            task.events.len(),
            "nothing was applied twice"
        );
    }
}

/// Lets engines bustle on stores that fail, and looks at what came of it on one that does not.
async fn survives(journal: Journal, stores: Vec<Arc<FaultStore>>, bottom: Arc<dyn ObjectStore>) {
    const TASKS: usize = 40;
    let runtime = TokioRuntime::shared();
    let told = Arc::new(Mutex::new(Told::default()));
    let expected = TASKS * stores.len();
    let mut bustling = tokio::task::JoinSet::new();
    let mut engines = Vec::new();
    for store in &stores {
        let objects: Arc<dyn ObjectStore> = Arc::<FaultStore>::clone(store);
        let engine = journal.open(objects, &runtime).await.unwrap();
        let ids = (0..TASKS).map(|_| runtime.new_task_id()).collect();
        bustling.spawn(bustle(engine.clone(), Arc::clone(&told), ids, expected));
        engines.push(engine);
    }
    tokio::time::timeout(PATIENCE * 4, bustling.join_all())
        .await
        .expect("all tasks are done in the end");
    for engine in &engines {
        engine.close().await;
    }
    for store in &stores {
        store.set_plan(FaultPlan::none());
        assert!(!store.injected().is_empty(), "there were faults");
    }
    let witness = journal.open(bottom, &runtime).await.unwrap();
    let told = std::mem::take(&mut *told.lock().unwrap());
    check(&witness, &told, expected).await;
    witness.close().await;
}

fn faulty(bottom: Arc<dyn ObjectStore>, rate: f64, seed: u64) -> Arc<FaultStore> {
    Arc::new(FaultStore::new(
        bottom,
        TokioRuntime::shared(),
        plan(rate),
        seed,
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_engines_share_an_object_on_a_store_that_fails() {
    for seed in 0..2 {
        let bottom = memory();
        let stores = (0..2)
            .map(|n| faulty(Arc::clone(&bottom), 0.02, seed * 10 + n))
            .collect();
        survives(Journal::Json, stores, bottom).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slate_on_a_store_that_fails() {
    for seed in 0..2 {
        let bottom = memory();
        let stores = vec![faulty(Arc::clone(&bottom), 0.02, seed)];
        survives(Journal::Slate, stores, bottom).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_that_is_away_for_a_while_costs_nothing_but_time() {
    let runtime: Arc<dyn Runtime> = TokioRuntime::shared();
    let store = Arc::new(FaultStore::new(
        memory(),
        Arc::clone(&runtime),
        FaultPlan::none(),
        1,
    ));
    let objects: Arc<dyn ObjectStore> = Arc::<FaultStore>::clone(&store);
    let engine = Journal::Json.open(objects, &runtime).await.unwrap();
    let task = engine.submit(job("a")).await.unwrap().task;
    store.set_plan(FaultPlan::always(FaultKind::Unavailable));
    let comes_back = async {
        runtime.sleep(Duration::from_millis(500)).await;
        store.set_plan(FaultPlan::none());
    };
    let (submitted, ()) = futures_util::future::join(engine.submit(job("a")), comes_back).await;
    submitted.unwrap();
    assert_eq!(engine.get(task.id).await.unwrap().id, task.id);
    assert_eq!(all_tasks(&engine).await.len(), 2);
    engine.close().await;
}
