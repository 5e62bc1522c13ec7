//! Schedules over HTTP, and the documents behind them.

use std::sync::Arc;
use std::time::Duration;

use qo::{DirectConfig, Engine, Timestamp};
use serde_json::json;

use crate::support::{WAIT_MAX, api, config, engine_on, memory, serve, serve_engine, slate_on};

/// A server fires the schedules of its queue, without a worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_fires_each_tick_once() {
    for mode in ["direct", "slate"] {
        let store = memory();
        let engine: Arc<dyn Engine> = match mode {
            "direct" => Arc::new(engine_on(&store, DirectConfig::local())),
            _ => Arc::new(slate_on(&store).await),
        };
        let server = serve_engine(store, engine, config()).await;
        let body = json!({ "every_ms": 1_000, "task": { "task_type": "report" } });
        let put = api("PUT", "/v1/schedules/often").json(&body);
        let (status, schedule) = server.reply(put).await;
        assert_eq!(status, 200, "{schedule}");
        let first: Timestamp = schedule["next"].as_str().unwrap().parse().unwrap();
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        let runs = loop {
            let (_, shown) = server.reply(api("GET", "/v1/schedules/often")).await;
            let runs = shown["recent"].as_array().unwrap().clone();
            if runs.len() >= 2 {
                break runs;
            }
            assert!(tokio::time::Instant::now() < deadline, "{mode}: {shown}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        for (run, expected) in runs.iter().zip([first, first.plus_millis(1_000)]) {
            assert_eq!(run["tick"], expected.to_string(), "{mode}: {runs:?}");
            let id = run["task"].as_str().unwrap();
            let (status, task) = server.reply(api("GET", format!("/v1/tasks/{id}"))).await;
            assert_eq!((status, &task["task_type"]), (200, &json!("report")));
            assert_eq!(task["tags"], json!(["schedule:often"]), "{mode}");
        }
    }
}

#[tokio::test]
async fn a_schedule_is_defined_shown_changed_and_removed() {
    let server = serve(config()).await;
    let body = json!({
        "cron": "30 2 * * *", "time_zone": "Europe/Berlin", "overlap": "skip",
        "task": { "task_type": "report", "input": { "n": 1 } },
    });
    let (status, schedule) = server
        .reply(api("PUT", "/v1/schedules/nightly").json(&body))
        .await;
    assert_eq!(status, 200, "{schedule}");
    assert_eq!(schedule["spec"]["cron"], "30 2 * * *");
    assert!(schedule["next"].is_string(), "{schedule}");
    // The same again changes nothing.
    let (_, again) = server
        .reply(api("PUT", "/v1/schedules/nightly").json(&body))
        .await;
    assert_eq!(again["created_at"], schedule["created_at"]);
    let (_, all) = server.reply(api("GET", "/v1/schedules")).await;
    assert_eq!(all["schedules"][0]["name"], "nightly");
    let (_, paused) = server
        .reply(api("POST", "/v1/schedules/nightly/pause"))
        .await;
    assert!(paused["paused_at"].is_string() && paused["next"].is_null());
    let (_, resumed) = server
        .reply(api("POST", "/v1/schedules/nightly/resume"))
        .await;
    assert!(resumed["paused_at"].is_null() && resumed["next"].is_string());
    let (_, triggered) = server
        .reply(api("POST", "/v1/schedules/nightly/trigger"))
        .await;
    let id = triggered["task_id"].as_str().unwrap();
    let (_, task) = server.reply(api("GET", format!("/v1/tasks/{id}"))).await;
    assert_eq!(task["tags"], json!(["schedule:nightly"]));
    let range = json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-04T00:00:00Z" });
    let backfill = || api("POST", "/v1/schedules/nightly/backfill").json(&range);
    let (_, report) = server.reply(backfill()).await;
    assert_eq!(report["tasks"].as_array().unwrap().len(), 3);
    let (_, report) = server.reply(backfill()).await;
    assert_eq!(report["existing"], 3);
    let removed = server.send(api("DELETE", "/v1/schedules/nightly")).await;
    assert_eq!(removed.status(), 204);
    for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/trigger")] {
        let request = api(method, format!("/v1/schedules/nightly{path}"));
        server.refused(request, 404, "schedule_not_found").await;
    }
}

