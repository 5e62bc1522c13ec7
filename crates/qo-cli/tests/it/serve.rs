//! `qo serve` and `qo token`, with other commands that use the server as their store.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use qo_testkit::wait_until;
use serde_json::Value;

use crate::workspace::Workspace;
use std::time::Duration;

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
        let mut command = workspace.serve(store);
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
    let authority = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(authority).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
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
