//! The operator's view of a server: health, readiness, metrics, events and shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use qo::{ClaimRequest, Engine, Json, SubmitRequest};
use qo_remote::RemoteConfig;
use qo_remote::RemoteEngine;
use qo_server::Leader;
use qo_store::runtime::{BoxFuture, TokioRuntime};
use qo_store::wrap::{CountingStore, Operation};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{WAIT_MAX, api, config, json_on, memory, serve, serve_engine, serve_store};

#[tokio::test]
async fn metrics_count_operations() {
    let mut store = memory();
    let counting = Arc::new(CountingStore::new(Arc::clone(&store.objects)));
    store.objects = Arc::clone(&counting) as _;
    let mut config = config();
    config.counts = Some(Arc::new(move || counting.counts()));
    config.stats_max_age = Duration::ZERO;
    let server = serve_store(store, config).await;
    let body = json!({"task_type": "mail", "queue": "q"});
    server.reply(api("POST", "/v1/tasks").json(&body)).await;
    server.reply(api("POST", "/v1/tasks").json(&body)).await;
    let claim = json!({"worker_id": "w", "queues": ["q"], "wait_ms": 20_000});
    let (_, claimed) = server.reply(api("POST", "/v1/claim").json(&claim)).await;
    let task = &claimed["tasks"][0];
    let path = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
    let done = json!({ "lease_id": task["lease_id"] });
    server.reply(api("POST", path).json(&done)).await;

    let response = server.send(api("GET", "/metrics")).await;
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
        "qo_task_wait_seconds_count{queue=\"q\",type=\"mail\"} 1",
        "qo_task_run_seconds_count{queue=\"q\",type=\"mail\"} 1",
        "qo_task_total_seconds_count{queue=\"q\",type=\"mail\"} 1",
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

/// A leader that a test controls. Epoch 0 means that it does not lead.
struct Appointed {
    epoch: watch::Sender<u64>,
    elsewhere: Option<String>,
    /// The number of confirmations until it stops leading.
    answers_left: AtomicUsize,
}

impl Appointed {
    fn new(epoch: u64) -> Self {
        Self {
            epoch: watch::Sender::new(epoch),
            elsewhere: None,
            answers_left: AtomicUsize::new(usize::MAX),
        }
    }
}

impl Leader for Appointed {
    fn id(&self) -> &'static str {
        "me"
    }

    fn is_confirmed(&self) -> bool {
        *self.epoch.borrow() > 0
    }

    fn confirm(&self) -> BoxFuture<Option<u64>> {
        if self.answers_left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.epoch.send_replace(0);
        }
        let epoch = *self.epoch.borrow();
        Box::pin(std::future::ready((epoch > 0).then_some(epoch)))
    }

    fn epoch_ended(&self, epoch: u64) -> BoxFuture<()> {
        let mut current = self.epoch.subscribe();
        Box::pin(async move {
            let _ = current.wait_for(|current| *current != epoch).await;
        })
    }

    fn leader_address(&self) -> Option<String> {
        self.elsewhere.clone()
    }
}

#[tokio::test]
async fn only_a_leader_serves() {
    let other = serve(crate::support::config()).await;
    let mut config = config();
    let mut leader = Appointed::new(7);
    leader.elsewhere = Some(other.url.clone());
    let leader = Arc::new(leader);
    config.leader = Some(leader.clone());
    let server = serve(config).await;
    let metrics = async || {
        server
            .send(api("GET", "/metrics"))
            .await
            .text()
            .await
            .unwrap()
    };
    let has = |text: &str, line: &str| text.lines().any(|found| found == line);
    assert_eq!(server.send(api("GET", "/readyz")).await.status(), 200);
    assert_eq!(server.send(api("GET", "/v1/stats")).await.status(), 200);
    let text = metrics().await;
    assert!(
        has(&text, "qo_leader 1") && has(&text, "qo_leader_epoch 7"),
        "{text}"
    );
    leader.epoch.send_replace(0);
    assert_eq!(server.send(api("GET", "/readyz")).await.status(), 503);
    let text = metrics().await;
    assert!(
        has(&text, "qo_leader 0") && !text.contains("qo_leader_epoch"),
        "{text}"
    );
    assert_eq!(server.send(api("GET", "/healthz")).await.status(), 200);
    let problem = server
        .refused(api("GET", "/v1/stats"), 503, "not_leader")
        .await;
    assert_eq!(problem["leader"], other.url);
    let submit = api("POST", "/v1/tasks").json(&json!({"task_type": "t"}));
    server.refused(submit, 503, "not_leader").await;
    assert_eq!(server.objects().await, [], "nothing was written");

    // A client with both addresses uses the other server, and so does a client that learns the leader's address.
    for urls in [format!("{},{}", server.url, other.url), server.url.clone()] {
        let config = RemoteConfig::parse(&urls).unwrap();
        let engine = RemoteEngine::new(config, TokioRuntime::shared()).unwrap();
        let request = SubmitRequest::new("t".parse().unwrap(), Json::null());
        let task = engine.submit(request).await.unwrap().task;
        assert_eq!(other.engine.get(task.id).await.unwrap(), task);
    }
}