#[tokio::test]
async fn a_schedule_gives_its_tasks_an_ordering_key() {
    let server = serve(config()).await;
    let of = |task: serde_json::Value| json!({ "every_ms": 60_000, "task": task });
    let put = |body| api("PUT", "/v1/schedules/books").json(&body);
    let long_key = "k".repeat(257);
    for (bad, code) in [
        (
            json!({ "task_type": "book", "ordering_key": long_key }),
            "bad_body",
        ),
        (
            json!({ "task_type": "book", "ordering_key": "" }),
            "bad_body",
        ),
        (
            json!({ "task_type": "book", "ordering_on_failure": "stop" }),
            "bad_request",
        ),
        (
            json!({ "task_type": "book", "ordering_key": "k", "ordering_on_failure": "explode" }),
            "bad_body",
        ),
    ] {
        server.refused(put(of(bad)), 400, code).await;
    }
    let (_, all) = server.reply(api("GET", "/v1/schedules")).await;
    assert_eq!(all["schedules"], json!([]), "nothing is written");
    let task =
        json!({ "task_type": "book", "ordering_key": "account-17", "ordering_on_failure": "stop" });
    let (status, schedule) = server.reply(put(of(task.clone()))).await;
    assert_eq!((status, &schedule["spec"]["task"]), (200, &task));
    let trigger = || api("POST", "/v1/schedules/books/trigger");
    let (_, first) = server.reply(trigger()).await;
    let (_, second) = server.reply(trigger()).await;
    let id = second["task_id"].as_str().unwrap();
    let (_, waits) = server
        .reply(api("GET", format!("/v1/tasks/{id}/waits_for")))
        .await;
    let waits = &waits["waits_for"];
    assert_eq!(waits["reason"], "ordering_key", "{waits}");
    assert_eq!(waits["behind"], first["task_id"], "{waits}");
    let (_, task) = server.reply(api("GET", format!("/v1/tasks/{id}"))).await;
    assert_eq!(task["ordering_on_failure"], "stop");
}

/// The routes for remote engines store documents of any form. A reader of such a schedule is not at fault.
#[tokio::test]
async fn an_unreadable_record_is_an_error_of_the_server() {
    let server = serve(config()).await;
    let write = json!({ "name": "odd", "op_id": "550e8400-e29b-41d4-a716-446655440000", "body": { "n": 1 } });
    let (status, written) = server
        .reply(api("POST", "/v1/settings/schedules").json(&write))
        .await;
    assert_eq!(status, 200, "{written}");
    for (method, path) in [("GET", ""), ("POST", "/pause"), ("POST", "/trigger")] {
        let request = api(method, format!("/v1/schedules/odd{path}"));
        let (status, problem) = server.reply(request).await;
        assert_eq!((status, &problem["code"]), (500, &json!("store_corrupt")));
        assert_eq!(problem["key"], "schedules/odd");
    }
    // It can be removed.
    let removed = server.send(api("DELETE", "/v1/schedules/odd")).await;
    assert_eq!(removed.status(), 204);
}

#[tokio::test]
async fn bad_schedules_are_refused_and_write_nothing() {
    let server = serve(config()).await;
    let task = json!({ "task_type": "t" });
    for body in [
        json!({ "task": task }),
        json!({ "cron": "61 * * * *", "task": task }),
        json!({ "cron": "* * * * *", "time_zone": "Mars/Olympus", "task": task }),
        json!({ "every_ms": 0, "task": task }),
        json!({ "every_ms": 1000, "cron": "* * * * *", "task": task }),
        json!({ "every_ms": 1000, "start": "2027-01-02T00:00:00Z", "end": "2027-01-01T00:00:00Z", "task": task }),
        json!({ "at": ["2020-01-01T00:00:00Z"], "task": task }),
    ] {
        let request = api("PUT", "/v1/schedules/a").json(&body);
        server.refused(request, 400, "bad_request").await;
    }
    let request =
        api("PUT", "/v1/schedules/a%2fb").json(&json!({ "every_ms": 1000, "task": task }));
    server.refused(request, 400, "bad_request").await;
    assert_eq!(server.objects().await, [], "nothing was written");
}

#[tokio::test]
async fn documents_change_by_compare_and_swap() {
    let server = serve(config()).await;
    let first = "550e8400-e29b-41d4-a716-446655440000";
    let second = "650e8400-e29b-41d4-a716-446655440000";
    let limit = |concurrent: u32| json!({ "limit_key": "stripe", "concurrent": concurrent });
    let create = json!({ "name": "stripe", "op_id": first, "body": limit(5) });
    for _ in 0..2 {
        let (status, written) = server
            .reply(api("POST", "/v1/settings/limits").json(&create))
            .await;
        assert_eq!(
            (status, &written["setting"]["version"]),
            (200, &json!(first))
        );
    }
    let late = json!({ "name": "stripe", "op_id": second, "body": limit(1) });
    let request = api("POST", "/v1/settings/limits").json(&late);
    let problem = server.refused(request, 409, "settings_conflict").await;
    assert_eq!(problem["name"], "stripe");
    let (_, read) = server
        .reply(api("GET", "/v1/settings/limits?name=stripe"))
        .await;
    assert_eq!(read["settings"][0]["body"], limit(5));
    let remove = json!({ "name": "stripe", "op_id": second, "version": first });
    let (status, written) = server
        .reply(api("POST", "/v1/settings/limits").json(&remove))
        .await;
    assert_eq!((status, written), (200, json!({})));
    let unknown = api("GET", "/v1/settings/others");
    server.refused(unknown, 400, "bad_request").await;
}
