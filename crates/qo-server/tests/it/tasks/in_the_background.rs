//! Bulk operations in the background.

use std::time::Duration;

use qo_fixtures::until;
use qo_store::runtime::TokioRuntime;
use qo_store::wrap::{Delay, LatencyStore};

use super::*;
use crate::support::{ApiRequest, memory, serve_store};

async fn submit_many(server: &TestServer, task_type: &str) {
    let tasks = vec![json!({ "task_type": task_type }); 500];
    server
        .reply(api("POST", "/v1/tasks").json(&json!(tasks)))
        .await;
}

/// Cancels all tasks of a type.
fn start(task_type: &str) -> ApiRequest {
    let filter = json!({ "task_type": task_type });
    let body = json!({"operation": "cancel", "filter": filter, "background": true});
    api("POST", "/v1/bulk").json(&body)
}

async fn ended(server: &TestServer, id: &str) -> Value {
    until("the operation has ended", async || {
        let (status, job) = server.reply(api("GET", format!("/v1/bulk/{id}"))).await;
        assert_eq!(status, 200, "{job}");
        (job["state"] != "running").then_some(job)
    })
    .await
}

#[tokio::test]
async fn a_bulk_operation_shows_its_progress() {
    let server = serve(config()).await;
    submit_many(&server, "t").await;
    let (status, job) = server.reply(start("t")).await;
    assert_eq!(
        (status, &job["operation"]),
        (202, &json!("cancel")),
        "{job}"
    );
    let id = job["id"].as_str().unwrap().to_owned();
    let job = ended(&server, &id).await;
    assert_eq!(job["state"], "finished", "{job}");
    let result = &job["result"];
    assert_eq!(
        (&result["matched"], &result["done"]),
        (&json!(500), &json!(500))
    );
    assert!(job["ended_at"].is_string());
    let (_, list) = server.reply(api("GET", "/v1/bulk")).await;
    assert_eq!(list["operations"][0]["id"], id.as_str());
    // Cancelling one that has ended changes nothing.
    let (status, again) = server.reply(api("DELETE", format!("/v1/bulk/{id}"))).await;
    assert_eq!((status, &again["state"]), (200, &json!("finished")));
    let unknown = "/v1/bulk/550e8400-e29b-41d4-a716-446655440000";
    server
        .refused(api("GET", unknown), 404, "bulk_not_found")
        .await;
    let dry = json!({"operation": "cancel", "filter": {}, "background": true, "dry_run": true});
    let dry = api("POST", "/v1/bulk").json(&dry);
    server.refused(dry, 400, "bad_request").await;
    let many = json!({"operation": "cancel", "filter": {"ids": vec![id; 1_001]}});
    let many = api("POST", "/v1/bulk").json(&many);
    server.refused(many, 400, "bad_request").await;
}

/// A store on which the change of 500 tasks takes seconds.
async fn slow_server() -> TestServer {
    let mut store = memory();
    let delay = Delay::Fixed(Duration::from_millis(100));
    let runtime = TokioRuntime::shared();
    let objects = LatencyStore::new(store.objects.clone(), runtime, delay, 1);
    store.objects = std::sync::Arc::new(objects);
    serve_store(store, config()).await
}

#[tokio::test]
async fn a_bulk_operation_is_cancelled_and_only_four_are_at_work() {
    let server = slow_server().await;
    let types = ["a", "b", "c", "d"];
    for task_type in types {
        submit_many(&server, task_type).await;
    }
    let mut ids = Vec::new();
    for task_type in types {
        let (status, job) = server.reply(start(task_type)).await;
        assert_eq!(status, 202, "{job}");
        ids.push(job["id"].as_str().unwrap().to_owned());
    }
    server.refused(start("e"), 503, "overloaded").await;
    for id in &ids {
        server.reply(api("DELETE", format!("/v1/bulk/{id}"))).await;
    }
    let mut done = Vec::new();
    for id in &ids {
        let job = ended(&server, id).await;
        assert_eq!(job["state"], "cancelled", "{job}");
        assert!(job["result"]["stopped"].is_null(), "{job}");
        done.push(job["result"]["done"].as_u64().unwrap());
    }
    assert!(done.iter().sum::<u64>() < 2_000, "{done:?}");
    // The same request continues.
    let (_, job) = server.reply(start("a")).await;
    let job = ended(&server, job["id"].as_str().unwrap()).await;
    assert_eq!(job["result"]["done"], 500 - done[0], "{job}");
}
