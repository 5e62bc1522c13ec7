//! What the planted bugs show beyond the hunt, as `verify/sim/tests/mutants.rs` of the copy that contains them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use qo_broker::{BrokerEngine, SlateConfig};
use qo_core::{Json, Status};
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_engine::{Engine, EngineError};
use qo_sim::campaign::{explain, run_seed};
use qo_sim::explore::steps::Mishap;
use qo_sim::explore::{rules, steps};
use qo_sim::mutants::Planted;
use qo_sim::subject::{self, Subject};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::TokioRuntime;

/// The seed that finds each planted bug: the engine, the bug and the seed.
const KNOWN_SEEDS: &str = include_str!("../mutants.txt");

fn direct() -> Arc<dyn Subject> {
    subject::from_name("direct").unwrap()
}

fn known_seed(engine: &str, mutant: &str) -> u64 {
    let start = format!("{engine} {mutant} ");
    let mut lines = KNOWN_SEEDS.lines();
    let seed = lines.find_map(|line| line.strip_prefix(&start)).unwrap();
    seed.trim().parse().unwrap()
}

#[test]
fn a_planted_bug_in_the_rules_is_found() {
    for mutant in [
        "unfenced-completion",
        "unfenced-renewal",
        "retries-without-end",
        "terminal-cancelled",
        "attempt-counted-at-failure",
        "lease-judged-by-minute",
    ] {
        let _planted = Planted::new(mutant).unwrap();
        let wrong = rules::explore(9).unwrap_err();
        println!("{mutant}: {wrong}");
    }
}

#[test]
fn a_planted_bug_in_the_steps_is_found() {
    let scope = steps::Scope {
        mishap: Mishap::Zombie,
        // Both workers are claiming, or have just claimed, when twelve requests have been served.
        skip: 12,
        depth: 6,
        runs_max: 20_000,
    };
    for mutant in ["unfenced-completion", "lease-expiry-uncounted"] {
        let _planted = Planted::new(mutant).unwrap();
        let wrong = steps::explore(&direct(), scope).unwrap_err();
        assert!(wrong.contains("after the choices"), "{wrong}");
    }
}

async fn broker(objects: &Arc<dyn ObjectStore>) -> BrokerEngine {
    let (objects, clock) = (Arc::clone(objects), Arc::new(StoreClock::new()));
    let (client, config) = (ClientConfig::default(), SlateConfig::default());
    BrokerEngine::slate(objects, clock, TokioRuntime::shared(), client, config)
        .await
        .unwrap()
}

/// The status that a broker reports of a task that its successor has completed.
async fn status_from_replaced_broker() -> Result<Status, EngineError> {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let old = broker(&objects).await;
    let work = SubmitRequest::new("work".parse().unwrap(), Json::null());
    let id = old.submit(work).await?.task.id;
    let request = ClaimRequest::new("w".parse().unwrap(), vec!["work".parse().unwrap()]);
    let lease = old.claim(&request).await?[0].lease_id.unwrap();
    let new = broker(&objects).await;
    assert_eq!(
        new.complete(id, lease, None).await.unwrap().status,
        Status::Completed
    );
    let found = old.get(id).await;
    old.close().await;
    new.close().await;
    found.map(|task| task.status)
}

/// On slate, replies wait for the writes before them, so only a broker without writes can send a stale one. No seed leads there.
#[test]
fn a_replaced_slate_broker_that_does_not_confirm_replies_is_seen() {
    // Everything runs on this thread, for which the bug is switched on.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    let status = || runtime.block_on(status_from_replaced_broker());
    assert_eq!(status(), Err(EngineError::NotLeader));
    let _planted = Planted::new("answered-unconfirmed").unwrap();
    // On a busy machine the replaced broker may notice its successor first.
    assert!((0..10).any(|_| status() == Ok(Status::Running)));
}

#[test]
fn a_failure_is_shrunk_and_says_how_to_run_it_again() {
    let mutant = "doubt-read-as-failure";
    let seed = known_seed("direct", mutant);
    let _planted = Planted::new(mutant).unwrap();
    let outcome = run_seed(seed, &direct());
    let text = explain(&outcome, &direct(), Some(mutant));
    for part in [
        &format!("seed {seed}: "),
        "promise ",
        &format!(
            "run it again: cargo xtask sim --engine direct --seed {seed} --mutant {mutant}"
        ),
        "shrunk to",
        "--only '",
        "its trace",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let trace = text.split("its trace").nth(1).unwrap();
    assert!(trace.lines().count() > 10, "{text}");
    let shrunk = text.split("--only '").nth(1).unwrap();
    let faults = shrunk.split('\'').next().unwrap().split(',').count();
    let before = outcome.struck.len();
    assert!(
        faults * 3 <= before,
        "{faults} of {before} faults are left:\n{text}"
    );
}
