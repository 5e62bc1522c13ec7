//! What those see who run the server: health, readiness, metrics, events, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qo::{ClaimRequest, Engine, Json, SubmitRequest};
use qo_engine::RemoteEngine;
use qo_engine::remote::RemoteConfig;
use qo_store::world::TokioWorld;
use qo_store::wrap::CountingStore;
use serde_json::{Value, json};

use crate::support::{PATIENCE, ask, config, memory, serve, serve_store};

#[tokio::test]
async fn metrics_tell_what_happened() {
    let mut store = memory();
    let counting = Arc::new(CountingStore::new(Arc::clone(&store.objects)));
    store.objects = Arc::clone(&counting) as _;
    let mut config = config();
    config.counts = Some(Arc::new(move || counting.counts()));
    config.stats_max_age = Duration::ZERO;
    let server = serve_store(store, config).await;
    let body = json!({"task_type": "mail", "queue": "q"});
    server.answer(ask("POST", "/v1/tasks").json(&body)).await;
    server.answer(ask("POST", "/v1/tasks").json(&body)).await;
    let wish = json!({"worker_id": "w", "queues": ["q"], "wait_ms": 20_000});
    let (_, claimed) = server.answer(ask("POST", "/v1/claim").json(&wish)).await;
    let task = &claimed["tasks"][0];
    let path = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
    let done = json!({ "lease_id": task["lease_id"] });
    server.answer(ask("POST", path).json(&done)).await;

    let response = server.send(ask("GET", "/metrics")).await;
    let content_type = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(content_type.starts_with("text/plain; version=0.0.4"));
    let text = response.text().await.unwrap();
    for line in [
        "qo_leader 1",
        "qo_tasks{queue=\"q\",type=\"mail\",status=\"pending\"} 1",
        "qo_tasks{queue=\"q\",type=\"mail\",status=\"completed\"} 1",
        "qo_commit_seconds_count 0",
        "qo_submit_seconds_count 2",
        "qo_claim_seconds_count 1",
        "qo_task_wait_seconds_count 1",
        "qo_task_run_seconds_count 1",
        "qo_task_total_seconds_count 1",
        "qo_http_requests_total{route=\"/v1/tasks\",method=\"POST\",status=\"201\"} 2",
        "qo_http_requests_total{route=\"/v1/tasks/{id}/complete\",method=\"POST\",status=\"200\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(
        text.contains("qo_store_requests_total{prefix=\"tasks\""),
        "{text}"
    );
    assert!(text.contains("qo_store_dollars_total 0.0"), "{text}");
}

#[tokio::test]
async fn only_a_leader_serves() {
    let leads = Arc::new(AtomicBool::new(true));
    let mut config = config();
    let told = Arc::clone(&leads);
    config.leader = Some(Arc::new(move || {
        let leads = told.load(Ordering::Relaxed);
        Box::pin(std::future::ready(leads))
    }));
    let server = serve(config).await;
    let other = serve(crate::support::config()).await;
    assert_eq!(server.send(ask("GET", "/readyz")).await.status(), 200);
    assert_eq!(server.send(ask("GET", "/v1/stats")).await.status(), 200);
    leads.store(false, Ordering::Relaxed);
    assert_eq!(server.send(ask("GET", "/readyz")).await.status(), 503);
    assert_eq!(server.send(ask("GET", "/healthz")).await.status(), 200);
    server
        .refused(ask("GET", "/v1/stats"), 503, "not_leader")
        .await;
    let submit = ask("POST", "/v1/tasks").json(&json!({"task_type": "t"}));
    server.refused(submit, 503, "not_leader").await;
    assert_eq!(server.objects().await, [], "nothing was written");

    // A client that knows both goes to the other one.
    let urls = format!("{},{}", server.url, other.url);
    let config = RemoteConfig::parse(&urls).unwrap();
    let engine = RemoteEngine::new(config, TokioWorld::shared()).unwrap();
    let request = SubmitRequest::new("t".parse().unwrap(), Json::null());
    let task = engine.submit(request).await.unwrap().task;
    assert_eq!(other.engine.get(task.id).await.unwrap(), task);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_hear_what_passes_through() {
    let mut server = serve(config()).await;
    let mut response = server.send(ask("GET", "/v1/events?queue=q")).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    for queue in ["other", "q"] {
        let body = json!({"task_type": "t", "queue": queue});
        server.answer(ask("POST", "/v1/tasks").json(&body)).await;
    }
    let chunk = tokio::time::timeout(PATIENCE, response.chunk())
        .await
        .unwrap();
    let text = String::from_utf8(chunk.unwrap().unwrap().to_vec()).unwrap();
    let data = text
        .lines()
        .find_map(|line| line.strip_prefix("data: "))
        .unwrap();
    let event: Value = serde_json::from_str(data).unwrap();
    assert!(text.contains("event: task"), "{text}");
    assert_eq!(
        (&event["operation"], &event["queue"]),
        (&json!("submit"), &json!("q"))
    );
    assert_eq!(event["status"], "pending");
    // The server's stop ends the stream.
    server.stop();
    let rest = tokio::time::timeout(PATIENCE, async {
        while let Ok(Some(_)) = response.chunk().await {}
    });
    rest.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_what_waits_and_finishes_what_runs() {
    let mut server = serve(config()).await;
    let config = RemoteConfig::parse(&server.url).unwrap();
    let engine = RemoteEngine::new(config, TokioWorld::shared()).unwrap();
    let waiting = tokio::task::spawn({
        let engine = engine.clone();
        async move {
            let wish = ClaimRequest {
                wait_ms: 2_000,
                ..ClaimRequest::new("w".parse().unwrap(), vec![])
            };
            engine.claim(&wish).await
        }
    });
    let request = SubmitRequest {
        queue: "other".parse().unwrap(),
        ..SubmitRequest::new("t".parse().unwrap(), Json::null())
    };
    engine.submit(request).await.unwrap();
    server.stop();
    let ended = server.ended.take().unwrap();
    tokio::time::timeout(PATIENCE, ended)
        .await
        .unwrap()
        .unwrap();
    // The client goes on asking for its time, and then says that there is no server.
    waiting.abort();
    assert!(
        tokio::net::TcpStream::connect(server.authority())
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_leadership_on_the_way_does_not_answer() {
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut config = config();
    let count = Arc::clone(&asked);
    // It leads when the request comes, and no longer when the answer is there.
    config.leader = Some(Arc::new(move || {
        let leads = count.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(std::future::ready(leads))
    }));
    let server = serve(config).await;
    server
        .refused(ask("GET", "/v1/stats"), 503, "not_leader")
        .await;
}
