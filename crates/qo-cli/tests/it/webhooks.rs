//! Webhooks on the command line, with a real receiver on this machine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use qo::webhook::WebhookSecret;
use qo::webhook::signature::{SignedHeaders, SigningKey};
use qo_store::runtime::TokioRuntime;
use rustix::process::Signal;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::workspace::{RunningCommand, Workspace};

/// Time limit for events that should happen soon. The machine may be busy.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A receiver of notifications. It answers with the planned statuses, and then with 204. It never answers to a status of 0.
#[derive(Clone, Default)]
struct Receiver {
    planned: Arc<Mutex<Vec<u16>>>,
    received: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
}

impl Receiver {
    /// Listens, and returns its URL.
    async fn start(planned: &[u16]) -> (Self, String) {
        let receiver = Self::default();
        receiver
            .planned
            .lock()
            .unwrap()
            .extend(planned.iter().rev());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?key=1", listener.local_addr().unwrap());
        let app = Router::new().fallback(receive).with_state(receiver.clone());
        TokioRuntime::shared().spawn(Box::pin(async move {
            axum::serve(listener, app).await.unwrap();
        }));
        (receiver, url)
    }

    /// Waits until it has received this many requests.
    async fn wait(&self, count: usize) -> Vec<(HeaderMap, Bytes)> {
        let runtime = TokioRuntime::shared();
        let deadline = runtime.monotonic() + TIMEOUT;
        loop {
            let received = self.received.lock().unwrap().clone();
            if received.len() >= count {
                return received;
            }
            let found = received.len();
            assert!(runtime.monotonic() < deadline, "{found} of {count}");
            runtime.sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    receiver.received.lock().unwrap().push((headers, body));
    let status = receiver.planned.lock().unwrap().pop().unwrap_or(204);
    if status == 0 {
        std::future::pending::<()>().await;
    }
    StatusCode::from_u16(status).unwrap()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

/// Verifies a notification as its receiver would, and returns its id and its body.
fn verify(secret: &str, (headers, body): &(HeaderMap, Bytes)) -> (String, Value) {
    let key = SigningKey::new(&WebhookSecret::new(secret).unwrap()).unwrap();
    let signed = SignedHeaders {
        id: header(headers, "webhook-id"),
        timestamp: header(headers, "webhook-timestamp"),
        signature: header(headers, "webhook-signature"),
    };
    let now = TokioRuntime::shared().now().as_millis().unsigned_abs() / 1_000;
    key.verify(&signed, body, now).unwrap();
    assert!(key.verify(&signed, b"{}", now).is_err());
    assert_eq!(header(headers, "content-type"), "application/json");
    let body = serde_json::from_slice(body).unwrap();
    (signed.id.to_owned(), body)
}

/// Adds a webhook, and returns its secret.
fn add(workspace: &Workspace, url: &str, more: &[&str]) -> String {
    let words = [&["webhook", "add", "billing", url, "--json"], more].concat();
    let added = workspace.qo(&words);
    let added = added.assert(0).json("webhook");
    added["secret"].as_str().unwrap().to_owned()
}

/// Starts a worker that delivers to this machine.
fn deliver(workspace: &Workspace, more: &[&str]) -> RunningCommand {
    let words = ["worker", "--webhooks", "--allow-private-addresses"];
    workspace.start(&[&words, more].concat())
}

/// The deliveries, newest first.
fn deliveries(workspace: &Workspace) -> Vec<Value> {
    let listed = workspace.qo(&["list", "--queue", "webhooks", "--json"]);
    listed.assert(0).lines("task")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_signed_retried_and_delivered_once_it_is_accepted() {
    let workspace = Workspace::new();
    let (receiver, url) = Receiver::start(&[500, 404]).await;
    let secret = add(&workspace, &url, &["--on", "completed,failed,cancelled"]);
    let _worker = deliver(
        &workspace,
        &["--exec", "work=true", "--exec", "bad=exit 65"],
    );
    let id = workspace.submit("work");
    let received = receiver.wait(3).await;
    let notifications: Vec<_> = received.iter().map(|one| verify(&secret, one)).collect();
    let (name, body) = &notifications[0];
    assert!(notifications.iter().all(|one| one == &notifications[0]));
    assert_eq!(body["type"], "task.completed");
    assert_eq!(body["data"]["id"], id.as_str());
    assert_eq!(body["data"]["task_type"], "work");
    assert_eq!(body["data"]["status"], "completed");
    assert_eq!(body["data"]["input"], Value::Null);
    let done = workspace.qo(&["wait", name, "--timeout", "30s", "--json"]);
    let done = done.assert(0).json("task");
    assert_eq!(
        (&done["attempt"], &done["output"]["status"]),
        (&3.into(), &204.into())
    );
    assert!(!done.to_string().contains("whsec_"), "{done}");
    assert!(!done.to_string().contains("key=1"), "{done}");

    // A failure, and a cancel by an operator.
    let failed = workspace.submit("bad");
    let (_, body) = verify(&secret, &receiver.wait(4).await[3]);
    assert_eq!(body["type"], "task.failed");
    assert_eq!(body["data"]["id"], failed.as_str());
    assert!(
        body["data"]["error"].as_str().unwrap().contains("65"),
        "{body}"
    );
    let cancelled = workspace.submit("nobody");
    workspace.qo(&["cancel", &cancelled]).assert(0);
    let (_, body) = verify(&secret, &receiver.wait(5).await[4]);
    assert_eq!(body["type"], "task.cancelled");
    assert_eq!(body["data"]["id"], cancelled.as_str());
    assert_eq!(deliveries(&workspace).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_while_it_delivers_loses_nothing() {
    let workspace = Workspace::new();
    let (receiver, url) = Receiver::start(&[0]).await;
    let secret = add(&workspace, &url, &[]);
    // The worker that ends the task does not deliver, and is gone when another one does.
    let words = ["worker", "--exec", "work=true", "--max-tasks", "1"];
    let ending = workspace.start(&words);
    let id = workspace.submit("work");
    ending.end().assert(0);
    let waiting = deliveries(&workspace);
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0]["status"], "pending");
    let lease = ["--lease", "2s"];
    let first = deliver(&workspace, &lease);
    receiver.wait(1).await;
    first.signal(Signal::KILL);
    drop(first);
    let _second = deliver(&workspace, &lease);
    let received = receiver.wait(2).await;
    let (name, body) = verify(&secret, &received[1]);
    assert_eq!(name, header(&received[0].0, "webhook-id"));
    assert_eq!(waiting[0]["id"], name.as_str());
    assert_eq!(body["data"]["id"], id.as_str());
    let done = workspace.qo(&["wait", &name, "--timeout", "30s", "--json"]);
    assert_eq!(done.assert(0).json("task")["attempt"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_delivers_and_shows_no_secret() {
    let workspace = Workspace::new();
    let (receiver, url) = Receiver::start(&[]).await;
    let mut command = workspace.serve(&workspace.store());
    command.args(["--webhooks", "--allow-private-addresses"]);
    command.stdout(std::process::Stdio::piped());
    let mut server = RunningCommand::spawn(&mut command);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout()), &mut line).unwrap();
    let started: Value = serde_json::from_str(&line).unwrap();
    let store = started["url"].as_str().unwrap().to_owned();
    let remote = |words: &[&str]| workspace.qo_with(&[("QO_STORE", &store)], words);
    let added = remote(&["webhook", "add", "billing", &url, "--json"]);
    let added = added.assert(0).json("webhook");
    let secret = added["secret"].as_str().unwrap();
    let test = remote(&["webhook", "test", "billing"]);
    let id = test.assert(0).stdout.trim().to_owned();
    let (name, body) = verify(secret, &receiver.wait(1).await[0]);
    assert_eq!((name, &body["type"]), (id.clone(), &"webhook.test".into()));
    remote(&["wait", &id, "--timeout", "30s"]).assert(0);
    // A change keeps the secret, and so does the test.
    let words = [
        "webhook",
        "add",
        "billing",
        &url,
        "--on",
        "cancelled",
        "--json",
    ];
    let changed = remote(&words).assert(0).json("webhook");
    assert_eq!(changed["secret"], Value::Null);
    let task = remote(&["submit", "--type", "t"]);
    let task = task.assert(0).stdout.trim().to_owned();
    remote(&["cancel", &task]).assert(0);
    let (_, body) = verify(secret, &receiver.wait(2).await[1]);
    assert_eq!(body["data"]["id"], task.as_str());
    for words in [
        &["webhook", "list", "--json"][..],
        &["webhook", "show", "billing", "--json"],
    ] {
        let shown = remote(words).assert(0).json("webhook");
        assert_eq!(shown["secret"], Value::Null);
        assert_eq!(shown["events"], serde_json::json!(["cancelled"]));
    }
    let refused = remote(&["worker", "--webhooks"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.stderr.contains("qo serve --webhooks"),
        "{refused:?}"
    );
    remote(&["webhook", "remove", "billing"]).assert(0);
    assert_ne!(remote(&["webhook", "show", "billing"]).code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_unless_allowed() {
    let workspace = Workspace::new();
    let (receiver, url) = Receiver::start(&[]).await;
    add(&workspace, &url, &[]);
    let named = url.replace("127.0.0.1", "localhost");
    workspace.qo(&["webhook", "add", "named", &named]).assert(0);
    let _worker = workspace.start(&["worker", "--webhooks"]);
    for name in ["billing", "named"] {
        let test = workspace.qo(&["webhook", "test", name]);
        let id = test.assert(0).stdout.trim().to_owned();
        let ended = workspace.qo(&["wait", &id, "--timeout", "60s", "--json"]);
        let ended = ended.lines("task").remove(0);
        assert_eq!(ended["status"], "failed", "{ended}");
        let error = ended["last_error"].as_str().unwrap();
        assert!(error.contains("--allow-private-addresses"), "{error}");
    }
    assert_eq!(receiver.received.lock().unwrap().len(), 0);
}

#[test]
fn bad_webhooks_are_refused() {
    let workspace = Workspace::new();
    let empty = workspace.qo(&["webhook", "list"]);
    assert!(empty.assert(0).stderr.contains("no webhooks"), "{empty:?}");
    let secret = workspace.file("secret", "whsec_short");
    let secret = secret.to_str().unwrap();
    for (words, expected) in [
        (&["a", "ftp://example.org"][..], "https://"),
        (&["a", "https://u:p@example.org"], "user or a password"),
        (&["a/b", "https://example.org"], "not a name"),
        (
            &["a", "https://example.org", "--on", "started"],
            "not an event",
        ),
        (
            &["a", "https://example.org", "--on", "failed,failed"],
            "different values",
        ),
        (
            &["a", "https://example.org", "--secret-file", secret],
            "whsec_",
        ),
        (
            &["a", "https://example.org", "--secret-file", "nowhere"],
            "cannot read",
        ),
    ] {
        let refused = workspace.qo(&[&["webhook", "add"], words].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains(expected), "{refused:?}");
    }
    for verb in ["show", "remove", "test"] {
        let none = workspace.qo(&["webhook", verb, "nobody"]);
        assert!(none.stderr.contains("no webhook nobody"), "{none:?}");
    }
    // A secret of the user's own is used, and not shown again.
    let own = format!("whsec_{}", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    workspace.file("own", &format!("{own}\n"));
    let words = [
        "webhook",
        "add",
        "a",
        "https://example.org",
        "--secret-file",
        "own",
    ];
    assert_eq!(workspace.qo(&words).assert(0).stdout.trim(), own);
    let shown = workspace
        .qo(&["webhook", "show", "a"])
        .assert(0)
        .stdout
        .clone();
    assert!(
        shown.contains("completed, failed") && !shown.contains("whsec_"),
        "{shown}"
    );
}
