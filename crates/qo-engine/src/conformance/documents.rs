//! Documents, such as schedules.

use qo_core::document::DOCUMENT_MAX_BYTES;
use qo_core::{DocumentId, DocumentKind, Json, OpId, Route, Status, TaskId};
use qo_store::runtime::RuntimeExt;

use super::context::TestContext;
use crate::api::{Document, DocumentQuery, DocumentWrite, SubmitRequest};
use crate::engine::Engine;
use crate::error::EngineError;

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

/// A document of this check, whose names nobody else uses.
fn id_of(ctx: &TestContext<'_>, kind: DocumentKind) -> DocumentId {
    DocumentId {
        kind,
        name: ctx.worker.as_str().parse().unwrap(),
    }
}

fn new_op(ctx: &TestContext<'_>) -> OpId {
    ctx.harness.runtime().new_op_id()
}

async fn read(engine: &dyn Engine, id: &DocumentId) -> Option<Document> {
    let mut documents = engine.documents(&DocumentQuery::one(id)).await.unwrap();
    assert!(documents.len() <= 1);
    documents.pop()
}

/// The names of a kind that belong to this check.
async fn names(ctx: &TestContext<'_>, engine: &dyn Engine, kind: DocumentKind) -> Vec<String> {
    let all = engine.documents(&DocumentQuery::all(kind)).await.unwrap();
    let names = all.into_iter().map(|document| document.id.name.to_string());
    names
        .filter(|name| name.starts_with(ctx.worker.as_str()))
        .collect()
}

pub(super) async fn changes_documents_by_compare_and_swap(ctx: &TestContext<'_>) {
    let id = id_of(ctx, DocumentKind::Schedules);
    let other = ctx.new_engine().await;
    assert_eq!(read(&*ctx.engine, &id).await, None);
    let first = new_op(ctx);
    let create = DocumentWrite::new(id.clone(), None, Some(json("{\"n\": 1.0}")), first);
    let created = ctx.engine.write_document(create.clone()).await.unwrap();
    let created = created.unwrap();
    assert_eq!(
        (created.version, created.body.as_str()),
        (first, "{\"n\": 1.0}")
    );
    // Every process reads it, and only what it says.
    for engine in [&ctx.engine, &other] {
        assert_eq!(read(&**engine, &id).await.as_ref(), Some(&created));
        assert_eq!(names(ctx, &**engine, id.kind).await, [id.name.to_string()]);
        assert!(names(ctx, &**engine, DocumentKind::Queues).await.is_empty());
    }
    // A repeated change has no second effect, in any process.
    for engine in [&ctx.engine, &other] {
        let again = engine.write_document(create.clone()).await.unwrap();
        assert_eq!(again.as_ref(), Some(&created));
    }
    let conflict = EngineError::DocumentConflict { id: id.clone() };
    let second = new_op(ctx);
    let change = DocumentWrite::new(id.clone(), Some(first), Some(json("{\"n\":2}")), second);
    let changed = other.write_document(change).await.unwrap().unwrap();
    assert_eq!(changed.revision, created.revision + 1);
    // Whoever builds upon an old version, or on none, is refused and changes nothing.
    for expected in [None, Some(first), Some(new_op(ctx))] {
        for body in [Some(json("{}")), None] {
            let late = DocumentWrite::new(id.clone(), expected, body, new_op(ctx));
            let error = ctx.engine.write_document(late).await.unwrap_err();
            assert_eq!(error, conflict);
        }
    }
    assert_eq!(read(&*ctx.engine, &id).await, Some(changed));
    // The first author still recognises its write.
    ctx.engine.write_document(create.clone()).await.unwrap();
    // One of many concurrent changes wins.
    let races = (0..8).map(|number| {
        let engine = if number % 2 == 0 { &ctx.engine } else { &other };
        let body = Some(json(&format!("{{\"race\":{number}}}")));
        let write = DocumentWrite::new(id.clone(), Some(second), body, new_op(ctx));
        async move { engine.write_document(write).await }
    });
    let results = futures_util::future::join_all(races).await;
    let won: Vec<_> = results.iter().flatten().flatten().collect();
    assert_eq!(won.len(), 1, "{results:?}");
    assert_eq!(read(&*other, &id).await.as_ref(), Some(won[0]));
    // A removed document can be created again, and has a new version.
    let remove = DocumentWrite::new(id.clone(), Some(won[0].version), None, new_op(ctx));
    assert_eq!(other.write_document(remove.clone()).await.unwrap(), None);
    assert_eq!(other.write_document(remove).await.unwrap(), None);
    assert_eq!(read(&*ctx.engine, &id).await, None);
    assert!(names(ctx, &*ctx.engine, id.kind).await.is_empty());
    let stale = DocumentWrite::new(
        id.clone(),
        Some(won[0].version),
        Some(json("{}")),
        new_op(ctx),
    );
    assert_eq!(
        ctx.engine.write_document(stale).await.unwrap_err(),
        conflict
    );
    let anew = DocumentWrite::new(id.clone(), None, Some(json("{}")), new_op(ctx));
    ctx.engine.write_document(anew).await.unwrap();
    assert_eq!(read(&*other, &id).await.unwrap().body.as_str(), "{}");
}