#[tokio::test]
async fn a_request_for_another_broker_is_refused() {
    let mut config = config();
    let leader = Arc::new(Appointed::new(1));
    config.leader = Some(leader.clone());
    let broker = serve(config).await;
    let plain = serve(crate::support::config()).await;
    let asked = |path: &str, id: &str| api("GET", path).header("qo-broker", id);
    assert_eq!(broker.send(asked("/v1/stats", "me")).await.status(), 200);
    assert_eq!(broker.send(asked("/healthz", "me")).await.status(), 200);
    for path in ["/v1/stats", "/healthz"] {
        broker.refused(asked(path, "you"), 421, "misdirected").await;
        plain.refused(asked(path, "me"), 421, "misdirected").await;
    }

    // A standby reaches only the leader that it names.
    let ping = qo_remote::Ping::new(None).unwrap();
    assert!(ping.reaches(&broker.url, "me").await);
    assert!(!ping.reaches(&broker.url, "you").await);
    assert!(!ping.reaches(&plain.url, "me").await);
    assert!(!ping.reaches("http://127.0.0.1:9", "me").await);
    assert!(!ping.reaches("no address", "me").await);

    // A leader that cannot prove that it leads is alive, and counts as silent.
    leader.epoch.send_replace(0);
    assert_eq!(broker.send(asked("/healthz", "me")).await.status(), 503);
    assert_eq!(broker.send(api("GET", "/healthz")).await.status(), 200);
    assert!(!ping.reaches(&broker.url, "me").await);
}

