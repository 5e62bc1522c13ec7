//! What ordering keys and limits cost: the rate with them beside the rate without, in the same run.

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use qo_broker::BrokerEngine;
use qo_core::task::{OnFailure, OrderingRule};
use qo_core::{DocumentId, DocumentKind, Json};
use qo_engine::Engine;
use qo_engine::api::{DocumentWrite, SubmitRequest};
use qo_fixtures::Report;
use qo_store::runtime::RuntimeExt;

use crate::rig::{BenchRig, LATENCY, request, work};
use crate::touched::TouchedLayer;

const TASKS: usize = 200_000;
/// The number of ordering keys: each has two tasks.
const KEYS: usize = 100_000;
const BATCH: usize = 500;
const SUBMITTERS: usize = 16;
const WORKERS: usize = 32;
/// A limit of the queue that all tasks are in. The workers would claim more than it allows.
const LIMIT: &str = r#"{"queue":"default","concurrent":8000}"#;

/// What the tasks of a run have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    Plain,
    Keys,
    Limited,
}

/// Measures a feature beside its absence.
pub(crate) async fn run(report: &mut Report, scenario: &'static str, feature: Feature) {
    // Before and after, because the rate of a machine changes by the hour.
    let before = rate(Feature::Plain).await;
    let with = rate(feature).await;
    let after = rate(Feature::Plain).await;
    let plain = f64::midpoint(before, after);
    report.figure(scenario, "tasks a second without", plain, "");
    report.figure(scenario, "tasks a second with", with, "");
    let part = "the second as a part of the first";
    report.figure(scenario, part, with / plain, "at least 0.7");
}

async fn rate(feature: Feature) -> f64 {
    let rig = BenchRig::new(Arc::new(TouchedLayer::store_with_gib(2)), Some(LATENCY));
    let engine = rig.slate().await;
    if feature == Feature::Limited {
        let id = DocumentId {
            kind: DocumentKind::Limits,
            name: "all".parse().unwrap(),
        };
        let body = Some(Json::parse(LIMIT).unwrap());
        let write = DocumentWrite::new(id, None, body, rig.runtime.new_op_id());
        engine.write_document(write).await.unwrap();
    }
    // A first round lets caches fill and memory grow.
    let warm_up = 20_000;
    let submits = submit(&engine, warm_up, feature);
    futures_util::future::join(submits, work(&engine, WORKERS, warm_up)).await;
    let started = Instant::now();
    let submits = submit(&engine, TASKS, feature);
    futures_util::future::join(submits, work(&engine, WORKERS, TASKS)).await;
    let rate = TASKS as f64 / started.elapsed().as_secs_f64();
    engine.close().await;
    rate
}

async fn submit(engine: &BrokerEngine, count: usize, feature: Feature) {
    futures_util::stream::iter(0..count / BATCH)
        .for_each_concurrent(SUBMITTERS, |round| async move {
            let batch = (0..BATCH).map(|number| task(round * BATCH + number, feature));
            for submitted in engine.submit_many(batch.collect()).await {
                submitted.unwrap();
            }
        })
        .await;
}

fn task(number: usize, feature: Feature) -> SubmitRequest {
    let mut request = request(1_024);
    if feature == Feature::Keys {
        request.ordering = Some(OrderingRule {
            key: format!("account-{}", number % KEYS).parse().unwrap(),
            on_failure: OnFailure::Continue,
        });
    }
    request
}
