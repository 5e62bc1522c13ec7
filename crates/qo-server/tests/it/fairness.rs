//! Groups and their weights over HTTP.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::{TestServer, api, config, json_on, memory, serve, serve_engine};
use crate::tasks::submitted;

/// A server in broker mode, which serves groups exactly in turn.
async fn broker() -> TestServer {
    let store = memory();
    let engine = Arc::new(json_on(&store));
    serve_engine(store, engine, config()).await
}

async fn submit(server: &TestServer, group: &str, count: usize) {
    for _ in 0..count {
        let body = json!({ "task_type": "import", "queue": "imports", "fairness_group": group });
        let task = submitted(server, body).await;
        assert_eq!(task["fairness_group"], group);
    }
}

/// Claims one task after the other. Returns their groups.
async fn claimed(server: &TestServer, count: usize) -> Vec<String> {
    let mut groups = Vec::new();
    for _ in 0..count {
        let body = json!({ "worker_id": "w", "queues": ["imports"], "max": 1, "wait_ms": 0 });
        let (_, claimed) = server.reply(api("POST", "/v1/claim").json(&body)).await;
        let group = claimed["tasks"][0]["fairness_group"].as_str();
        groups.push(group.unwrap_or_default().to_owned());
    }
    groups
}

#[tokio::test]
async fn groups_are_served_in_turn_by_their_weights() {
    let server = broker().await;
    submit(&server, "acme", 6).await;
    submit(&server, "globex", 2).await;
    assert_eq!(
        claimed(&server, 4).await,
        ["acme", "globex", "acme", "globex"]
    );
    let weights = json!({ "group_weights": { "acme": 2 } });
    let set = api("PUT", "/v1/queues/imports").json(&weights);
    let (status, settings) = server.reply(set).await;
    assert_eq!(
        (status, &settings["settings"]),
        (200, &weights),
        "{settings}"
    );
    submit(&server, "globex", 2).await;
    assert_eq!(
        claimed(&server, 6).await,
        ["acme", "acme", "globex", "acme", "acme", "globex"]
    );
}

#[tokio::test]
async fn bad_groups_and_weights_are_refused_and_write_nothing() {
    let server = serve(config()).await;
    for group in ["no/slash", "", ".hidden", &"x".repeat(65)] {
        let task = json!({ "task_type": "t", "fairness_group": group });
        let request = api("POST", "/v1/tasks").json(&task);
        server.refused(request, 400, "bad_body").await;
        let schedule = json!({ "every_ms": 3_600_000, "task": task });
        let request = api("PUT", "/v1/schedules/s").json(&schedule);
        server.refused(request, 400, "bad_body").await;
        let weights = json!({ "group_weights": { group: 2 } });
        let request = api("PUT", "/v1/queues/q").json(&weights);
        server.refused(request, 400, "bad_body").await;
    }
    for weight in [0, 1_001] {
        let weights = json!({ "group_weights": { "acme": weight } });
        let request = api("PUT", "/v1/queues/q").json(&weights);
        server.refused(request, 400, "bad_request").await;
    }
    let (_, all) = server.reply(api("GET", "/v1/queues")).await;
    assert_eq!(all, json!({ "queues": [] }));
    let (_, all) = server.reply(api("GET", "/v1/tasks")).await;
    assert_eq!(all["tasks"], json!([]));
}

#[tokio::test]
async fn the_task_of_a_schedule_keeps_its_group_and_its_limit_key() {
    let server = serve(config()).await;
    let task = json!({ "task_type": "import", "fairness_group": "acme", "limit_key": "stripe" });
    let body = json!({ "every_ms": 3_600_000, "task": task });
    let (status, schedule) = server
        .reply(api("PUT", "/v1/schedules/sync").json(&body))
        .await;
    assert_eq!(status, 200, "{schedule}");
    assert_eq!(schedule["spec"]["task"], task);
    let trigger = api("POST", "/v1/schedules/sync/trigger");
    let (_, triggered) = server.reply(trigger).await;
    let id = triggered["task_id"].as_str().unwrap();
    let (_, stored): (_, Value) = server.reply(api("GET", format!("/v1/tasks/{id}"))).await;
    assert_eq!(stored["fairness_group"], "acme");
    assert_eq!(stored["limit_key"], "stripe");
}
