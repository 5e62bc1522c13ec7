//! Tasks over plain HTTP.

mod in_the_background;

use serde_json::{Value, json};

use crate::support::{TestServer, api, config, serve};

pub(crate) async fn submitted(server: &TestServer, body: Value) -> Value {
    let (status, answer) = server.reply(api("POST", "/v1/tasks").json(&body)).await;
    assert_eq!(status, 201, "{answer}");
    answer["task"].clone()
}

fn id(task: &Value) -> String {
    task["id"].as_str().unwrap().to_owned()
}

async fn claimed(server: &TestServer) -> Value {
    let request = json!({ "worker_id": "w", "wait_ms": 20_000 });
    let (status, answer) = server.reply(api("POST", "/v1/claim").json(&request)).await;
    assert_eq!(status, 200, "{answer}");
    answer["tasks"][0].clone()
}

#[tokio::test]
async fn a_task_is_submitted_claimed_and_completed() {
    let server = serve(config()).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = api("POST", "/v1/tasks")
        .header("traceparent", trace)
        .body(r#"{"task_type":"t","input":{"n": 1.10,"a" :1}}"#);
    let response = server.send(request).await;
    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let (_, task) = server.reply(api("GET", &location)).await;
    assert_eq!(task["status"], "pending");
    let (_, text) = {
        let response = server.send(api("GET", format!("{location}/input"))).await;
        (response.status(), response.text().await.unwrap())
    };
    assert_eq!(
        text, r#"{"n": 1.10,"a" :1}"#,
        "the input is unchanged to the byte"
    );

    let task = claimed(&server).await;
    assert_eq!(task["traceparent"], trace, "the trace reaches the handler");
    let lease = &task["lease_id"];
    let step = |name: &str, body: Value| {
        let mut body = body;
        body["lease_id"] = lease.clone();
        api("POST", format!("{location}/{name}")).json(&body)
    };
    let (status, renewed) = server
        .reply(step("renew", json!({"lease_ms": 60_000})))
        .await;
    assert_eq!((status, &renewed["status"]), (200, &json!("running")));
    let (_, progress) = server
        .reply(step("progress", json!({"percent": 40, "message": "half"})))
        .await;
    assert_eq!(progress["progress"]["percent"], 40.0);
    let (status, done) = server
        .reply(step("complete", json!({"output": [1, 2], "log": "sent\n"})))
        .await;
    assert_eq!((status, &done["status"]), (200, &json!("completed")));
    let (_, output) = server.reply(api("GET", format!("{location}/output"))).await;
    assert_eq!(output, json!([1, 2]));
    let (_, waited) = server
        .reply(api("GET", format!("{location}?wait_ms=10")))
        .await;
    assert_eq!(waited["status"], "completed");
    let (_, history) = server
        .reply(api("GET", format!("{location}/history")))
        .await;
    assert_eq!(history["events"].as_array().unwrap().len(), 3);
    let (_, logs) = server.reply(api("GET", format!("{location}/logs"))).await;
    let log = &logs["logs"][0];
    assert_eq!(
        (&log["attempt"], &log["text"]),
        (&json!(1), &json!("sent\n"))
    );
    // Lists omit logs unless they are asked for.
    let (_, page) = server.reply(api("GET", "/v1/tasks")).await;
    assert!(page["tasks"][0]["id"].is_string() && page["tasks"][0]["logs"].is_null());
    let (_, page) = server.reply(api("GET", "/v1/tasks?fields=id,logs")).await;
    assert_eq!(page["tasks"][0]["logs"], logs["logs"]);
}

#[tokio::test]
async fn the_other_outcomes_of_an_attempt() {
    let server = serve(config()).await;
    for (name, body, status) in [
        (
            "fail",
            json!({"error": "a bug", "kind": "permanent"}),
            "failed",
        ),
        ("release", json!({}), "pending"),
        ("snooze", json!({"delay_ms": 3_600_000}), "pending"),
    ] {
        submitted(&server, json!({"task_type": "t"})).await;
        let task = claimed(&server).await;
        let mut body = body;
        body["lease_id"] = task["lease_id"].clone();
        let path = format!("/v1/tasks/{}/{name}", id(&task));
        let (code, after) = server.reply(api("POST", &path).json(&body)).await;
        assert_eq!((code, &after["status"]), (200, &json!(status)), "{name}");
        let problem = server
            .refused(api("POST", &path).json(&body), 409, "lease_lost")
            .await;
        assert_eq!(problem["task_status"], status);
        if name == "release" {
            let again = claimed(&server).await;
            let path = format!("/v1/tasks/{}/complete", id(&again));
            let body = json!({ "lease_id": again["lease_id"] });
            server.reply(api("POST", path).json(&body)).await;
        }
    }
}

#[tokio::test]
async fn each_part_of_an_array_has_its_own_result() {
    let server = serve(config()).await;
    let parts = json!([
        { "task_type": "t", "input": 1 },
        { "task_type": "t", "priority": 10 },
        { "task_type": "t", "colour": "red" },
        { "task_type": "t", "input": 2 },
    ]);
    let (status, answers) = server.reply(api("POST", "/v1/tasks").json(&parts)).await;
    assert_eq!(status, 200);
    let codes: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| answer["problem"]["code"].as_str().unwrap_or("done"))
        .collect();
    assert_eq!(codes, ["done", "out_of_bounds", "bad_body", "done"]);
    assert_eq!(answers[3]["task"]["input"], 2);

    let request = json!({ "worker_id": "w", "max": 10, "wait_ms": 20_000 });
    let mut tasks = Vec::new();
    while tasks.len() < 2 {
        let (_, answer) = server.reply(api("POST", "/v1/claim").json(&request)).await;
        tasks.extend(answer["tasks"].as_array().unwrap().clone());
    }
    let outcomes = json!([
        { "id": tasks[0]["id"], "complete": { "lease_id": tasks[0]["lease_id"], "output": "x" } },
        { "id": tasks[0]["id"], "complete": { "lease_id": "550e8400-e29b-41d4-a716-446655440000" } },
        { "id": tasks[1]["id"], "fail": { "lease_id": tasks[1]["lease_id"], "error": "e" } },
        { "id": tasks[1]["id"] },
    ]);
    let (_, answers) = server
        .reply(api("POST", "/v1/outcomes").json(&outcomes))
        .await;
    assert_eq!(answers[0]["task"]["status"], "completed");
    assert_eq!(answers[1]["problem"]["code"], "lease_lost");
    assert_eq!(answers[2]["task"]["status"], "pending");
    assert_eq!(answers[3]["problem"]["code"], "bad_request");
    let too_many = vec![json!({"task_type": "t"}); 1_001];
    let request = api("POST", "/v1/tasks").json(&json!(too_many));
    server.refused(request, 400, "bad_request").await;
}

