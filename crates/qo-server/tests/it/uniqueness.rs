//! Keys that are held for part of a task's life, over HTTP.

use serde_json::{Value, json};

use crate::support::{TestServer, api, config, serve};

async fn submit(server: &TestServer, more: Value) -> (u16, Value) {
    let mut body =
        json!({"task_type": "t", "idempotency_key": "index/7", "idempotency_hold": "waiting"});
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    server.reply(api("POST", "/v1/tasks").json(&body)).await
}

#[tokio::test]
async fn a_waiting_task_is_replaced_and_a_started_one_frees_its_key() {
    let server = serve(config()).await;
    let (status, first) = submit(&server, json!({"input": 1})).await;
    assert_eq!(
        (status, &first["duplicate"]),
        (201, &json!(false)),
        "{first}"
    );
    let replace = json!({"input": {"n": 2}, "idempotency_on_conflict": "replace"});
    let (status, second) = submit(&server, replace).await;
    assert_eq!(
        (status, &second["duplicate"]),
        (200, &json!(true)),
        "{second}"
    );
    assert_eq!(second["task"]["id"], first["task"]["id"]);
    let path = format!("/v1/tasks/{}", first["task"]["id"].as_str().unwrap());
    let (_, stored) = server.reply(api("GET", path)).await;
    assert_eq!(stored["input"], json!({"n": 2}));
    assert_eq!(stored["idempotency_hold"], "waiting");
    let claim = api("POST", "/v1/claim").json(&json!({"worker_id": "w", "wait_ms": 20_000}));
    assert_eq!(server.send(claim).await.status(), 200);
    let (status, third) = submit(&server, json!({})).await;
    assert_eq!(
        (status, &third["duplicate"]),
        (201, &json!(false)),
        "{third}"
    );
    let postpone = json!({"idempotency_on_conflict": "postpone", "delay_ms": 3_600_000});
    let (_, postponed) = submit(&server, postpone).await;
    assert!(postponed["task"]["available_at"].as_str() > third["task"]["available_at"].as_str());
}

#[tokio::test]
async fn bad_requests_are_refused_and_write_nothing() {
    let server = serve(config()).await;
    for (more, status, code) in [
        (
            json!({"idempotency_on_conflict": "postpone"}),
            422,
            "out_of_bounds",
        ),
        (json!({"idempotency_on_conflict": "fight"}), 400, "bad_body"),
        (json!({"idempotency_hold": "often"}), 400, "bad_body"),
        (json!({"idempotency_key": null}), 400, "bad_request"),
        (
            json!({"idempotency_on_conflict": "replace", "input": "x".repeat(70_000)}),
            422,
            "out_of_bounds",
        ),
    ] {
        let (found, problem) = submit(&server, more).await;
        assert_eq!(
            (found, &problem["code"]),
            (status, &json!(code)),
            "{problem}"
        );
    }
    assert_eq!(server.objects().await, [], "nothing was written");
}
