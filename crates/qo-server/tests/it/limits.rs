//! Limits over HTTP.

use serde_json::json;

use crate::support::{api, config, serve};

#[tokio::test]
async fn a_limit_is_set_shown_followed_and_removed() {
    let server = serve(config()).await;
    let body = json!({ "limit_key": "stripe", "concurrent": 1 });
    let put = || api("PUT", "/v1/limits/stripe").json(&body);
    let (status, limit) = server.reply(put()).await;
    assert_eq!(status, 200, "{limit}");
    assert_eq!(
        (&limit["name"], &limit["concurrent"]),
        (&json!("stripe"), &json!(1))
    );
    // The same again changes nothing.
    let (_, again) = server.reply(put()).await;
    assert_eq!(again, limit);
    let with_usage = |running: u32| {
        let mut limit = limit.clone();
        limit["usage"] = json!({ "running": running });
        limit
    };
    let (_, all) = server.reply(api("GET", "/v1/limits")).await;
    assert_eq!(all["limits"], json!([with_usage(0)]));
    let task = json!({ "task_type": "charge", "limit_key": "stripe" });
    let submit = || api("POST", "/v1/tasks").json(&task);
    for _ in 0..2 {
        assert_eq!(server.send(submit()).await.status(), 201);
    }
    let claim =
        || api("POST", "/v1/claim").json(&json!({ "worker_id": "w", "max": 5, "wait_ms": 0 }));
    let (_, claimed) = server.reply(claim()).await;
    let claimed = claimed["tasks"].as_array().unwrap().clone();
    assert_eq!(claimed.len(), 1);
    let (_, all) = server.reply(api("GET", "/v1/limits")).await;
    assert_eq!(all["limits"], json!([with_usage(1)]));
    let (_, one) = server.reply(api("GET", "/v1/limits/stripe")).await;
    assert_eq!(one, with_usage(1));
    let (_, page) = server.reply(api("GET", "/v1/tasks?status=pending")).await;
    let waiting = page["tasks"][0]["id"].as_str().unwrap();
    let (_, why) = server
        .reply(api("GET", format!("/v1/tasks/{waiting}/waits_for")))
        .await;
    let reason =
        json!({ "reason": "limit", "limit": "stripe", "bound": "concurrent", "used": 1, "max": 1 });
    assert_eq!(why["waits_for"], reason);
    let removed = server.send(api("DELETE", "/v1/limits/stripe")).await;
    assert_eq!(removed.status(), 204);
    let (_, claimed) = server.reply(claim()).await;
    assert_eq!(claimed["tasks"].as_array().unwrap().len(), 1);
    for method in ["GET", "DELETE"] {
        server
            .refused(api(method, "/v1/limits/stripe"), 404, "limit_not_found")
            .await;
    }
}

#[tokio::test]
async fn bad_limits_are_refused_and_write_nothing() {
    let server = serve(config()).await;
    let invalid = [
        json!({ "concurrent": 5 }),
        json!({ "queue": "q" }),
        json!({ "queue": "q", "concurrent": 0 }),
        json!({ "queue": "q", "concurrent": 100_000 }),
        json!({ "queue": "q", "starts": { "max": 0, "window_ms": 1000 } }),
        json!({ "queue": "q", "starts": { "max": 1, "window_ms": 1 } }),
    ];
    let unreadable = [
        json!({ "queue": "q", "concurrent": 1, "colour": "red" }),
        json!({ "limit_key": "x".repeat(65), "concurrent": 1 }),
    ];
    let invalid = invalid.map(|body| (body, "bad_request"));
    let unreadable = unreadable.map(|body| (body, "bad_body"));
    for (body, code) in invalid.into_iter().chain(unreadable) {
        let request = api("PUT", "/v1/limits/a").json(&body);
        server.refused(request, 400, code).await;
        // Nor through the documents behind them.
        let write =
            json!({ "name": "a", "op_id": "550e8400-e29b-41d4-a716-446655440000", "body": body });
        let request = api("POST", "/v1/settings/limits").json(&write);
        server.refused(request, 400, "bad_request").await;
    }
    let task = json!({ "task_type": "t", "limit_key": "no/slash" });
    let request = api("POST", "/v1/tasks").json(&task);
    server.refused(request, 400, "bad_body").await;
    let (_, all) = server.reply(api("GET", "/v1/limits")).await;
    assert_eq!(all["limits"], json!([]));
}
