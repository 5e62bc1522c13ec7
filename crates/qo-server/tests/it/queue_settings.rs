//! Settings of queues over HTTP.

use std::sync::Arc;

use serde_json::json;

use crate::support::{api, config, json_on, memory, serve, serve_engine};
use crate::tasks::submitted;

#[tokio::test]
async fn settings_are_set_shown_and_removed() {
    let server = serve(config()).await;
    let (status, none) = server.reply(api("GET", "/v1/queues/mail")).await;
    assert_eq!(status, 200);
    assert_eq!(
        none,
        json!({ "queue": "mail", "settings": {}, "updated_at": null })
    );
    let body = json!({
        "max_retries": 8, "timeout_seconds": 30, "retention_seconds": 3600, "max_wait_ms": 60_000, "max_waiting": 100,
    });
    let (status, set) = server
        .reply(api("PUT", "/v1/queues/mail").json(&body))
        .await;
    assert_eq!(status, 200, "{set}");
    assert_eq!(set["settings"], body);
    assert!(set["updated_at"].is_string(), "{set}");
    let (_, all) = server.reply(api("GET", "/v1/queues")).await;
    assert_eq!(all, json!({ "queues": [set] }));
    let task = submitted(&server, json!({"task_type": "t", "queue": "mail"})).await;
    assert_eq!(task["max_retries"], 8, "{task}");
    assert_eq!(task["timeout_seconds"], 30);
    assert_eq!(task["max_wait_ms"], 60_000);
    // A submit that says what the defaults of qo are gets them.
    let own = json!({"task_type": "t", "queue": "mail", "max_retries": 3, "timeout_seconds": 300});
    let own = submitted(&server, own).await;
    assert_eq!(
        (&own["max_retries"], &own["timeout_seconds"]),
        (&json!(3), &json!(300))
    );
    // What is absent gets its default again, and nothing at all removes the settings.
    let (_, changed) = server
        .reply(api("PUT", "/v1/queues/mail").json(&json!({"max_retries": 0})))
        .await;
    assert_eq!(changed["settings"], json!({"max_retries": 0}));
    let (_, removed) = server
        .reply(api("PUT", "/v1/queues/mail").json(&json!({})))
        .await;
    assert_eq!(removed["settings"], json!({}));
    let (_, all) = server.reply(api("GET", "/v1/queues")).await;
    assert_eq!(all, json!({ "queues": [] }));
}

#[tokio::test]
async fn a_full_queue_answers_429_and_when_to_come_back() {
    let store = memory();
    let engine = Arc::new(json_on(&store));
    let server = serve_engine(store, engine, config()).await;
    let set = api("PUT", "/v1/queues/mail").json(&json!({"max_waiting": 2}));
    assert_eq!(server.send(set).await.status(), 200);
    let task = json!({"task_type": "t", "queue": "mail"});
    for _ in 0..2 {
        submitted(&server, task.clone()).await;
    }
    let response = server.send(api("POST", "/v1/tasks").json(&task)).await;
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "1");
    let problem = server
        .refused(api("POST", "/v1/tasks").json(&task), 429, "queue_full")
        .await;
    assert_eq!(
        (&problem["queue"], &problem["limit"]),
        (&json!("mail"), &json!(2))
    );
    // In an array each task has its own result.
    let other = json!({"task_type": "t"});
    let (status, results) = server
        .reply(api("POST", "/v1/tasks").json(&json!([task, other])))
        .await;
    assert_eq!(status, 200, "{results}");
    assert_eq!(results[0]["problem"]["code"], "queue_full", "{results}");
    assert!(results[1]["task"]["id"].is_string(), "{results}");
    let claim = api("POST", "/v1/claim").json(&json!({"worker_id": "w", "queues": ["mail"]}));
    assert_eq!(server.send(claim).await.status(), 200);
    submitted(&server, task).await;
}

#[tokio::test]
async fn bad_settings_are_refused_and_write_nothing() {
    let server = serve(config()).await;
    for body in [
        json!({"max_waiting": 0}),
        json!({"max_wait_ms": 0}),
        json!({"timeout_seconds": 0}),
        json!({"timeout_seconds": 2_592_001}),
        json!({"retention_seconds": 0}),
        json!({"max_retries": 10_001}),
    ] {
        let request = api("PUT", "/v1/queues/mail").json(&body);
        server.refused(request, 400, "bad_request").await;
        let document = json!({
            "name": "mail", "op_id": "550e8400-e29b-41d4-a716-446655440000", "body": body,
        });
        let request = api("POST", "/v1/settings/queues").json(&document);
        server.refused(request, 400, "bad_request").await;
    }
    for body in [
        json!({"max_waiting": -1}),
        json!({"max_retries": -1}),
        json!({"max_waiting": 1.5}),
        json!({"max_retries": "3"}),
        json!({"retries": 3}),
        json!([3, 60]),
        json!([{"max_retries": 3}]),
        json!("text"),
    ] {
        let request = api("PUT", "/v1/queues/mail").json(&body);
        server.refused(request, 400, "bad_body").await;
    }
    for name in ["a%2fb", ".a", &"x".repeat(65)] {
        let request = api("PUT", format!("/v1/queues/{name}")).json(&json!({"max_retries": 3}));
        server.refused(request, 400, "bad_request").await;
    }
    assert_eq!(server.objects().await, [], "nothing was written");
}
