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
    ("PUT", "/v1/queues/{queue}"),
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

/// serde reads an array as the fields of a struct, in order, so `["x"]` would be a cancel with the reason x.
#[tokio::test]
async fn an_array_is_not_the_object_of_a_request() {
    let server = serve(config()).await;
    let submit = api("POST", "/v1/tasks").json(&json!({"task_type": "t"}));
    let (_, task) = server.reply(submit).await;
    let id = task["task"]["id"].as_str().unwrap();
    // The hint that something was submitted is written in the background.
    let records = async || {
        let mut objects = server.objects().await;
        objects.retain(|(key, _)| !key.starts_with("meta/"));
        objects
    };
    let before = records().await;
    let others = [
        ("POST", "/v1/queues/{queue}/pause"),
        ("POST", "/v1/types/{type}/pause"),
        ("PUT", "/v1/tokens/{token}"),
        ("POST", "/jobs/create"),
        ("POST", "/jobs/claim"),
        ("POST", "/jobs/{id}/tickle"),
        ("POST", "/jobs/{id}/complete"),
        ("POST", "/blobs/gc"),
    ];
    let takes_arrays = ["/v1/tasks", "/v1/outcomes"];
    let routes = WITH_BODY.iter().chain(&others);
    for (method, path) in routes.filter(|(_, path)| !takes_arrays.contains(path)) {
        let path = filled(&path.replace("{id}", id));
        for array in [
            json!([]),
            json!(["x"]),
            json!(["t", null, 1, true]),
            json!([{}]),
        ] {
            for space in ["", " \n\t"] {
                let request = api(method, &path).body(format!("{space}{array}"));
                let problem = server.refused(request, 400, "bad_body").await;
                let detail = problem["detail"].as_str().unwrap();
                assert!(detail.contains("not an array"), "{method} {path}: {detail}");
            }
        }
    }
    assert!(records().await == before, "nothing was changed");
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
        ("GET", "/logs", Value::Null),
        ("GET", "/versions", Value::Null),
        ("POST", "/run_now", Value::Null),
        ("POST", "/replay", Value::Null),
        ("POST", "/redrive", json!({ "to": "elsewhere" })),
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

#[tokio::test]
async fn payloads_that_other_programs_cannot_read_are_refused() {
    let server = serve(config()).await;
    let submit = |input: &str| {
        let body = format!("{{\"task_type\":\"t\",\"input\":{input}}}");
        api("POST", "/v1/tasks").body(body)
    };
    for (input, reason) in [
        ("7".repeat(5_000), "number"),
        (format!("[-1.{}]", "3".repeat(5_000)), "number"),
        ("\"\\ud800\"".to_owned(), "surrogate"),
        ("{\"\\udc00\":1}".to_owned(), "surrogate"),
    ] {
        let problem = server.refused(submit(&input), 400, "bad_request").await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("input") && detail.contains(reason),
            "{detail}"
        );
        // In an array, each on its own.
        let array = format!("[{{\"task_type\":\"t\",\"input\":{input}}}]");
        let (status, results) = server.reply(api("POST", "/v1/tasks").body(array)).await;
        assert_eq!(status, 200, "{results}");
        assert_eq!(results[0]["problem"]["status"], 400, "{results}");
    }
    assert_eq!(server.objects().await, [], "nothing was written");
    // Whole pairs, and more digits than a double has, are kept as they are.
    let (status, reply) = server
        .reply(submit(
            "[\"\\ud83d\\ude00\",123456789012345678901234567890.10]",
        ))
        .await;
    assert_eq!(status, 201, "{reply}");
}

#[tokio::test]
async fn delays_beyond_a_hundred_years_are_refused() {
    let server = serve(config()).await;
    for field in ["delay_ms", "expires_in_ms"] {
        let body = format!("{{\"task_type\":\"t\",\"{field}\":{}}}", u64::MAX);
        let request = api("POST", "/v1/tasks").body(body);
        let problem = server.refused(request, 400, "bad_request").await;
        assert!(problem["detail"].as_str().unwrap().contains(field));
        let body = json!({"task_type": "t", field: qo_core::limits::SUBMIT_DELAY_MAX_MS});
        let (status, reply) = server.reply(api("POST", "/v1/tasks").json(&body)).await;
        assert_eq!(status, 201, "{reply}");
    }
}

#[tokio::test]
async fn encoded_bodies_are_refused() {
    let server = serve(config()).await;
    for (method, path) in WITH_BODY {
        for encoding in ["gzip", "br", "x-unknown", "identity, gzip"] {
            let request = api(method, filled(path)).body("{}");
            let request = request.header("content-encoding", encoding);
            server.refused(request, 415, "bad_media_type").await;
        }
    }
    let plain = api("POST", "/v1/tasks").body("{\"task_type\":\"t\"}");
    let (status, _) = server
        .reply(plain.header("content-encoding", "identity"))
        .await;
    assert_eq!(status, 201);
}

#[tokio::test]
async fn heads_above_the_limit_are_refused() {
    let mut config = config();
    config.limits.header_max_bytes = 16 * 1024;
    let server = serve(config).await;
    let with = |bytes: usize| api("GET", "/v1/info").header("x-padding", "x".repeat(bytes));
    let (status, _) = server.reply(with(15_000)).await;
    assert_eq!(status, 200);
    for bytes in [16_400, 20_000, 31_000] {
        let response = server.send(with(bytes)).await;
        assert_eq!(response.status().as_u16(), 431, "{bytes}");
    }
    let long = api("GET", format!("/v1/info?{}", "x".repeat(16_400)));
    let status = server.send(long).await.status().as_u16();
    assert!(matches!(status, 414 | 431), "{status}");
}
