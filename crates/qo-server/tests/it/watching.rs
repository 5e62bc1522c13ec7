//! Metrics of commits, and events of every change.

use std::sync::Arc;
use std::time::Duration;

use qo::{ClaimRequest, DirectConfig, Engine};
use qo_store::wrap::CountingStore;
use reqwest::Response;
use serde_json::{Value, json};

use qo_fixtures::{TestStore, client_of, until};
use qo_server::ActivityStore;

use crate::support::{
    TestServer, WAIT_MAX, api, config, engine_on, json_on, memory, serve_engine, serve_store,
    slate_on,
};

/// The value of a sample with its labels.
fn sample(text: &str, name: &str) -> f64 {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    value.parse().unwrap()
}

async fn metrics(server: &TestServer) -> String {
    let response = server.send(api("GET", "/metrics")).await;
    response.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_count_commits_and_tasks_by_queue_type_and_status() {
    for journal in ["json", "slate"] {
        let mut store = memory();
        let counting = Arc::new(CountingStore::new(Arc::clone(&store.objects)));
        store.objects = Arc::clone(&counting) as _;
        let engine = match journal {
            "json" => json_on(&store),
            _ => slate_on(&store).await,
        };
        let mut config = config();
        config.counts = Some(Arc::new(move || counting.counts()));
        config.stats_max_age = Duration::ZERO;
        let server = serve_engine(store, Arc::new(engine), config).await;
        let before = metrics(&server).await;
        let commits = |text: &str| sample(text, "qo_commit_seconds_count");
        assert!(commits(&before).abs() < 0.5, "no commits yet");
        let bodies = json!([
            {"task_type": "mail", "queue": "q"},
            {"task_type": "mail", "queue": "q"},
            {"task_type": "mail", "queue": "q"},
            {"task_type": "bill", "queue": "q"},
        ]);
        let (status, _) = server.reply(api("POST", "/v1/tasks").json(&bodies)).await;
        assert_eq!(status, 200);
        let claim = json!({"worker_id": "w", "queues": ["q"], "types": ["mail"], "max": 2});
        let (_, claimed) = server.reply(api("POST", "/v1/claim").json(&claim)).await;
        let task = &claimed["tasks"][0];
        let path = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
        let done = json!({ "lease_id": task["lease_id"] });
        server.reply(api("POST", path).json(&done)).await;

        let text = metrics(&server).await;
        for (status, task_type, count) in [
            ("pending", "mail", 1.0),
            ("running", "mail", 1.0),
            ("completed", "mail", 1.0),
            ("pending", "bill", 1.0),
        ] {
            let name = format!("qo_tasks{{queue=\"q\",type=\"{task_type}\",status=\"{status}\"}}");
            let found: f64 = sample(&text, &name);
            assert!((found - count).abs() < 0.1, "{journal}: {name} {found}");
        }
        // One write each for the submits, the claim and the completion.
        for (name, figure) in [
            ("qo_commit_seconds_count", 3.0),
            ("qo_commit_callers_sum", 3.0),
            ("qo_commit_tasks_sum", 4.0 + 2.0 + 1.0),
            ("qo_commit_tasks_bucket{le=\"2\"}", 2.0),
            ("qo_commit_tasks_bucket{le=\"5\"}", 3.0),
        ] {
            let found: f64 = sample(&text, name);
            assert!((found - figure).abs() < 0.1, "{journal}: {name} {found}");
        }
        for name in [
            "qo_commit_seconds_sum",
            "qo_submit_seconds_sum",
            "qo_claim_seconds_sum",
            "qo_http_request_seconds_sum",
            "qo_store_dollars_total",
            "qo_connections",
        ] {
            assert!(sample(&text, name) > 0.0, "{journal}: {name} in\n{text}");
        }
        for name in [
            "qo_task_wait_seconds_count{queue=\"q\",type=\"mail\"}",
            "qo_task_run_seconds_count{queue=\"q\",type=\"mail\"}",
            "qo_task_total_seconds_count{queue=\"q\",type=\"mail\"}",
            "qo_leader",
        ] {
            assert!(sample(&text, name) >= 1.0, "{journal}: {name} in\n{text}");
        }
        assert!(text.contains("qo_store_requests_total{prefix="), "{text}");
        server.engine.close().await;
    }
}

/// An event stream.
struct Listener {
    response: Response,
    text: String,
    received: Vec<Value>,
    last_id: Option<String>,
    missed: Vec<String>,
}

impl Listener {
    async fn new(server: &TestServer) -> Self {
        Self::after(server, None).await
    }

    /// Continues after the event with this id.
    async fn after(server: &TestServer, last_id: Option<String>) -> Self {
        let mut request = api("GET", "/v1/events");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        Self {
            response: server.send(request).await,
            text: String::new(),
            received: Vec::new(),
            last_id: None,
            missed: Vec::new(),
        }
    }

    /// Reads events until this operation on this task, and returns the task's status after it.
    async fn until(&mut self, operation: &str, id: &str) -> String {
        let received = tokio::time::timeout(WAIT_MAX, async {
            loop {
                let found = self
                    .received
                    .iter()
                    .find(|event| event["operation"] == operation && event["id"] == id);
                if let Some(event) = found {
                    return event["status"].as_str().unwrap().to_owned();
                }
                let Ok(Some(chunk)) = self.response.chunk().await else {
                    panic!("no {operation} of {id} in {:?}", self.received);
                };
                self.text.push_str(std::str::from_utf8(&chunk).unwrap());
                while let Some(end) = self.text.find("\n\n") {
                    let event: String = self.text.drain(..end + 2).collect();
                    let field = |name| event.lines().find_map(|line| line.strip_prefix(name));
                    let data = field("data: ");
                    self.last_id = field("id: ").map(str::to_owned).or(self.last_id.take());
                    if event.contains("event: missed") {
                        self.missed.extend(data.map(str::to_owned));
                    }
                    let data = data.filter(|_| event.contains("event: task"));
                    self.received
                        .extend(data.map(|data| serde_json::from_str::<Value>(data).unwrap()));
                }
            }
        });
        let received = received.await;
        received.unwrap_or_else(|_| panic!("no {operation} of {id} in {:?}", self.received))
    }
}

async fn submit(server: &TestServer, body: &Value) -> String {
    let (_, answer) = server.reply(api("POST", "/v1/tasks").json(body)).await;
    answer["task"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_streams_report_bulk_operations_purges_and_expiries_once() {
    for mode in ["direct", "json", "slate"] {
        let store = memory();
        let direct = engine_on(&store, DirectConfig::local());
        let engine: Arc<dyn Engine> = match mode {
            "direct" => Arc::new(direct.clone()),
            "json" => Arc::new(json_on(&store)),
            _ => Arc::new(slate_on(&store).await),
        };
        let server = serve_engine(store, engine, config()).await;
        let mut listener = Listener::new(&server).await;
        let id = submit(&server, &json!({"task_type": "a"})).await;
        assert_eq!(listener.until("submit", &id).await, "pending", "{mode}");

        let bulk = json!({"operation": "cancel", "filter": {"task_type": "a"}});
        let (status, done) = server.reply(api("POST", "/v1/bulk").json(&bulk)).await;
        assert_eq!((status, &done["done"]), (200, &json!(1)), "{mode}: {done}");
        assert_eq!(listener.until("cancel", &id).await, "cancelled", "{mode}");
        server.send(api("DELETE", format!("/v1/tasks/{id}"))).await;
        assert_eq!(listener.until("purge", &id).await, "archived", "{mode}");

        let short = json!({"task_type": "b", "expires_in_ms": 20});
        let id = submit(&server, &short).await;
        if mode == "direct" {
            // A broker expires tasks by itself. In direct mode a claim does.
            let expired_by = direct.now().plus_millis(20);
            until("the task has expired", async || {
                (direct.now() > expired_by).then_some(())
            })
            .await;
            let claim = ClaimRequest::new("w".parse().unwrap(), vec![]);
            let claims = async {
                loop {
                    assert_eq!(direct.claim(&claim).await.unwrap(), []);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::select! {
                status = listener.until("expire", &id) => assert_eq!(status, "cancelled"),
                () = claims => {}
            }
        } else {
            assert_eq!(listener.until("expire", &id).await, "cancelled", "{mode}");
        }
        for (at, event) in listener.received.iter().enumerate() {
            let is_repeated = listener.received[..at].iter().any(|earlier| {
                (&earlier["id"], &earlier["operation"]) == (&event["id"], &event["operation"])
            });
            assert!(
                !is_repeated,
                "{mode}: {event} twice in {:?}",
                listener.received
            );
        }
        server.engine.close().await;
    }
}

#[tokio::test]
async fn a_listener_that_comes_back_continues_where_it_was() {
    let server = serve_engine_direct().await;
    let mut listener = Listener::new(&server).await;
    let first = submit(&server, &json!({"task_type": "a"})).await;
    listener.until("submit", &first).await;
    let last_id = listener.last_id.clone().unwrap();
    drop(listener);
    // The server records events for a while after its last listener has left.
    let away: Vec<_> = [
        submit(&server, &json!({"task_type": "a"})).await,
        submit(&server, &json!({"task_type": "a"})).await,
    ]
    .into();
    let mut listener = Listener::after(&server, Some(last_id.clone())).await;
    let later = submit(&server, &json!({"task_type": "a"})).await;
    listener.until("submit", &later).await;
    let ids: Vec<_> = listener.received.iter().map(|event| &event["id"]).collect();
    assert_eq!(ids, [&json!(away[0]), &json!(away[1]), &json!(later)]);
    assert!(listener.missed.is_empty());

    // An id that this process has not given, or too many events since: the listener learns that events are missing.
    let foreign = format!("{:016x}-0", 7);
    for _ in 0..2 {
        let tasks = json!(vec![json!({"task_type": "a"}); 600]);
        server.reply(api("POST", "/v1/tasks").json(&tasks)).await;
    }
    for id in [foreign, last_id, "nonsense".to_owned()] {
        let mut listener = Listener::after(&server, Some(id.clone())).await;
        let now = submit(&server, &json!({"task_type": "a"})).await;
        listener.until("submit", &now).await;
        assert_eq!(listener.missed, ["unknown"], "{id}");
    }
}

async fn serve_engine_direct() -> TestServer {
    let store = memory();
    let engine = engine_on(&store, DirectConfig::local());
    serve_engine(store, Arc::new(engine), config()).await
}

/// A server that is restarted continues the figures of the one before.
#[tokio::test]
async fn counters_survive_a_restart() {
    let bucket = TestStore::sqlite();
    let serve_as = async |name: &str| {
        let store = bucket.open();
        let mut config = config();
        config.activity = Some(ActivityStore::of_server(client_of(&store), name));
        serve_store(store, config).await
    };
    let completed = async |server: &TestServer| {
        let mut found = Vec::new();
        for period in ["hour", "day", "week"] {
            let path = format!("/v1/activity?period={period}");
            let (_, report) = server.reply(api("GET", path)).await;
            let sum: u64 = (report["points"].as_array().unwrap().iter())
                .map(|point| point["completed"].as_u64().unwrap())
                .sum();
            let measured = report["run"]["count"].as_u64().unwrap_or(0);
            found.push((sum, measured, report["resumed_at"].is_string()));
        }
        found
    };
    let run = async |server: &TestServer| {
        let task = json!({ "task_type": "t" });
        server.reply(api("POST", "/v1/tasks").json(&task)).await;
        let claim = json!({ "worker_id": "w", "wait_ms": 20_000 });
        let (_, claimed) = server.reply(api("POST", "/v1/claim").json(&claim)).await;
        let task = &claimed["tasks"][0];
        let path = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
        let body = json!({ "lease_id": task["lease_id"] });
        server.reply(api("POST", path).json(&body)).await;
    };
    let mut first = serve_as("host:7777").await;
    assert_eq!(completed(&first).await, [(0, 0, false); 3]);
    run(&first).await;
    assert_eq!(completed(&first).await, [(1, 1, false); 3]);
    first.stop();
    first.ended.take().unwrap().await.unwrap();
    let mut second = serve_as("host:7777").await;
    until("the counters are taken over", async || {
        let (_, report) = second.reply(api("GET", "/v1/activity")).await;
        report["resumed_at"].is_string().then_some(())
    })
    .await;
    assert_eq!(completed(&second).await, [(1, 1, true); 3]);
    run(&second).await;
    assert_eq!(completed(&second).await, [(2, 2, true); 3]);
    second.stop();
    second.ended.take().unwrap().await.unwrap();
    // Another server has counters of its own.
    let other = serve_as("other:7777").await;
    assert_eq!(completed(&other).await, [(0, 0, false); 3]);
}

/// A handler that hangs renews its lease, so only the age of its attempt shows it.
#[tokio::test]
async fn the_age_of_the_oldest_attempt_is_exported() {
    for mode in ["direct", "json"] {
        let store = memory();
        let engine: Arc<dyn Engine> = match mode {
            "direct" => Arc::new(engine_on(&store, DirectConfig::local())),
            _ => Arc::new(json_on(&store)),
        };
        let mut config = config();
        config.stats_max_age = Duration::ZERO;
        let server = serve_engine(store, engine, config).await;
        let age = async || {
            let text = server.send(api("GET", "/metrics")).await.text().await;
            let text = text.unwrap();
            let sample = "qo_queue_oldest_claim_seconds{queue=\"q\"} ";
            let age = text.lines().find_map(|line| line.strip_prefix(sample));
            age.unwrap().parse::<f64>().unwrap()
        };
        let body = json!({"task_type": "mail", "queue": "q"});
        server.reply(api("POST", "/v1/tasks").json(&body)).await;
        assert!(age().await.abs() < f64::EPSILON, "{mode}: none is running");
        let claim = json!({"worker_id": "w", "queues": ["q"], "wait_ms": 20_000});
        let (_, claimed) = server.reply(api("POST", "/v1/claim").json(&claim)).await;
        let task = &claimed["tasks"][0];
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
        let lease = json!({ "lease_id": task["lease_id"] });
        let renew = api("POST", format!("{path}/renew")).json(&lease);
        assert_eq!(server.reply(renew).await.0, 200, "{mode}");
        let running = age().await;
        assert!((1.0..60.0).contains(&running), "{mode}: {running}");
        let complete = api("POST", format!("{path}/complete")).json(&lease);
        assert_eq!(server.reply(complete).await.0, 200, "{mode}");
        assert!(age().await.abs() < f64::EPSILON, "{mode}: it has ended");
        server.engine.close().await;
    }
}
