//! Every planted bug is found, and a failure says what is needed to understand it.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use qo_broker::BrokerEngine;
use qo_broker::SlateConfig;
use qo_core::mutant::Mutant;
use qo_core::{Json, Status};
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_engine::{Engine, EngineError};
use qo_sim::campaign::{explain, run_seed};
use qo_sim::mutants::{Planted, SEEDS_MAX, from_name, hunt, name, of_engine};
use qo_sim::subject::{self, Subject};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::TokioRuntime;

/// For each engine and planted bug the first seed that finds it, as `cargo xtask sim --mutants` has told.
const FOUND_BY: &str = include_str!("../../mutants.txt");

fn subject(engine: &str) -> Arc<dyn Subject> {
    subject::from_name(engine).unwrap()
}

fn first_seed(engine: &str, mutant: Mutant) -> Option<u64> {
    FOUND_BY.lines().find_map(|line| {
        let (found, seed) = line.strip_prefix(engine)?.trim().split_once(' ')?;
        (from_name(found) == Some(mutant)).then(|| seed.trim().parse().unwrap())
    })
}

/// Looks where it was found the last time, and only then everywhere.
fn is_found(engine: &str, mutant: Mutant) -> bool {
    if let Some(seed) = first_seed(engine, mutant) {
        assert!(seed < SEEDS_MAX);
        let _planted = Planted::new(mutant);
        if !run_seed(seed, &subject(engine)).found.0.is_empty() {
            return true;
        }
    }
    let caught = hunt(mutant, &subject(engine), SEEDS_MAX);
    println!("{caught}");
    caught.by.is_some()
}

fn missed(engine: &str) -> Vec<String> {
    let mutants = of_engine(engine).into_iter();
    mutants
        .filter(|mutant| !is_found(engine, *mutant))
        .map(name)
        .collect()
}

#[test]
fn every_planted_bug_of_objects_is_found() {
    assert_eq!(missed("direct"), Vec::<String>::new());
}

#[test]
fn every_planted_bug_of_json_is_found() {
    assert_eq!(missed("json"), Vec::<String>::new());
}

#[test]
fn every_planted_bug_of_slate_is_found() {
    assert_eq!(missed("slate"), Vec::<String>::new());
}

async fn broker(objects: &Arc<dyn ObjectStore>) -> BrokerEngine {
    let (objects, clock) = (Arc::clone(objects), Arc::new(StoreClock::new()));
    let (client, config) = (ClientConfig::default(), SlateConfig::default());
    BrokerEngine::slate(objects, clock, TokioRuntime::shared(), client, config)
        .await
        .unwrap()
}

/// What a broker says of a task that another broker has ended since it took over.
async fn told_by_a_replaced_broker() -> Result<Status, EngineError> {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let old = broker(&objects).await;
    let work = SubmitRequest::new("work".parse().unwrap(), Json::null());
    let id = old.submit(work).await?.task.id;
    let wish = ClaimRequest::new("w".parse().unwrap(), vec!["work".parse().unwrap()]);
    let lease = old.claim(&wish).await?[0].lease_id.unwrap();
    let new = broker(&objects).await;
    assert_eq!(
        new.complete(id, lease, None).await.unwrap().status,
        Status::Completed
    );
    let told = old.get(id).await;
    old.close().await;
    new.close().await;
    told.map(|task| task.status)
}

/// On slate no seed of a hunt leads to it, so that it is led to by hand.
#[test]
fn a_replaced_broker_that_answers_unconfirmed_is_seen_on_slate() {
    // Everything on this thread, on which the bug is planted.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    let told = || runtime.block_on(told_by_a_replaced_broker());
    assert_eq!(told(), Err(EngineError::NotLeader));
    let _planted = Planted::new(Mutant::AnsweredUnconfirmed);
    // On a very busy machine the replaced one may have noticed by itself.
    assert!((0..10).any(|_| told() == Ok(Status::Running)));
}

#[test]
fn every_planted_bug_belongs_to_an_engine() {
    for mutant in Mutant::ALL {
        let mut subjects = subject::all().into_iter();
        assert!(
            subjects.any(|subject| of_engine(subject.name()).contains(&mutant)),
            "{mutant:?}"
        );
    }
}

#[test]
fn a_failure_is_shrunk_and_says_how_to_run_it_again() {
    let mutant = Mutant::DoubtReadAsFailure;
    let engine = "direct";
    let seed = first_seed(engine, mutant).unwrap();
    let _planted = Planted::new(mutant);
    let outcome = run_seed(seed, &subject(engine));
    let text = explain(&outcome, &subject(engine), Some(&name(mutant)));
    for part in [
        &format!("seed {seed}: "),
        "promise ",
        &format!(
            "run it again: cargo xtask sim --engine {engine} --seed {seed} --mutant doubt-read-as-failure"
        ),
        "shrunk to",
        "--only '",
        "its trace",
        " replies ",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let shrunk = text.split("--only '").nth(1).unwrap();
    let faults = shrunk.split('\'').next().unwrap().split(',').count();
    let before = outcome.struck.len();
    assert!(
        faults * 3 <= before,
        "{faults} of {before} faults are left:\n{text}"
    );
}
