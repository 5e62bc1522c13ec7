//! Requests per task with and without each feature: ordering keys, a limit, groups, idempotency keys.

use std::time::Duration;

use futures_util::StreamExt;
use qo_core::task::{IdempotencyScope, KeyHold, OnFailure, OrderingRule};
use qo_core::{DocumentId, DocumentKind, Json};
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::{DocumentWrite, IdempotencyRequest, SubmitRequest};
use qo_fixtures::{BenchmarkArgs, Report};
use qo_store::runtime::{RuntimeExt, TokioRuntime};

use crate::load::{Backing, Figures, Load, request};

/// What the tasks of a load have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Nothing; submitted in batches.
    Batched,
    /// Nothing; submitted one by one.
    Plain,
    /// One of many ordering keys; submitted one by one.
    Ordered,
    /// A limit that all of them share; submitted one by one.
    Limited,
    /// One of many groups; submitted one by one.
    Grouped,
    /// An idempotency key that is held until the task is finished; submitted one by one.
    Unique,
}

/// The number of ordering keys.
const KEYS: usize = 200;
/// The number of groups.
const GROUPS: usize = 200;
/// The number of submits at a time.
const SUBMITS: usize = 32;
/// The limit. All slots of the workers fit, also those of claims that are lost, so that only its cost is measured.
const LIMIT: &str = r#"{"queue":"default","concurrent":1000}"#;

impl Feature {
    /// Prepares a bucket, with an engine whose requests are not counted.
    pub(crate) async fn prepare(self, engine: &DirectEngine) {
        if self != Self::Limited {
            return;
        }
        let id = DocumentId {
            kind: DocumentKind::Limits,
            name: "all".parse().unwrap(),
        };
        let op = TokioRuntime::shared().new_op_id();
        let body = Some(Json::parse(LIMIT).unwrap());
        let write = DocumentWrite::new(id, None, body, op);
        engine.write_document(write).await.unwrap();
        engine.close().await;
    }

    /// Submits tasks one by one, some at a time.
    pub(crate) async fn submit(self, engine: &DirectEngine, count: usize) {
        futures_util::stream::iter(0..count)
            .for_each_concurrent(SUBMITS, |number| async move {
                engine.submit(self.request(number)).await.unwrap();
            })
            .await;
    }

    fn request(self, number: usize) -> SubmitRequest {
        let mut request = request(1_024);
        match self {
            Self::Ordered => {
                request.ordering = Some(OrderingRule {
                    key: format!("account-{}", number % KEYS).parse().unwrap(),
                    on_failure: OnFailure::Continue,
                });
            }
            Self::Grouped => {
                let group = format!("tenant-{}", number % GROUPS);
                request.fairness_group = Some(group.parse().unwrap());
            }
            Self::Unique => {
                // Each task has a key of its own: a submit that finds a key held makes no task.
                request.idempotency = Some(IdempotencyRequest {
                    key: format!("index/{number}").parse().unwrap(),
                    scope: IdempotencyScope::Queue,
                    window_ms: None,
                });
                request.uniqueness.hold = KeyHold::Unfinished;
            }
            Self::Batched | Self::Plain | Self::Limited => {}
        }
        request
    }
}

/// The features that have a scenario, with its name.
const SCENARIOS: [(&str, Feature); 4] = [
    ("ordered", Feature::Ordered),
    ("limited", Feature::Limited),
    ("groups", Feature::Grouped),
    ("unique", Feature::Unique),
];

/// Measures each wanted feature beside its absence, with one worker and with four.
pub(crate) async fn run(report: &mut Report, args: &BenchmarkArgs) {
    let features = SCENARIOS
        .into_iter()
        .filter(|(name, _)| args.includes(name));
    let features: Vec<_> = features.collect();
    let Some((first, _)) = features.first() else {
        return;
    };
    for workers in [1, 4] {
        let load = |feature| Load {
            tasks: 2_000,
            workers,
            slots: 64 / workers,
            latency: Some(Duration::from_millis(30)),
            finished: 0,
            backing: Backing::Memory,
            feature,
        };
        let plain = load(Feature::Plain).run().await;
        add(
            report,
            first,
            &format!("{workers} workers, without"),
            &plain,
        );
        for (scenario, feature) in &features {
            let with = load(*feature).run().await;
            add(
                report,
                scenario,
                &format!("{workers} workers, {scenario}"),
                &with,
            );
        }
    }
}

fn add(report: &mut Report, scenario: &'static str, what: &str, figures: &Figures) {
    let rows = [
        ("PUT a task", figures.puts),
        ("GET a task", figures.gets),
        ("LIST a task", figures.lists),
        ("dollars a million tasks", figures.dollars_per_million),
        ("tasks a second, claim to completed", figures.rate),
    ];
    for (name, value) in rows {
        report.figure(scenario, &format!("{what}: {name}"), value, "");
    }
}
