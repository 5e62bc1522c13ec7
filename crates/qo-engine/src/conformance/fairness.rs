//! Groups are served in turn.
//!
//! The claims are in order, so that direct mode does not take the tasks of a page at random.

use std::collections::BTreeMap;

use qo_core::{QueueSettings, Task};
use qo_store::runtime::RuntimeExt;

use super::context::{TIMEOUT_MS, TestContext, json, name};
use crate::api::{ClaimRequest, DocumentWrite, SubmitRequest};
use crate::error::EngineError;

/// The tasks of the large tenant.
const MANY: usize = 40;

async fn submit(ctx: &TestContext<'_>, group: &str, count: usize) -> Vec<Task> {
    let request = SubmitRequest {
        fairness_group: (!group.is_empty()).then(|| name(group)),
        ..ctx.submit_request()
    };
    let results = ctx.engine.submit_many(vec![request; count]).await;
    results.into_iter().map(|it| it.unwrap().task).collect()
}

/// Claims tasks one by one, and returns their groups.
async fn served(ctx: &TestContext<'_>, count: usize) -> Vec<String> {
    let request = ClaimRequest {
        in_order: true,
        wait_ms: TIMEOUT_MS,
        ..ctx.claim_request(1)
    };
    let mut groups = Vec::new();
    for _ in 0..count {
        let claimed = ctx.engine.claim(&request).await.unwrap();
        let [task] = claimed.as_slice() else {
            panic!("{claimed:?}");
        };
        let group = task.fairness_group.as_ref();
        groups.push(group.map_or(String::new(), ToString::to_string));
    }
    groups
}

pub(super) async fn does_not_let_a_group_delay_the_first_task_of_another(ctx: &TestContext<'_>) {
    let stored = submit(ctx, "large", MANY).await;
    assert_eq!(
        ctx.get(stored[0].id).await.fairness_group,
        Some(name("large"))
    );
    submit(ctx, "small", 2).await;
    let first = served(ctx, MANY).await;
    let place = first.iter().position(|group| group == "small");
    // A partition serves its groups in turn, and the one with the oldest task goes first: among so few tasks this says nothing.
    if ctx.harness.has_turns() && ctx.harness.has_queue_settings() {
        assert!(place.is_some_and(|place| place <= 3), "{first:?}");
    }
    let rest = served(ctx, 2).await;
    let all: Vec<_> = first.iter().chain(&rest).collect();
    let small = all.iter().filter(|group| group.as_str() == "small");
    assert_eq!(small.count(), 2);
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn gives_groups_turns_by_their_weights(ctx: &TestContext<'_>) {
    let id = QueueSettings::document_id(&ctx.queue);
    let body = json(r#"{"group_weights":{"heavy":3}}"#);
    let op = ctx.harness.runtime().new_op_id();
    let write = DocumentWrite::new(id, None, Some(body), op);
    match ctx.engine.write_document(write).await {
        Ok(_) => {}
        Err(EngineError::BadRequest(_)) if !ctx.harness.has_queue_settings() => return,
        Err(error) => panic!("{error}"),
    }
    submit(ctx, "light", 30).await;
    submit(ctx, "heavy", 30).await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for group in served(ctx, 24).await {
        *counts.entry(group).or_default() += 1;
    }
    let heavy = counts.get("heavy").copied().unwrap_or(0);
    if ctx.harness.has_turns() {
        // Six rounds of four, of which one or two may be cut.
        assert!((15..=21).contains(&heavy), "{counts:?}");
    }
    served(ctx, 36).await;
    ctx.assert_nothing_to_claim().await;
}
