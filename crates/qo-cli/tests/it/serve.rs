//! `qo serve` and `qo token`, with other commands that use the server as their store.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use qo_testkit::wait_until;
use serde_json::Value;

use crate::workspace::Workspace;

/// Time limit for any step on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// A server on a free port. Dropping it kills the process.
struct ServerProcess {
    child: Child,
    url: String,
    is_open: bool,
}

impl ServerProcess {
    fn start(workspace: &Workspace, store: &str) -> Self {
        Self::start_with(workspace, store, &[])
    }

    fn start_with(workspace: &Workspace, store: &str, words: &[&str]) -> Self {
        let mut command = workspace.serve(store);
        command.args(words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let announcement: Value = serde_json::from_str(&line).unwrap();
        Self {
            child,
            url: announcement["url"].as_str().unwrap().to_owned(),
            is_open: announcement["open"].as_bool().unwrap(),
        }
    }

    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut status = None;
        assert!(wait_until(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        }));
        assert!(status.unwrap().success());
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a route.
fn read(url: &str, path: &str) -> String {
    let mut stream = send(url, "GET", path, "Connection: close\r\n", "");
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// Sends a request on a new connection.
fn send(url: &str, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
    let authority = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(authority).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {authority}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

/// Posts JSON on a new connection, and returns the response.
fn post(url: &str, path: &str, body: &str) -> String {
    let headers = "Content-Type: application/json\r\nConnection: close\r\n";
    let mut response = String::new();
    send(url, "POST", path, headers, body)
        .read_to_string(&mut response)
        .unwrap();
    response
}

/// Submits, runs and reads a task through a server, then stops it.
fn a_queue_is_used_through_its_server(engine: &str) {
    let workspace = Workspace::new();
    let store = format!("{}{engine}", workspace.store());
    let mut server = ServerProcess::start(&workspace, &store);
    assert!(server.is_open, "there are no tokens yet");
    let qo = |words: &[&str]| {
        let output = workspace
            .bare(words)
            .env("QO_STORE", &server.url)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words:?}: {text}{errors}");
        text
    };
    let id = qo(&["submit", "--type", "shout", "--input", "\"hello\""]);
    qo(&["worker", "--exec", "shout=tr a-z A-Z", "--max-tasks", "1"]);
    let task: Value = serde_json::from_str(&qo(&["status", id.trim(), "--json"])).unwrap();
    assert_eq!(task["status"], "completed");
    assert_eq!(task["output"], "HELLO");
    assert!(qo(&["list"]).contains(id.trim()));
    assert!(qo(&["stats"]).contains("default"));
    let metrics = read(&server.url, "/metrics");
    for name in ["qo_store_requests_total{prefix=", "qo_store_dollars_total "] {
        let found = metrics.lines().find_map(|line| line.strip_prefix(name));
        let number = found.and_then(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
        assert!(
            number.is_some_and(|number| number > 0.0),
            "{name}: {metrics}"
        );
    }
    server.stop();

    // The changes made through the server are in the store.
    let mut again = ServerProcess::start(&workspace, &store);
    let output = workspace
        .bare(&["status", id.trim(), "--json", "--store", &again.url])
        .output()
        .unwrap();
    let stored: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stored["status"], "completed");
    again.stop();
}

#[test]
fn in_direct_mode() {
    a_queue_is_used_through_its_server("");
}

#[test]
fn as_one_json_object() {
    a_queue_is_used_through_its_server("?engine=json");
}

#[test]
fn in_broker_mode() {
    a_queue_is_used_through_its_server("?engine=slate");
}

#[test]
fn requests_that_wait_are_limited_by_a_flag() {
    let workspace = Workspace::new();
    let store = workspace.store();
    let mut server = ServerProcess::start_with(&workspace, &store, &["--max-waiting", "1"]);
    let (sender, responses) = mpsc::channel();
    for worker in ["w1", "w2"] {
        let (url, sender) = (server.url.clone(), sender.clone());
        let body = format!(r#"{{"worker_id":"{worker}","wait_ms":30000}}"#);
        thread::spawn(move || {
            // The test has failed already if nobody receives it.
            let _ = sender.send(post(&url, "/v1/claim", &body));
        });
    }
    // One of the two waits, so the other is refused.
    let refused = responses.recv_timeout(LIMIT).unwrap();
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains(r#""code":"overloaded""#), "{refused}");
    assert!(refused.contains("retry-after: "), "{refused}");
    let submitted = post(&server.url, "/v1/tasks", r#"{"task_type":"t"}"#);
    assert!(submitted.starts_with("HTTP/1.1 201"), "{submitted}");
    let claimed = responses.recv_timeout(LIMIT).unwrap();
    assert!(claimed.starts_with("HTTP/1.1 200"), "{claimed}");
    server.stop();
}

#[test]
fn connections_are_limited_by_a_flag() {
    let workspace = Workspace::new();
    let store = workspace.store();
    let mut server = ServerProcess::start_with(&workspace, &store, &["--max-connections", "2"]);
    let held = [(); 2].map(|()| {
        let mut connection = send(&server.url, "GET", "/v1/info", "", "");
        let mut start = [0; 12];
        connection.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        connection
    });
    let refused = read(&server.url, "/v1/info");
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains(r#""code":"overloaded""#), "{refused}");
    let health = read(&server.url, "/healthz");
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    drop(held);
    assert!(wait_until(LIMIT, || {
        read(&server.url, "/v1/info").starts_with("HTTP/1.1 200")
    }));
    server.stop();
}

#[test]
fn tokens_are_created_used_listed_and_revoked() {
    let workspace = Workspace::new();
    let created = workspace.qo(&["token", "create", "--name", "web", "--scope", "submit"]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    let token = created.stdout.trim();
    assert!(token.starts_with("qo_"));
    let listed = workspace.qo(&["token", "list", "--json"]);
    let record: Value = serde_json::from_str(listed.stdout.trim()).unwrap();
    assert_eq!(record["name"], "web");
    assert_eq!(record["scopes"][0], "submit");
    assert!(!listed.stdout.contains(token));

    let server = ServerProcess::start(&workspace, &workspace.store());
    assert!(!server.is_open);
    let with = |token: Option<&str>, words: &[&str]| {
        let mut command = workspace.bare(words);
        command.env("QO_STORE", &server.url);
        if let Some(token) = token {
            command.env("QO_TOKEN", token);
        }
        command.output().unwrap().status.code().unwrap()
    };
    let submit = ["submit", "--type", "t", "--input", "1"];
    assert_eq!(with(Some(token), &submit), 0);
    assert_eq!(with(None, &submit), 6, "denied without a token");
    assert_eq!(
        with(Some(token), &["list"]),
        6,
        "denied with the wrong scope"
    );

    let id = record["id"].as_str().unwrap();
    assert_eq!(workspace.qo(&["token", "revoke", id]).code, 0);
    assert!(
        wait_until(LIMIT, || with(Some(token), &submit) == 6),
        "a revoked token still works"
    );
    assert_eq!(
        workspace.qo(&["token", "revoke", id]).code,
        3,
        "it no longer exists"
    );
}

#[test]
fn invalid_arguments_are_rejected_before_serving() {
    let workspace = Workspace::new();
    let public = workspace.qo(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(public.code, 2);
    assert!(
        public.stderr.contains("qo token create"),
        "{}",
        public.stderr
    );
    let served = workspace.qo(&["serve", "--store", "http://127.0.0.1:1"]);
    assert_eq!(served.code, 2, "{}", served.stderr);
    let certificate = workspace.qo(&["serve", "--tls-cert", "no.pem", "--tls-key", "no.pem"]);
    assert_eq!(certificate.code, 2);
    assert!(
        certificate.stderr.contains("no.pem"),
        "{}",
        certificate.stderr
    );
}
