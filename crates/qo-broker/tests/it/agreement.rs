//! The same events give the same final state in every mode.

use std::sync::Arc;

use qo_core::transition::{Failure, FailureKind};
use qo_core::{LeaseId, Status, Task, TaskId};
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::SubmitRequest;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, TokioRuntime};

use super::engines::{Journal, claim_request, job, json, memory};

const TASKS: usize = 5;
const STEPS: usize = 60;

/// A small generator, so that every engine is given the same steps.
struct Steps(u64);

impl Steps {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Everything that must be equal: all fields but times, operations and leases.
fn essence(task: &Task) -> String {
    let events: Vec<_> = task
        .events
        .iter()
        .map(|event| (event.from, event.to, event.attempt, event.error.clone()))
        .collect();
    format!(
        "{} {} {} {} {:?} {:?} {:?} {} {:?}",
        task.task_type,
        task.status,
        task.attempt,
        task.retry_count,
        task.last_error,
        task.output(),
        task.worker_id,
        task.cancel_requested,
        events
    )
}

/// Takes the same steps in any engine. Returns the result of each step and the final tasks.
async fn play(engine: &dyn Engine, runtime: &dyn Runtime, seed: u64) -> Vec<String> {
    let mut steps = Steps(seed);
    let mut log = Vec::new();
    let mut ids: Vec<TaskId> = Vec::new();
    let mut leases: Vec<LeaseId> = Vec::new();
    for n in 0..TASKS {
        // Each task has its own type, so that a claim selects it.
        let mut request = SubmitRequest {
            max_retries: Some(2),
            ..job(&format!("type-{n}"))
        };
        request.retry_policy.initial_interval_ms = 0;
        request.retry_policy.max_interval_ms = 0;
        let task = engine.submit(request).await.unwrap().task;
        ids.push(task.id);
        leases.push(LeaseId::from(*task.id.as_uuid()));
    }
    for _ in 0..STEPS {
        let n = usize::try_from(steps.below(TASKS as u64)).unwrap();
        let (id, lease) = (ids[n], leases[n]);
        let result = match steps.below(11) {
            0..=2 => {
                let pending = engine.get(id).await.unwrap().status == Status::Pending;
                let wait_ms = if pending { 10_000 } else { 0 };
                let claim = claim_request(&format!("type-{n}"), 1, wait_ms);
                let claimed = engine.claim(&claim).await.unwrap().pop();
                if let Some(task) = &claimed {
                    leases[n] = task.lease_id.unwrap();
                }
                log.push(format!(
                    "claim {}",
                    claimed.as_ref().map_or("-".into(), essence)
                ));
                continue;
            }
            3 => engine.complete(id, lease, Some(json("{\"ok\":1}"))).await,
            kind @ 4..=5 => {
                let failure = Failure {
                    kind: if kind == 4 {
                        FailureKind::Retryable
                    } else {
                        FailureKind::Permanent
                    },
                    error: "did not work".into(),
                };
                engine.fail(id, lease, failure).await
            }
            6 => engine.release(id, lease).await,
            7 => engine.cancel(id, Some("enough".to_owned())).await,
            8 => engine.replay(id).await,
            9 => engine.archive(id).await,
            _ => engine.unarchive(id).await,
        };
        log.push(match result {
            Ok(task) => essence(&task),
            Err(error) => {
                // An error contains the lease id, which differs between engines.
                let text = error.to_string();
                text.replace(&lease.to_string(), "L")
            }
        });
        // Tasks that become due in the same millisecond would be claimed in an undefined order.
        runtime.sleep(std::time::Duration::from_millis(2)).await;
    }
    for id in ids {
        log.push(essence(&engine.get(id).await.unwrap()));
    }
    engine.close().await;
    log
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_events_give_the_same_state_in_every_mode() {
    let runtime = TokioRuntime::shared();
    for seed in 0..6 {
        let client = StoreClient::new(
            memory(),
            Arc::new(StoreClock::new()),
            Arc::clone(&runtime),
            ClientConfig::default(),
        );
        let objects = DirectEngine::new(client, None, Arc::clone(&runtime), DirectConfig::local());
        let expected = play(&objects, runtime.as_ref(), seed).await;
        for journal in Journal::BOTH {
            let engine = journal.open(memory(), &runtime).await.unwrap();
            let found = play(&engine, runtime.as_ref(), seed).await;
            for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{journal:?}, seed {seed}, step {step}");
            }
            assert_eq!(found.len(), expected.len());
        }
    }
}
