//! The log of operator actions: who did what to which thing.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use qo::blob::address_of;
use qo_fixtures::client_of;
use qo_server::tokens::TokenStore;
use qo_server::{Auth, ClusterChange, ClusterControl, ClusterFailure, ClusterGauge};
use qo_store::runtime::{BoxFuture, TokioRuntime};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::{api, config, memory, serve_store};

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

#[tokio::test]
async fn tokens_members_and_blobs_are_changed_with_a_line_in_the_log() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let store = memory();
    let mut config = config();
    config.auth = Auth::stored(TokenStore::new(client_of(&store), TokioRuntime::shared()));
    config.cluster = Some(Arc::new(Node));
    let server = serve_store(store, config).await;
    let logged = async |method: &str, path: &str, body: Value, expected: &[&str]| {
        let request = api(method, path).header("qo-actor", "ada@laptop");
        let request = match body {
            Value::Null => request,
            body => request.json(&body),
        };
        let (status, response) = server.reply(request).await;
        let lines = std::mem::take(&mut *log.0.lock().unwrap());
        if expected.is_empty() {
            assert_eq!(lines, [""; 0], "{method} {path}: {status} {response}");
            return;
        }
        assert!(status < 300, "{method} {path}: {status} {response}");
        assert_eq!(lines.len(), 1, "{method} {path}: {lines:?}");
        for word in expected.iter().chain(&["ada@laptop"]) {
            assert!(lines[0].contains(word), "{method} {path}: {lines:?}");
        }
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