#[tokio::test]
async fn submits_with_the_same_key_create_one_task() {
    let server = serve(config()).await;
    let submit = || {
        api("POST", "/v1/tasks")
            .header("idempotency-key", "order 17")
            .json(&json!({"task_type": "t"}))
    };
    let (first, task) = server.reply(submit()).await;
    let (second, again) = server.reply(submit()).await;
    assert_eq!((first, second), (201, 200));
    assert_eq!(task["task"]["id"], again["task"]["id"]);
    assert_eq!(again["duplicate"], true);
    let quoted = api("POST", "/v1/tasks")
        .header("idempotency-key", "\"order 17\"")
        .json(&json!({"task_type": "t"}));
    assert_eq!(server.reply(quoted).await.0, 200);
    let differs = api("POST", "/v1/tasks")
        .header("idempotency-key", "order 18")
        .json(&json!({"task_type": "t", "idempotency_key": "order 17"}));
    server.refused(differs, 400, "bad_request").await;
}

#[tokio::test]
async fn payloads_are_uploaded_and_downloaded() {
    let server = serve(config()).await;
    let task = submitted(
        &server,
        json!({"task_type": "t", "input_bytes": {"$bytes": "PGI+aGk8L2I+", "content_type": "text/html"}}),
    )
    .await;
    let path = format!("/v1/tasks/{}/input", id(&task));
    let (_, kept) = server.reply(api("GET", &path)).await;
    assert_eq!(
        kept,
        json!({"$bytes": "PGI+aGk8L2I+", "content_type": "text/html"})
    );
    let response = server.send(api("GET", format!("{path}?raw=true"))).await;
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "text/html");
    assert_eq!(
        headers["content-disposition"], "attachment",
        "a browser must not render it"
    );
    assert!(
        headers["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("sandbox")
    );
    assert_eq!(response.text().await.unwrap(), "<b>hi</b>");
    let plain = submitted(&server, json!({"task_type": "t", "input": 1})).await;
    let raw = api("GET", format!("/v1/tasks/{}/input?raw=true", id(&plain)));
    server.refused(raw, 400, "bad_request").await;
}