pub(super) async fn refuses_invalid_documents(ctx: &TestContext<'_>) {
    let id = id_of(ctx, DocumentKind::Limits);
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(DOCUMENT_MAX_BYTES));
    for body in ["[1]", "\"text\"", large.as_str()] {
        let write = DocumentWrite::new(id.clone(), None, Some(json(body)), new_op(ctx));
        let error = ctx.engine.write_document(write).await.unwrap_err();
        assert!(matches!(error, EngineError::BadRequest(_)), "{error}");
    }
    // Tasks need an id with the route of documents, and are refused before anything is written.
    let routed = ctx.new_id().with_route(Route::DOCUMENTS);
    let invalid = SubmitRequest {
        priority: 99,
        ..with_id(ctx, routed)
    };
    let submits = [ctx.submit_request(), invalid];
    for submit in submits {
        let write = DocumentWrite {
            submits: vec![submit],
            ..DocumentWrite::new(id.clone(), None, Some(json("{}")), new_op(ctx))
        };
        assert!(ctx.engine.write_document(write).await.is_err());
    }
    assert!(ctx.engine.get(routed).await.unwrap_err().is_not_found());
    assert_eq!(read(&*ctx.engine, &id).await, None);
}

fn with_id(ctx: &TestContext<'_>, id: TaskId) -> SubmitRequest {
    SubmitRequest {
        id: Some(id),
        ..ctx.submit_request()
    }
}

pub(super) async fn submits_tasks_with_a_document(ctx: &TestContext<'_>) {
    let id = id_of(ctx, DocumentKind::Schedules);
    let other = ctx.new_engine().await;
    let tasks: Vec<TaskId> = (0..3)
        .map(|_| ctx.new_id().with_route(Route::DOCUMENTS))
        .collect();
    let submits = |tasks: &[TaskId]| tasks.iter().map(|task| with_id(ctx, *task)).collect();
    let write = DocumentWrite {
        submits: submits(&tasks[..2]),
        settled: Some(json("{\"fired\":2}")),
        ..DocumentWrite::new(id.clone(), None, Some(json("{\"firing\":2}")), new_op(ctx))
    };
    let written = ctx.engine.write_document(write.clone()).await.unwrap();
    assert_eq!(written.unwrap().body.as_str(), "{\"fired\":2}");
    let stored = read(&*other, &id).await.unwrap();
    assert_eq!(stored.body.as_str(), "{\"fired\":2}");
    for task in &tasks[..2] {
        assert_eq!(other.get(*task).await.unwrap().status, Status::Pending);
    }
    // A repeated change submits nothing new.
    ctx.engine.write_document(write).await.unwrap();
    assert_eq!(read(&*other, &id).await, Some(stored));
    assert_eq!(ctx.claim(10).await.len(), 2);
    // A change that is refused submits nothing.
    let late = DocumentWrite {
        submits: submits(&tasks[2..]),
        ..DocumentWrite::new(id.clone(), None, Some(json("{}")), new_op(ctx))
    };
    let error = other.write_document(late).await.unwrap_err();
    assert_eq!(error, EngineError::DocumentConflict { id });
    assert!(other.get(tasks[2]).await.unwrap_err().is_not_found());
}
