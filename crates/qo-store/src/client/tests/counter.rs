//! The property behind all rules: under any loss, delay or duplication, a successful write is applied once and a
//! refused one never.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::memory::InMemory;
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde::{Deserialize, Serialize};

use super::*;
use crate::client::RetryConfig;
use crate::client::testing::Fault;
use crate::error::StoreError;
use crate::runtime::RuntimeExt;
use crate::wrap::testing::in_paused_time;
use crate::wrap::{Delay, FaultKind, FaultPlan, FaultRule, FaultStore, LatencyStore};

/// A counter that records every operation applied to it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counter {
    revision: u64,
    op_id: Option<OpId>,
    recent_ops: Vec<OpId>,
}

impl Counter {
    fn increment(mut self, op: OpId) -> Bytes {
        self.revision += 1;
        self.recent_ops.extend(self.op_id.replace(op));
        serde_json::to_vec(&self).unwrap().into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IncrementResult {
    Success,
    InDoubt,
    NotApplied,
}

/// Draws the fault of the next request, if any.
fn draw(runtime: &dyn Runtime, call: &str, faults_percent: u64) -> Fault {
    if runtime.random_below(100) >= faults_percent {
        return Fault::None;
    }
    let delay = Duration::from_millis(runtime.random_below(400));
    let applied = runtime.random_below(2) == 0;
    match (call, runtime.random_below(9)) {
        ("GET", 0..=2) => Fault::Torn,
        (_, 0) => Fault::LostRequest,
        (_, 1) => Fault::LostResponse,
        // Some arrive before the client gives up, some long after.
        (_, 2) => Fault::Late(delay * 10),
        (_, 3) => Fault::Late(delay * 200),
        (_, 4) => Fault::Twice(delay),
        (_, 5) => Fault::Status(409, "ConditionalRequestConflict", false),
        (_, 6) => Fault::Status(500, "InternalError", applied),
        (_, 7) => Fault::Status(503, if applied { "" } else { "SlowDown" }, applied),
        _ => Fault::Hang(applied),
    }
}

/// Increments the counter, retrying after every conflict with the same operation id.
async fn increment(client: &StoreClient, op: OpId) -> IncrementResult {
    loop {
        let written = match client.get(KEY).await {
            Ok(object) => {
                let counter: Counter = serde_json::from_slice(&object.body).unwrap();
                client
                    .swap(KEY, counter.increment(op), &object.tag, &op)
                    .await
            }
            Err(StoreError::NotFound { .. }) => {
                client
                    .create(KEY, Counter::default().increment(op), &op)
                    .await
            }
            Err(_) => return IncrementResult::NotApplied,
        };
        match written {
            Ok(_) => return IncrementResult::Success,
            Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => {}
            Err(StoreError::Unavailable { in_doubt: true, .. }) => return IncrementResult::InDoubt,
            Err(_) => return IncrementResult::NotApplied,
        }
    }
}

/// A store with faults that can be turned off.
struct Breakable {
    store: Arc<dyn ObjectStore>,
    calm: Box<dyn Fn()>,
    repeats_requests: bool,
}

/// The scripted store with faults drawn here.
fn drawn(runtime: &Arc<dyn Runtime>, faults_percent: u64) -> Breakable {
    let calm = Arc::new(AtomicBool::new(false));
    let choose = {
        let (runtime, calm) = (Arc::clone(runtime), Arc::clone(&calm));
        move |call: &'static str| {
            if calm.load(Ordering::Relaxed) {
                return Fault::None;
            }
            draw(runtime.as_ref(), call, faults_percent)
        }
    };
    let store = ScriptedStore::choosing(
        Arc::clone(runtime),
        Duration::from_millis(20),
        Box::new(choose),
    );
    Breakable {
        store: Arc::new(store),
        calm: Box::new(move || calm.store(true, Ordering::Relaxed)),
        repeats_requests: false,
    }
}

/// The fault and latency wrappers.
fn wrapped(
    runtime: &Arc<dyn Runtime>,
    seed: u64,
    faults_percent: u64,
    repeats_requests: bool,
) -> Breakable {
    let mut kinds = FaultKind::TRANSIENT.to_vec();
    kinds.extend([FaultKind::Unavailable, FaultKind::TornRead]);
    if !repeats_requests {
        kinds.retain(|kind| *kind != FaultKind::DuplicateApply);
    }
    #[expect(clippy::cast_precision_loss, reason = "both are small")]
    let rate = faults_percent as f64 / 100.0 / kinds.len() as f64;
    let none = FaultPlan {
        late_apply_max: Duration::from_mins(1),
        ..FaultPlan::none()
    };
    let plan = kinds
        .into_iter()
        .fold(none, |plan, kind| plan.with(FaultRule::new(kind, rate)));
    let slow = LatencyStore::new(
        Arc::new(InMemory::new()),
        Arc::clone(runtime),
        Delay::Uniform {
            low: Duration::ZERO,
            high: Duration::from_millis(20),
        },
        seed,
    );
    let faults = Arc::new(FaultStore::new(
        Arc::new(slow),
        Arc::clone(runtime),
        plan,
        seed,
    ));
    Breakable {
        store: Arc::clone(&faults) as Arc<dyn ObjectStore>,
        calm: Box::new(move || faults.set_plan(FaultPlan::none())),
        repeats_requests,
    }
}

/// The size of a race.
#[derive(Debug, Clone, Copy)]
struct Size {
    clients: u64,
    increments: u64,
    faults_percent: u64,
    /// A client that gives up earlier leaves more writes in doubt.
    attempts_max: u32,
}

fn sizes() -> impl Strategy<Value = Size> {
    (1_u64..6, 1_u64..5, 0_u64..80, 1_u32..13).prop_map(
        |(clients, increments, faults_percent, attempts_max)| Size {
            clients,
            increments,
            faults_percent,
            attempts_max,
        },
    )
}

async fn race(
    runtime: Arc<dyn Runtime>,
    breakable: Breakable,
    size: Size,
) -> Result<(), TestCaseError> {
    let client = StoreClient::new(
        breakable.store,
        Arc::new(StoreClock::new()),
        Arc::clone(&runtime),
        ClientConfig {
            trust_first_refusal: !breakable.repeats_requests,
            retry: RetryConfig {
                attempts_max: size.attempts_max,
                ..RetryConfig::default()
            },
            ..ClientConfig::default()
        },
    );
    let outcomes = futures_util::future::join_all((0..size.clients).map(|_| {
        let (client, runtime) = (client.clone(), Arc::clone(&runtime));
        async move {
            let mut outcomes = Vec::new();
            for _ in 0..size.increments {
                let op = runtime.new_op_id();
                outcomes.push((op, increment(&client, op).await));
            }
            outcomes
        }
    }))
    .await;
    let outcomes: BTreeMap<_, _> = outcomes.into_iter().flatten().collect();

    // Everything in flight arrives, and then the faults stop.
    runtime.sleep(Duration::from_mins(5)).await;
    (breakable.calm)();
    let counter: Counter = match client.get(KEY).await {
        Ok(object) => serde_json::from_slice(&object.body).unwrap(),
        Err(StoreError::NotFound { .. }) => Counter::default(),
        Err(error) => return Err(TestCaseError::fail(error.to_string())),
    };
    let applied: Vec<_> = counter
        .recent_ops
        .iter()
        .chain(&counter.op_id)
        .copied()
        .collect();
    let distinct: BTreeSet<_> = applied.iter().copied().collect();
    prop_assert_eq!(
        distinct.len(),
        applied.len(),
        "an operation was applied twice"
    );
    prop_assert_eq!(counter.revision, applied.len() as u64);
    for (op, outcome) in &outcomes {
        match outcome {
            IncrementResult::Success => {
                prop_assert!(distinct.contains(op), "a successful increment was lost");
            }
            IncrementResult::NotApplied => {
                prop_assert!(!distinct.contains(op), "a failed increment was applied");
            }
            IncrementResult::InDoubt => {}
        }
    }
    let successes = outcomes
        .values()
        .filter(|o| **o == IncrementResult::Success)
        .count();
    if size.faults_percent == 0 {
        prop_assert_eq!(successes as u64, size.clients * size.increments);
    }
    Ok(())
}

/// Runs one case in a runtime of its own with paused time.
fn run_case(
    seed: u64,
    break_it: impl FnOnce(&Arc<dyn Runtime>) -> Breakable,
    size: Size,
) -> Result<(), TestCaseError> {
    in_paused_time(async {
        let runtime: Arc<dyn Runtime> = Arc::new(PausableRuntime::new(seed));
        let breakable = break_it(&runtime);
        race(runtime, breakable, size).await
    })
}

proptest! {
    #![proptest_config(Config { cases: 2_000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_success_is_applied_once_and_a_refusal_never(seed in any::<u64>(), size in sizes()) {
        run_case(seed, |runtime| drawn(runtime, size.faults_percent), size)?;
    }

    #[test]
    fn the_same_holds_with_the_fault_wrapper(
        seed in any::<u64>(),
        size in sizes(),
        repeats_requests in any::<bool>(),
    ) {
        let break_it = |runtime: &_| wrapped(runtime, seed, size.faults_percent, repeats_requests);
        run_case(seed, break_it, size)?;
    }
}
