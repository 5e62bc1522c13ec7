//! Checks the promises after a run, by [`qo_check`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use qo_check::{
    Breaches, CallLog, Conditions, Excuse, History, Promise, StoredVersion, check_deliveries,
    direct_versions, left_over_keys, lives,
};
use qo_core::keys::QUARANTINE_PREFIX;
use qo_core::task::decode;
use qo_core::webhook::delivery::is_delivery;
use qo_core::{DocumentKind, Limit, Webhook, WebhookRules};
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
    // Nobody works on deliveries here, so they need not end, and nobody calls for them. The ends of tasks explain them.
    let deliveries: BTreeMap<_, _> = versions
        .extract_if(.., |_, versions| is_of_delivery(versions))
        .collect();
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
    let conditions = Conditions {
        punctual: tolerance != Tolerance::WrongClocks,
        renewals_once: true,
        claims_answered: tolerance != Tolerance::Deaths,
        purge_max: PURGE_MAX,
        delivers_with_end: false,
        ..Conditions::strict()
    };
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
        conditions,
    }
    .check();
    let mut breaches = checked.breaches;
    let (delivered, wrong) = lives(&deliveries, &BTreeSet::new(), conditions);
    for (id, error) in wrong {
        breaches.add(Promise::Rules, format!("delivery {id}: {error}"));
    }
    let mut lives = checked.lives;
    lives.extend(delivered);
    let (webhooks, damaged) = (webhooks(engine).await, BTreeSet::new());
    check_deliveries(&webhooks, &lives, &damaged, conditions, &mut breaches);
    let tasks: BTreeMap<_, _> = lives
        .into_iter()
        .filter_map(|(id, life)| Some((id, life.last?)))
        .collect();
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

/// Whether these are the versions of a delivery.
fn is_of_delivery(versions: &[StoredVersion]) -> bool {
    let last = versions.last().and_then(|version| version.body.as_ref());
    let task = last.and_then(|body| decode(body).ok());
    task.is_some_and(|task| is_delivery(&task.task_type))
}

/// The webhooks in the bucket.
async fn webhooks(engine: &DirectEngine) -> WebhookRules {
    let query = DocumentQuery::all(DocumentKind::Webhooks);
    let documents = engine.documents(&query).await.unwrap().into_iter();
    documents
        .map(|document| (document.id.name, Webhook::read(&document.body).unwrap()))
        .collect()
}