#[tokio::test]
async fn a_closed_queue_refuses_an_array_as_a_whole() {
    let store = memory();
    let engine = json_on(&store);
    let server = serve_engine(store, Arc::new(engine), config()).await;
    let submits = || api("POST", "/v1/tasks").json(&json!([{"task_type": "t"}, {"nonsense": 1}]));
    let (status, answers) = server.reply(submits()).await;
    assert_eq!((status, answers.as_array().unwrap().len()), (200, 2));
    let task = &answers[0]["task"];
    server.engine.close().await;
    server.refused(submits(), 503, "closed").await;
    let lease = "550e8400-e29b-41d4-a716-446655440000";
    let end = json!([{"id": task["id"], "release": {"lease_id": lease}}]);
    let told = api("POST", "/v1/outcomes").json(&end);
    server.refused(told, 503, "closed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_streams_end_when_another_process_leads() {
    let mut config = config();
    let leader = Arc::new(Appointed::new(1));
    config.leader = Some(leader.clone());
    let server = serve(config).await;
    let mut response = server.send(api("GET", "/v1/events")).await;
    assert_eq!(response.status(), 200);
    leader.epoch.send_replace(2);
    let rest = tokio::time::timeout(WAIT_MAX, async {
        while let Ok(Some(_)) = response.chunk().await {}
    });
    rest.await.unwrap();
    leader.epoch.send_replace(0);
    server
        .refused(api("GET", "/v1/events"), 503, "not_leader")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_streams_report_the_changes_of_a_queue() {
    let mut server = serve(config()).await;
    let mut response = server.send(api("GET", "/v1/events?queue=q")).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    for queue in ["other", "q"] {
        let body = json!({"task_type": "t", "queue": queue});
        server.reply(api("POST", "/v1/tasks").json(&body)).await;
    }
    let chunk = tokio::time::timeout(WAIT_MAX, response.chunk())
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
    // The stream ends when the server stops.
    server.stop();
    let rest = tokio::time::timeout(WAIT_MAX, async {
        while let Ok(Some(_)) = response.chunk().await {}
    });
    rest.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_waiting_claims_and_finishes_running_requests() {
    let mut server = serve(config()).await;
    let config = RemoteConfig::parse(&server.url).unwrap();
    let engine = RemoteEngine::new(config, TokioRuntime::shared()).unwrap();
    let waiting = tokio::task::spawn({
        let engine = engine.clone();
        async move {
            let claim = ClaimRequest {
                wait_ms: 2_000,
                ..ClaimRequest::new("w".parse().unwrap(), vec![])
            };
            engine.claim(&claim).await
        }
    });
    let request = SubmitRequest {
        queue: "other".parse().unwrap(),
        ..SubmitRequest::new("t".parse().unwrap(), Json::null())
    };
    engine.submit(request).await.unwrap();
    server.stop();
    let ended = server.ended.take().unwrap();
    tokio::time::timeout(WAIT_MAX, ended)
        .await
        .unwrap()
        .unwrap();
    // The client would retry until its time is up and then report that no server is reachable.
    waiting.abort();
    assert!(
        tokio::net::TcpStream::connect(server.authority())
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_its_leadership_during_a_request_refuses_it() {
    let mut config = config();
    // The server leads when the request arrives, and no longer when the response is ready.
    let leader = Appointed::new(1);
    leader.answers_left.store(1, Ordering::Relaxed);
    config.leader = Some(Arc::new(leader));
    let server = serve(config).await;
    server
        .refused(api("GET", "/v1/stats"), 503, "not_leader")
        .await;
}

#[tokio::test]
async fn a_scrape_in_direct_mode_costs_a_bounded_number_of_requests() {
    const TASKS: u64 = 1_500;
    let mut store = memory();
    let counting = Arc::new(CountingStore::new(Arc::clone(&store.objects)));
    store.objects = Arc::clone(&counting) as _;
    let mut config = config();
    config.stats_max_age = Duration::ZERO;
    let server = serve_store(store, config).await;
    let requests = (0..TASKS)
        .map(|_| SubmitRequest::new("t".parse().unwrap(), Json::null()))
        .collect();
    server.engine.submit_many(requests).await;
    let scrape = async || {
        let before = counting.counts();
        let response = server.send(api("GET", "/metrics")).await;
        let text = response.text().await.unwrap();
        let pending = text
            .lines()
            .filter_map(|line| line.strip_prefix("qo_tasks{")?.rsplit(' ').next())
            .map(|number| number.parse::<u64>().unwrap())
            .sum::<u64>();
        let is_partial = text.lines().any(|line| line == "qo_tasks_partial 1");
        let counts = counting.counts().since(&before);
        let reads = counts.of("tasks", Operation::Get).requests;
        let lists = counts.of("tasks", Operation::List).requests;
        assert!(lists <= 20, "{lists}");
        (pending, is_partial, reads)
    };
    assert_eq!(scrape().await, (1_000, true, 1_000));
    assert_eq!(scrape().await, (TASKS, false, 500));
    assert_eq!(scrape().await, (TASKS, false, 0), "nothing has changed");
    let claim = ClaimRequest::new("w".parse().unwrap(), vec![]);
    assert_eq!(server.engine.claim(&claim).await.unwrap().len(), 1);
    let (_, _, reads) = scrape().await;
    assert_eq!(reads, 1, "only the task that has changed is read again");
}

#[tokio::test]
async fn workers_are_asked_to_be_quiet_or_to_stop() {
    let server = serve(config()).await;
    let ask = |name: &str, action: &str| api("POST", format!("/v1/workers/{name}/{action}"));
    server
        .refused(ask("w1", "quiet"), 404, "worker_not_found")
        .await;
    let record = json!({
        "worker_id": "w1", "started_at": "2026-01-01T00:00:00.000Z", "last_heartbeat": "2026-01-01T00:00:00.000Z",
        "request": {"action": "stop", "at": "2026-01-01T00:00:00.000Z"},
    });
    let beat = || api("PUT", "/v1/workers/w1").json(&record);
    // What a heartbeat says about requests does not count.
    assert_eq!(server.reply(beat()).await.0, 204);
    let (status, worker) = server
        .reply(ask("w1", "quiet").header("qo-actor", "ada"))
        .await;
    assert_eq!(
        (status, &worker["request"]["action"]),
        (200, &json!("quiet")),
        "{worker}"
    );
    assert_eq!(worker["request"]["by"], "ada");
    let (status, asked) = server.reply(beat()).await;
    assert_eq!(
        (status, &asked["request"]["action"]),
        (200, &json!("quiet")),
        "{asked}"
    );
    server.reply(ask("w1", "stop")).await;
    let (_, asked) = server.reply(beat()).await;
    assert_eq!(asked["request"]["action"], "stop");
    assert_eq!(server.reply(ask("w1", "resume")).await.0, 200);
    assert_eq!(server.reply(beat()).await.0, 204);
}