#[tokio::test]
async fn a_bulk_run_now_makes_waiting_tasks_due() {
    let server = serve(config()).await;
    let hour = json!({"task_type": "t", "delay_ms": 3_600_000});
    let waiting = submitted(&server, hour).await;
    submitted(&server, json!({"task_type": "u"})).await;
    // The second task is already due.
    let dry = json!({"operation": "run_now", "filter": {}, "dry_run": true});
    let (status, counted) = server.reply(api("POST", "/v1/bulk").json(&dry)).await;
    assert_eq!((status, &counted["matched"]), (200, &json!(1)), "{counted}");
    let bulk = json!({"operation": "run_now", "filter": {}});
    let (status, report) = server.reply(api("POST", "/v1/bulk").json(&bulk)).await;
    assert_eq!((status, &report["done"]), (200, &json!(1)), "{report}");
    let (_, task) = server
        .reply(api("GET", format!("/v1/tasks/{}", id(&waiting))))
        .await;
    assert_eq!(task["events"][1]["action"], "run_now");
}

#[tokio::test]
async fn tasks_are_moved_to_another_queue() {
    let server = serve(config()).await;
    let task = submitted(&server, json!({"task_type": "t"})).await;
    let path = format!("/v1/tasks/{}/redrive", id(&task));
    for body in [json!({}), json!({"to": "a/b"}), json!({"to": "b", "x": 1})] {
        let refused = api("POST", path.clone()).json(&body);
        assert_eq!(server.reply(refused).await.0, 400, "{body}");
    }
    let request = || api("POST", path.clone()).json(&json!({"to": "b"}));
    let (status, moved) = server.reply(request()).await;
    assert_eq!((status, &moved["queue"]), (200, &json!("b")), "{moved}");
    let problem = server.refused(request(), 409, "already_in_queue").await;
    assert_eq!(problem["queue"], "b");

    let many = |body: Value| api("POST", "/v1/bulk").json(&body);
    for body in [
        json!({"operation": "redrive", "filter": {}}),
        json!({"operation": "replay", "filter": {}, "to": "b"}),
    ] {
        server.refused(many(body), 400, "bad_request").await;
    }
    submitted(&server, json!({"task_type": "t"})).await;
    let bulk = json!({"operation": "redrive", "filter": {}, "to": "b"});
    let (status, report) = server.reply(many(bulk.clone())).await;
    assert_eq!((status, &report["done"]), (200, &json!(1)), "{report}");
    // Those that are there already do not match.
    let (_, report) = server.reply(many(bulk)).await;
    assert_eq!(
        (&report["matched"], &report["failed"]),
        (&json!(0), &json!(0))
    );
}

