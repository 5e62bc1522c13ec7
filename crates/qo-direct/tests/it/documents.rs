//! The cache of documents under faults.

use std::sync::Arc;

use qo_core::{DocumentId, DocumentKind, Json};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, DocumentQuery, DocumentWrite};
use qo_fixtures::Bucket;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::wrap::{FaultKind, FaultPlan, FaultRule, FaultStore};

use crate::bucket::Engines as _;
use crate::maintenance::{claim, request};

#[tokio::test(start_paused = true)]
async fn a_document_stays_known_after_a_change_in_doubt() {
    for fault in [FaultKind::LostRequest, FaultKind::LostResponse] {
        let bucket = Bucket::new();
        let runtime: Arc<dyn Runtime> = bucket.runtime.clone();
        let store = FaultStore::new(bucket.counted(), runtime, FaultPlan::none(), 1);
        let store = Arc::new(store);
        let engine = bucket.engine_on(store.clone());
        let id = DocumentId {
            kind: DocumentKind::Schedules,
            name: "often".parse().unwrap(),
        };
        let body = |text: &str| Some(Json::parse(text).unwrap());
        let op = bucket.runtime.new_op_id();
        let created =
            engine.write_document(DocumentWrite::new(id.clone(), None, body(r#"{"n":1}"#), op));
        created.await.unwrap();
        let cached = DocumentQuery {
            cached: true,
            ..DocumentQuery::all(DocumentKind::Schedules)
        };
        assert_eq!(engine.documents(&cached).await.unwrap().len(), 1);

        // The store is out of reach for longer than the client tries, so the change is in doubt.
        store.set_plan(FaultPlan::always(fault));
        let next = bucket.runtime.new_op_id();
        let change = DocumentWrite::new(id.clone(), Some(op), body(r#"{"n":2}"#), next);
        engine.write_document(change).await.unwrap_err();
        store.set_plan(FaultPlan::none());

        let known = engine.documents(&cached).await.unwrap();
        assert_eq!(known.len(), 1, "{fault:?}: the cached list lacks it");
        let stored = engine.documents(&DocumentQuery::one(&id)).await.unwrap();
        assert_eq!(known, stored);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_whose_document_arrives_torn_is_not_taken_for_absent() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let id = DocumentId {
        kind: DocumentKind::Limits,
        name: "all".parse().unwrap(),
    };
    let body = Json::parse(r#"{"queue":"default","concurrent":1}"#).unwrap();
    let op = bucket.runtime.new_op_id();
    let limit = DocumentWrite::new(id, None, Some(body), op);
    engine.write_document(limit).await.unwrap();
    for _ in 0..2 {
        engine.submit(request()).await.unwrap();
    }
    claim(&engine).await;
    let torn = FaultRule::new(FaultKind::TornRead, 1.0).under(["meta/settings"]);
    let faults = FaultPlan::none().with(torn);
    let store = FaultStore::new(bucket.counted(), bucket.runtime.clone(), faults, 1);
    let store = Arc::new(store);
    let other = bucket.engine_on(store.clone());
    let second = ClaimRequest::new("w2".parse().unwrap(), vec!["noop".parse().unwrap()]);
    let refused = other.claim(&second).await;
    assert!(refused.is_err(), "{refused:?}");
    // Now it can be read, and applies.
    store.set_plan(FaultPlan::none());
    assert_eq!(other.claim(&second).await.unwrap(), []);
}
