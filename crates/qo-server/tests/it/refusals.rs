//! Invalid bodies, oversized bodies and unknown ids get the right status and problem, and nothing is written.

use serde_json::{Value, json};

use crate::access::filled;
use crate::support::{api, config, serve};

/// The routes that read a body.
const WITH_BODY: &[(&str, &str)] = &[
    ("POST", "/v1/tasks"),
    ("POST", "/v1/claim"),
    ("POST", "/v1/outcomes"),
    ("POST", "/v1/bulk"),
    ("POST", "/v1/tasks/{id}/complete"),
    ("POST", "/v1/tasks/{id}/fail"),
    ("POST", "/v1/tasks/{id}/release"),
    ("POST", "/v1/tasks/{id}/renew"),
    ("POST", "/v1/tasks/{id}/snooze"),
    ("POST", "/v1/tasks/{id}/progress"),
    ("POST", "/v1/tasks/{id}/cancel"),
    ("PUT", "/v1/workers/{worker}"),
    ("PUT", "/v1/schedules/{name}"),
    ("POST", "/v1/schedules/{name}/backfill"),
    ("POST", "/v1/settings/{kind}"),
];

#[tokio::test]
async fn bad_and_oversize_bodies_are_refused() {
    let mut config = config();
    config.limits.body_max_bytes = 4_096;
    let server = serve(config).await;
    for (method, path) in WITH_BODY {
        let path = filled(path);
        for bad in [
            "{",
            "nonsense",
            "{\"unknown_field\":1}",
            "\"text\"",
            "[1",
            "7",
        ] {
            let (status, problem) = server.reply(api(method, &path).body(bad)).await;
            assert_eq!(
                (status, &problem["code"]),
                (400, &json!("bad_body")),
                "{method} {path} {bad}"
            );
        }
        let large = json!({ "task_type": "t", "input": "x".repeat(8_192) }).to_string();
        let problem = server
            .refused(api(method, &path).body(large), 413, "body_too_large")
            .await;
        assert_eq!(problem["limit"], 4_096);
        let form = api(method, &path)
            .body("a=b")
            .header("content-type", "text/plain");
        let (status, _) = server.reply(form).await;
        assert!((400..500).contains(&status), "{method} {path}: {status}");
    }
    let plain = api("POST", "/v1/tasks").header("content-type", "text/plain");
    server.refused(plain, 415, "bad_media_type").await;
    assert_eq!(server.objects().await, [], "nothing was written");
}

#[tokio::test]
async fn unknown_ids_are_not_found_and_invalid_ids_are_refused() {
    let server = serve(config()).await;
    let lease = "650e8400-e29b-41d4-a716-446655440000";
    let bodies: &[(&str, &str, Value)] = &[
        ("GET", "", Value::Null),
        ("GET", "?wait_ms=1", Value::Null),
        ("DELETE", "", Value::Null),
        ("GET", "/input", Value::Null),
        ("GET", "/output", Value::Null),
        ("GET", "/history", Value::Null),
        ("GET", "/versions", Value::Null),
        ("POST", "/run_now", Value::Null),
        ("POST", "/replay", Value::Null),
        ("POST", "/archive", Value::Null),
        ("POST", "/unarchive", Value::Null),
        ("POST", "/cancel", Value::Null),
        ("POST", "/complete", json!({ "lease_id": lease })),
        ("POST", "/fail", json!({ "lease_id": lease, "error": "e" })),
        ("POST", "/release", json!({ "lease_id": lease })),
        ("POST", "/renew", json!({ "lease_id": lease })),
        (
            "POST",
            "/snooze",
            json!({ "lease_id": lease, "delay_ms": 1 }),
        ),
        (
            "POST",
            "/progress",
            json!({ "lease_id": lease, "percent": 1 }),
        ),
    ];
    let id = "550e8400-e29b-41d4-a716-446655440000";
    for (method, rest, body) in bodies {
        let request = |id: &str| {
            let request = api(method, format!("/v1/tasks/{id}{rest}"));
            if body.is_null() {
                request
            } else {
                request.json(body)
            }
        };
        let problem = server.refused(request(id), 404, "not_found").await;
        assert_eq!(problem["id"], id);
        for bad in [
            "17",
            "550e8400e29b41d4a716446655440000",
            "..%2f..%2fmeta",
            "%00",
        ] {
            server.refused(request(bad), 400, "bad_request").await;
        }
    }
    assert_eq!(server.objects().await, [], "nothing was written");
}

#[tokio::test]
async fn invalid_requests_are_refused_with_a_reason() {
    let server = serve(config()).await;
    let submit = |body: Value| api("POST", "/v1/tasks").json(&body);
    for (body, status, code) in [
        (
            json!({"task_type": "t", "priority": 10}),
            422,
            "out_of_bounds",
        ),
        (
            json!({"task_type": "t", "retry_policy": {"multiplier": 0.5}}),
            422,
            "bad_retry_policy",
        ),
        (json!({"task_type": "a/b"}), 400, "bad_body"),
        (
            json!({"task_type": "t", "delay_ms": 1, "available_at": "2030-01-01T00:00:00Z"}),
            400,
            "bad_request",
        ),
        (json!({"task_type": "t", "delay_ms": -1}), 400, "bad_body"),
    ] {
        server.refused(submit(body), status, code).await;
    }
    let deep = format!(
        r#"{{"task_type":"t","input":{}{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    server
        .refused(api("POST", "/v1/tasks").body(deep), 400, "bad_request")
        .await;
    for query in [
        "?limit=0",
        "?limit=1001",
        "?status=done",
        "?cursor=",
        "?cursor=x",
        "?colour=red",
        "?queue=a/b",
        "?limit=1&limit=2",
    ] {
        server
            .refused(api("GET", format!("/v1/tasks{query}")), 400, "bad_request")
            .await;
    }
    server
        .refused(api("GET", "/v1/nonsense"), 404, "no_route")
        .await;
    server
        .refused(api("GET", "/nowhere"), 404, "no_route")
        .await;
    server
        .refused(api("DELETE", "/v1/tasks"), 405, "no_method")
        .await;
    server
        .refused(api("POST", "/v1/queues/a%2fb/pause"), 400, "bad_request")
        .await;
    assert_eq!(server.objects().await, [], "nothing was written");
}

#[tokio::test]
async fn the_response_repeats_the_request_id() {
    let server = serve(config()).await;
    let response = server
        .send(api("GET", "/healthz").header("x-request-id", "my-name"))
        .await;
    assert_eq!(response.headers()["x-request-id"], "my-name");
    let long = "x".repeat(200);
    let response = server
        .send(api("GET", "/healthz").header("x-request-id", &long))
        .await;
    assert_ne!(response.headers()["x-request-id"], long.as_str());
}