#[tokio::test]
async fn operators_change_single_tasks_and_filtered_tasks() {
    let server = serve(config()).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(id(&submitted(
            &server,
            json!({"task_type": "t", "tags": [format!("n{n}")]}),
        )
        .await));
    }
    let path = |place: usize, operation: &str| format!("/v1/tasks/{}/{operation}", ids[place]);
    let cancel = api("POST", path(0, "cancel")).json(&json!({"reason": "a mistake"}));
    let (_, task) = server.reply(cancel).await;
    assert_eq!(
        (&task["status"], &task["last_error"]),
        (&json!("cancelled"), &json!("a mistake"))
    );
    let (status, task) = server.reply(api("POST", path(0, "replay"))).await;
    assert_eq!((status, &task["status"]), (200, &json!("pending")));

    let bulk = |body: Value| api("POST", "/v1/bulk").json(&body);
    let (_, preview) = server
        .reply(bulk(
            json!({"operation": "cancel", "filter": {}, "dry_run": true}),
        ))
        .await;
    assert_eq!(
        (&preview["matched"], &preview["done"]),
        (&json!(3), &json!(0))
    );
    let (_, report) = server
        .reply(bulk(
            json!({"operation": "cancel", "filter": {"tag": "n1"}, "reason": "r"}),
        ))
        .await;
    assert_eq!(
        (&report["matched"], &report["done"]),
        (&json!(1), &json!(1))
    );
    let (_, report) = server
        .reply(bulk(json!({"operation": "cancel", "filter": {}})))
        .await;
    assert_eq!(report["done"], 2);
    for operation in ["archive", "unarchive"] {
        let (status, _) = server.reply(api("POST", path(0, operation))).await;
        assert_eq!(status, 200);
    }
    let (_, page) = server
        .reply(api("GET", "/v1/tasks?status=cancelled&limit=2"))
        .await;
    assert_eq!(page["tasks"].as_array().unwrap().len(), 2);
    let next = page["next"].as_str().unwrap();
    let next: String = url_encoded(next);
    let (_, page) = server
        .reply(api(
            "GET",
            format!("/v1/tasks?status=cancelled&limit=2&cursor={next}"),
        ))
        .await;
    assert_eq!(page["tasks"].as_array().unwrap().len(), 1);
    let response = server
        .send(api("DELETE", format!("/v1/tasks/{}", ids[0])))
        .await;
    assert_eq!(response.status(), 204);
    server
        .refused(
            api("GET", format!("/v1/tasks/{}", ids[0])),
            404,
            "not_found",
        )
        .await;
}

fn url_encoded(text: &str) -> String {
    text.bytes()
        .fold(String::new(), |text, byte| text + &format!("%{byte:02x}"))
}

#[tokio::test]
async fn queues_and_workers_are_listed() {
    let server = serve(config()).await;
    submitted(&server, json!({"task_type": "t", "queue": "mail"})).await;
    assert_eq!(
        server
            .send(api("POST", "/v1/queues/mail/pause"))
            .await
            .status(),
        204
    );
    let request = api("POST", "/v1/claim").json(&json!({"worker_id": "w", "queues": ["mail"]}));
    let problem = server.refused(request, 409, "queue_paused").await;
    assert_eq!(problem["queues"], json!(["mail"]));
    let (_, stats) = server.reply(api("GET", "/v1/stats")).await;
    assert_eq!(stats["queues"]["mail"]["statuses"]["pending"], 1);
    assert_eq!(stats["queues"]["mail"]["paused"], true);
    assert_eq!(
        server
            .send(api("POST", "/v1/queues/mail/resume"))
            .await
            .status(),
        204
    );

    let pause = api("POST", "/v1/types/t/pause").header("qo-actor", "ada");
    let pause = pause.json(&json!({"reason": "the provider is down"}));
    assert_eq!(server.send(pause).await.status(), 204);
    let request = api("POST", "/v1/claim").json(&json!({"worker_id": "w", "types": ["t"]}));
    let problem = server.refused(request, 409, "queue_paused").await;
    assert_eq!(problem["types"], json!(["t"]));
    let (_, pauses) = server.reply(api("GET", "/v1/pauses")).await;
    let shown = &pauses["types"]["t"];
    assert_eq!(
        (&shown["by"], &shown["reason"]),
        (&json!("ada"), &json!("the provider is down"))
    );
    let (_, stats) = server.reply(api("GET", "/v1/stats")).await;
    assert_eq!(stats["pauses"], pauses);
    let long = json!({"reason": "x".repeat(5_000)});
    for (body, code) in [(json!({"why": "x"}), "bad_body"), (long, "bad_request")] {
        let request = api("POST", "/v1/types/t/pause").json(&body);
        server.refused(request, 400, code).await;
    }
    assert_eq!(
        server
            .send(api("POST", "/v1/types/t/resume"))
            .await
            .status(),
        204
    );
    let (_, pauses) = server.reply(api("GET", "/v1/pauses")).await;
    assert_eq!(pauses, json!({"queues": {}, "types": {}}));

    let worker = json!({
        "worker_id": "w1", "started_at": "2026-01-01T00:00:00Z", "last_heartbeat": "2026-01-01T00:00:00Z"
    });
    let heartbeat = api("PUT", "/v1/workers/w1").json(&worker);
    assert_eq!(server.send(heartbeat).await.status(), 204);
    let other = api("PUT", "/v1/workers/w2").json(&worker);
    server.refused(other, 400, "bad_request").await;
    let (_, workers) = server.reply(api("GET", "/v1/workers")).await;
    assert_eq!(workers["workers"][0]["worker_id"], "w1");
    assert_eq!(
        server.send(api("DELETE", "/v1/workers/w1")).await.status(),
        204
    );
    let (_, info) = server.reply(api("GET", "/v1/info")).await;
    assert_eq!(info["service"], "qo");
}

