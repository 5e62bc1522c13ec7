//! The log of operator actions: who did what to which thing.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use qo::blob::address_of;
use qo_fixtures::client_of;
use qo_server::tokens::TokenStore;
use qo_server::{Auth, ClusterChange, ClusterControl, ClusterFailure, ClusterGauge, ServerConfig};
use qo_store::Store;
use qo_store::runtime::{BoxFuture, TokioRuntime};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::{TestServer, api, config, memory, serve_store};

/// Keeps the operator actions that are logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

/// The fields of an event, as text.
#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        use std::fmt::Write as _;
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.0.contains("operator action") {
            self.0.lock().unwrap().push(fields.0);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A node of a cluster that accepts the removal of a member only.
struct Node;

impl ClusterControl for Node {
    fn status(&self) -> Value {
        Value::Null
    }

    fn log(&self, _: u16, _: Option<u64>, _: usize) -> BoxFuture<Result<Value, ClusterFailure>> {
        Box::pin(async { Ok(Value::Null) })
    }

    fn change(&self, change: ClusterChange) -> BoxFuture<Result<(), ClusterFailure>> {
        Box::pin(async move {
            match change {
                ClusterChange::Remove(_) => Ok(()),
                _ => Err(ClusterFailure::Refused("no".to_owned())),
            }
        })
    }

    fn gauges(&self) -> Vec<ClusterGauge> {
        Vec::new()
    }
}

/// A server, and what it logs.
struct Audited {
    server: TestServer,
    log: Log,
    _guard: DefaultGuard,
}

impl Audited {
    async fn serve(store: Store, config: ServerConfig) -> Self {
        let log = Log::default();
        let guard = tracing::subscriber::set_default(log.clone());
        Self {
            server: serve_store(store, config).await,
            log,
            _guard: guard,
        }
    }

    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.0.lock().unwrap())
    }

    /// Sends a request. The log must then have one line with these words and who sent it, or none if there are no words.
    async fn logged(&self, method: &str, path: &str, body: Value, expected: &[&str]) -> Value {
        let request = api(method, path).header("qo-actor", "ada@laptop");
        let request = match body {
            Value::Null => request,
            body => request.json(&body),
        };
        let (status, response) = self.server.reply(request).await;
        let lines = self.lines();
        if expected.is_empty() {
            assert_eq!(lines, [""; 0], "{method} {path}: {status} {response}");
            return response;
        }
        assert!(status < 300, "{method} {path}: {status} {response}");
        assert_eq!(lines.len(), 1, "{method} {path}: {lines:?}");
        for word in expected.iter().chain(&["ada@laptop"]) {
            assert!(lines[0].contains(word), "{method} {path}: {lines:?}");
        }
        response
    }

    /// Submits a task, which is no action of an operator.
    async fn submit(&self, task: Value) -> String {
        let reply = self.logged("POST", "/v1/tasks", task, &[]).await;
        reply["task"]["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn tokens_members_and_blobs_are_changed_with_a_line_in_the_log() {
    let store = memory();
    let mut config = config();
    config.auth = Auth::stored(TokenStore::new(client_of(&store), TokioRuntime::shared()));
    config.cluster = Some(Arc::new(Node));
    let audited = Audited::serve(store, config).await;
    let logged = async |method: &str, path: &str, body: Value, expected: &[&str]| {
        audited.logged(method, path, body, expected).await;
    };
    let blob = address_of(b"a blob").to_string();
    let path = format!("/blobs/{blob}");
    logged("DELETE", &path, Value::Null, &["delete blob", &blob]).await;
    logged("POST", "/blobs/gc", json!({}), &["collect blobs"]).await;
    logged("POST", "/blobs/gc", json!({ "dry_run": true }), &[]).await;
    let path = "/v1/cluster/members/2";
    logged("DELETE", path, Value::Null, &["remove cluster node", "2"]).await;
    // What was refused has not happened.
    let path = "/v1/cluster/members/2/promote";
    logged("POST", path, Value::Null, &[]).await;
    // From the first token on, requests need one.
    let id = "0123456789abcdef";
    let token = json!({ "name": "ci", "scopes": ["read"], "sha256": "0".repeat(64) });
    let path = format!("/v1/tokens/{id}");
    logged("PUT", &path, token, &["create token", id]).await;
    logged("DELETE", &path, Value::Null, &[]).await;
}

#[tokio::test]
async fn tasks_are_changed_with_a_line_in_the_log() {
    let audited = Audited::serve(memory(), config()).await;
    let task = json!({ "task_type": "t", "delay_ms": 3_600_000 });
    let id = audited.submit(task).await;
    let path = |action: &str| format!("/v1/tasks/{id}{action}");
    for (action, body) in [
        ("run_now", Value::Null),
        ("cancel", json!({ "reason": "no" })),
        ("replay", Value::Null),
        ("redrive", json!({ "to": "elsewhere" })),
        ("cancel", Value::Null),
        ("archive", Value::Null),
        ("unarchive", Value::Null),
    ] {
        let operation = format!("operation=\"{action}\"");
        let expected = [operation.as_str(), &id];
        let path = path(&format!("/{action}"));
        audited.logged("POST", &path, body, &expected).await;
    }
    // What was refused has not happened.
    audited
        .logged("POST", &path("/cancel"), Value::Null, &[])
        .await;
    let expected = ["operation=\"purge\"", &id];
    audited
        .logged("DELETE", &path(""), Value::Null, &expected)
        .await;
    // Workers are no operators.
    audited.submit(json!({ "task_type": "t" })).await;
    let claim = json!({ "worker_id": "w", "wait_ms": 20_000 });
    let claimed = audited.logged("POST", "/v1/claim", claim, &[]).await;
    let task = &claimed["tasks"][0];
    let path = format!("/v1/tasks/{}/complete", task["id"].as_str().unwrap());
    let done = json!({ "lease_id": task["lease_id"] });
    let done = audited.logged("POST", &path, done, &[]).await;
    assert_eq!(done["status"], "completed", "{done}");
}

#[tokio::test]
async fn many_tasks_are_changed_with_one_line_in_the_log() {
    let audited = Audited::serve(memory(), config()).await;
    for _ in 0..3 {
        audited.submit(json!({ "task_type": "t" })).await;
    }
    let bulk = |operation: &str, more: Value| {
        let mut body = json!({ "operation": operation, "filter": {} });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    let dry = bulk("cancel", json!({ "dry_run": true }));
    let counted = audited.logged("POST", "/v1/bulk", dry, &[]).await;
    assert_eq!(counted["matched"], 3, "{counted}");
    let expected = ["operation=\"cancel\"", "3 of 3 tasks"];
    let cancel = bulk("cancel", json!({}));
    audited.logged("POST", "/v1/bulk", cancel, &expected).await;
    // In the background, the line comes when the operation has ended.
    let request = api("POST", "/v1/bulk").header("qo-actor", "ada@laptop");
    let request = request.json(&bulk("purge", json!({ "background": true })));
    let (status, job) = audited.server.reply(request).await;
    assert_eq!(status, 202, "{job}");
    let lines = qo_fixtures::until("the purge is logged", async || {
        let lines = audited.lines();
        (!lines.is_empty()).then_some(lines)
    })
    .await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    for word in ["operation=\"purge\"", "3 of 3 tasks", "ada@laptop"] {
        assert!(lines[0].contains(word), "{lines:?}");
    }
    let id = job["id"].as_str().unwrap();
    let expected = ["cancel of a bulk operation", id];
    let path = format!("/v1/bulk/{id}");
    audited
        .logged("DELETE", &path, Value::Null, &expected)
        .await;
}

#[tokio::test]
async fn queues_and_workers_are_changed_with_a_line_in_the_log() {
    let audited = Audited::serve(memory(), config()).await;
    let logged = async |method: &str, path: &str, body: Value, expected: &[&str]| {
        audited.logged(method, path, body, expected).await;
    };
    let pause = |action: &str| format!("operation=\"{action}\"");
    for (path, target) in [("queues/mail", "queue mail"), ("types/send", "type send")] {
        for action in ["pause", "resume"] {
            let path = format!("/v1/{path}/{action}");
            logged("POST", &path, Value::Null, &[&pause(action), target]).await;
        }
    }
    let settings = json!({ "max_waiting": 5 });
    let path = "/v1/queues/mail";
    logged("PUT", path, settings, &["set queue", "mail"]).await;
    let worker = json!({
        "worker_id": "w1", "started_at": "2026-01-01T00:00:00.000Z", "last_heartbeat": "2026-01-01T00:00:00.000Z",
    });
    logged("PUT", "/v1/workers/w1", worker, &[]).await;
    for action in ["quiet", "stop", "resume"] {
        let path = format!("/v1/workers/w1/{action}");
        logged("POST", &path, Value::Null, &[&pause(action), "w1"]).await;
    }
    logged("POST", "/v1/workers/w2/quiet", Value::Null, &[]).await;
}

#[tokio::test]
async fn schedules_limits_and_webhooks_are_changed_with_a_line_in_the_log() {
    let audited = Audited::serve(memory(), config()).await;
    let logged = async |method: &str, path: &str, body: Value, expected: &[&str]| {
        audited.logged(method, path, body, expected).await;
    };
    let path = "/v1/limits/stripe";
    let limit = json!({ "limit_key": "stripe", "concurrent": 1 });
    logged("PUT", path, limit, &["set limit", "stripe"]).await;
    logged("DELETE", path, Value::Null, &["remove limit", "stripe"]).await;
    logged("DELETE", path, Value::Null, &[]).await;

    let path = "/v1/webhooks/billing";
    let webhook = json!({ "url": "https://example.org/hook" });
    logged("PUT", path, webhook, &["set webhook", "billing"]).await;
    let test = format!("{path}/test");
    logged("POST", &test, Value::Null, &["test webhook", "billing"]).await;
    logged("DELETE", path, Value::Null, &["remove webhook", "billing"]).await;

    let path = "/v1/schedules/nightly";
    let schedule = json!({ "cron": "30 2 1 1 *", "task": { "task_type": "report" } });
    logged("PUT", path, schedule, &["define schedule", "nightly"]).await;
    let range = json!({ "from": "2025-01-01T00:00:00Z", "to": "2025-01-04T00:00:00Z" });
    for (action, body) in [
        ("pause", Value::Null),
        ("resume", Value::Null),
        ("trigger", Value::Null),
        ("backfill", range),
    ] {
        let operation = format!("{action} schedule");
        let path = format!("{path}/{action}");
        logged("POST", &path, body, &[&operation, "nightly"]).await;
    }
    logged("DELETE", path, Value::Null, &["remove schedule", "nightly"]).await;
}

/// The command changes limits, schedules, queues and webhooks of a server this way.
#[tokio::test]
async fn settings_are_changed_with_a_line_in_the_log() {
    let audited = Audited::serve(memory(), config()).await;
    let change = json!({
        "name": "stripe", "op_id": "550e8400-e29b-41d4-a716-446655440000",
        "body": { "limit_key": "stripe", "concurrent": 1 },
    });
    let path = "/v1/settings/limits";
    let expected = ["change settings", "limits/stripe"];
    audited
        .logged("POST", path, change.clone(), &expected)
        .await;
    // Somebody else has changed it.
    let mut late = change.clone();
    late["op_id"] = json!("650e8400-e29b-41d4-a716-446655440000");
    audited.logged("POST", path, late.clone(), &[]).await;
    late["version"] = change["op_id"].clone();
    late.as_object_mut().unwrap().remove("body");
    let expected = ["remove settings", "limits/stripe"];
    audited.logged("POST", path, late, &expected).await;
}
