//! Checks the promises after a run, by [`qo_check`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use qo_check::{
    Breaches, CallLog, Conditions, Excuse, History, Promise, direct_versions, left_over_keys,
};
use qo_core::keys::QUARANTINE_PREFIX;
use qo_core::task::decode;
use qo_core::webhook::delivery::is_delivery;
use qo_core::{DocumentKind, Limit, Task, Webhook, WebhookRules};
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::DocumentQuery;

use super::bucket::Bucket;

/// What a run may show beside the promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tolerance {
    /// No process died or gave up, except for [`VICTIM`]: every attempt was handed out, and no other lease expired.
    None,
    /// As before, and processes have wrong clocks.
    WrongClocks,
    /// Processes died or gave up: their leases may have expired.
    Deaths,
}

/// The name of a process that a program kills itself.
pub(super) const VICTIM: &str = "victim";

/// How long a purge takes here at most.
const PURGE_MAX: Duration = Duration::from_mins(1);

/// Checks everything.
pub(super) async fn check(
    bucket: &Bucket,
    log: &CallLog,
    engine: &DirectEngine,
    tolerance: Tolerance,
) -> Breaches {
    let mut versions = direct_versions(bucket.versions());
    // Nobody calls for deliveries, so the history of calls does not explain them. The ends of tasks do.
    let deliveries: BTreeMap<_, _> = versions
        .iter()
        .filter_map(|(id, versions)| {
            let last = versions.last()?.body.as_ref()?;
            let task = decode(last).ok()?;
            is_delivery(&task.task_type).then_some((*id, task))
        })
        .collect();
    versions.retain(|id, _| !deliveries.contains_key(id));
    let mut calls = log.calls();
    calls.retain(|call| call.task.is_none_or(|task| !deliveries.contains_key(&task)));
    let mut unreadable = Vec::new();
    for (id, versions) in &versions {
        let last = versions.last().and_then(|version| version.body.as_ref());
        let Some(task) = last.and_then(|body| decode(body).ok()) else {
            continue;
        };
        if let Err(error) = engine.input(&task).await {
            unreadable.push((*id, format!("its input is lost: {error}")));
        }
        if let Err(error) = engine.output(&task).await {
            unreadable.push((*id, format!("its output is lost: {error}")));
        }
    }
    let excuse = match tolerance {
        Tolerance::None | Tolerance::WrongClocks => Excuse::always(Some(VICTIM)),
        Tolerance::Deaths => Excuse::always(None),
    };
    let query = DocumentQuery::all(DocumentKind::Limits);
    let documents = engine.documents(&query).await.unwrap();
    let limits: Vec<_> = documents
        .into_iter()
        .map(|document| (document.id.name, Limit::read(&document.body).unwrap()))
        .collect();
    let checked = History {
        versions: &versions,
        calls: &calls,
        excuses: &[excuse],
        damaged: &BTreeSet::new(),
        unreadable: &unreadable,
        settings: None,
        limits: &limits,
        turns: None,
        webhooks: &WebhookRules::default(),
        conditions: Conditions {
            punctual: tolerance != Tolerance::WrongClocks,
            renewals_once: true,
            claims_answered: tolerance != Tolerance::Deaths,
            purge_max: PURGE_MAX,
            ..Conditions::strict()
        },
    }
    .check();
    let mut breaches = checked.breaches;
    let lives = checked.lives.into_iter();
    let mut tasks: BTreeMap<_, _> = lives
        .filter_map(|(id, life)| Some((id, life.last?)))
        .collect();
    tasks.extend(deliveries);
    for text in undelivered(engine, tasks.values()).await {
        breaches.add(Promise::Run, text);
    }
    let keys = bucket.keys().await;
    let quarantined = keys
        .iter()
        .filter(|key| key.starts_with(QUARANTINE_PREFIX))
        .cloned();
    let left_over = left_over_keys(keys.clone(), &tasks);
    for key in left_over.into_iter().chain(quarantined) {
        breaches.add(Promise::LeftOver, format!("{key} is left over"));
    }
    if checked.undecided > 0 {
        let text = format!("{} searches for an order gave up", checked.undecided);
        breaches.add(Promise::Run, text);
    }
    breaches
}

/// The ends of tasks that the webhooks in the bucket are not notified of, and deliveries that nothing explains.
async fn undelivered<'a>(
    engine: &DirectEngine,
    tasks: impl Iterator<Item = &'a Task>,
) -> Vec<String> {
    let query = DocumentQuery::all(DocumentKind::Webhooks);
    let documents = engine.documents(&query).await.unwrap().into_iter();
    let rules: WebhookRules = documents
        .map(|document| (document.id.name, Webhook::read(&document.body).unwrap()))
        .collect();
    let (deliveries, tasks): (Vec<_>, Vec<_>) =
        tasks.partition(|task| is_delivery(&task.task_type));
    let mut unexplained: BTreeSet<_> = deliveries.iter().map(|task| task.id).collect();
    let mut wrong = Vec::new();
    for task in tasks {
        for delivery in rules.deliveries(task) {
            if !unexplained.remove(&delivery.id) {
                wrong.push(format!("the end of {} is not delivered", task.id));
            }
        }
    }
    let unexplained = unexplained.into_iter();
    wrong.extend(unexplained.map(|id| format!("nothing explains the delivery {id}")));
    wrong
}