#[tokio::test]
async fn tasks_with_one_ordering_key_run_in_order() {
    let server = serve(config()).await;
    let body = json!({"task_type": "t", "ordering_key": "k", "ordering_on_failure": "stop"});
    let first = submitted(&server, body).await;
    let second = submitted(&server, json!({"task_type": "t", "ordering_key": "k"})).await;
    let waits_for = async |task: &Value| {
        let path = format!("/v1/tasks/{}/waits_for", id(task));
        let (status, answer) = server.reply(api("GET", path)).await;
        assert_eq!(status, 200, "{answer}");
        answer["waits_for"].clone()
    };
    let behind = |stopped: bool| json!({"reason": "ordering_key", "behind": id(&first), "ahead": 1, "stopped": stopped});
    assert_eq!(waits_for(&first).await, Value::Null);
    assert_eq!(waits_for(&second).await, behind(false));
    let task = claimed(&server).await;
    assert_eq!(id(&task), id(&first));
    let failure = json!({"lease_id": task["lease_id"], "error": "no", "kind": "permanent"});
    let path = format!("/v1/tasks/{}", id(&first));
    server
        .reply(api("POST", format!("{path}/fail")).json(&failure))
        .await;
    assert_eq!(waits_for(&second).await, behind(true));
    server
        .refused(api("POST", format!("{path}/archive")), 409, "stops_line")
        .await;
    let (status, cancelled) = server.reply(api("POST", format!("{path}/cancel"))).await;
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")));
    assert_eq!(id(&claimed(&server).await), id(&second));
    let (_, before) = server.reply(api("GET", "/v1/tasks")).await;
    for bad in [
        json!({"task_type": "t", "ordering_key": ""}),
        json!({"task_type": "t", "ordering_key": "k".repeat(257)}),
        json!({"task_type": "t", "ordering_key": "k\n"}),
        json!({"task_type": "t", "limit_key": ""}),
        json!({"task_type": "t", "limit_key": "k".repeat(65)}),
        json!({"task_type": "t", "fairness_group": ""}),
        json!({"task_type": "t", "ordering_on_failure": "stop"}),
        json!({"task_type": "t", "ordering_key": "k", "ordering_on_failure": "maybe"}),
    ] {
        let (status, answer) = server.reply(api("POST", "/v1/tasks").json(&bad)).await;
        assert_eq!(status, 400, "{answer}");
    }
    let longest = json!({"task_type": "t", "ordering_key": "k".repeat(256)});
    let (_, after) = server.reply(api("GET", "/v1/tasks")).await;
    assert_eq!(after["tasks"], before["tasks"], "nothing was written");
    submitted(&server, longest).await;
}
