//! Servers that announce themselves on the local network, `qo discover` and the store URL `mdns:`.
//!
//! Other tests and other programs of this machine may announce servers at the same time, so only the servers of the test are looked at.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use qo_testkit::wait_until;
use rustix::process::Signal;
use serde_json::Value;

use crate::workspace::{RunningCommand, Workspace};

/// Time limit for any step on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

struct Announced {
    workspace: Workspace,
    process: RunningCommand,
    name: String,
    url: String,
}

impl Announced {
    fn start() -> Self {
        let workspace = Workspace::new();
        let words = ["--json", "serve", "--listen", "127.0.0.1:0", "--mdns"];
        let mut process = workspace.start(&words);
        let mut line = String::new();
        BufReader::new(process.stdout())
            .read_line(&mut line)
            .unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        Self {
            workspace,
            process,
            name: line["mdns"].as_str().unwrap().to_owned(),
            url: line["url"].as_str().unwrap().to_owned(),
        }
    }
}

/// The announced servers, by `qo discover`.
fn discovered(workspace: &Workspace) -> Vec<Value> {
    let result = workspace.qo(&["discover", "--json"]);
    result.assert(0).lines("server")
}

fn find<'a>(servers: &'a [Value], name: &str) -> Option<&'a Value> {
    servers.iter().find(|server| server["name"] == name)
}

#[test]
fn two_servers_on_one_machine_are_found_and_used() {
    let (one, two) = (Announced::start(), Announced::start());
    assert_ne!(one.name, two.name);
    let elsewhere = Workspace::new();
    let mut servers = Vec::new();
    let both_found = wait_until(LIMIT, || {
        servers = discovered(&elsewhere);
        find(&servers, &one.name).is_some() && find(&servers, &two.name).is_some()
    });
    assert!(both_found, "{servers:#?}");
    for announced in [&one, &two] {
        let server = find(&servers, &announced.name).unwrap();
        assert_eq!(server["url"], announced.url.as_str());
        // A server that only this machine can reach is announced with an address that only this machine can use.
        assert_eq!(server["addresses"], serde_json::json!(["127.0.0.1"]));
        assert_eq!(server["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(server["path"], "/");
    }
    // On a busy machine an answer may come too late, so each question is repeated until both have answered.
    let mut table = String::new();
    let both_shown = wait_until(LIMIT, || {
        table = elsewhere.qo(&["discover"]).assert(0).stdout.clone();
        table.contains(&one.name) && table.contains(&two.url)
    });
    assert!(both_shown, "{table}");

    // Which of the two is meant?
    let mut unclear = String::new();
    let both_named = wait_until(LIMIT, || {
        let result = elsewhere.qo(&["--store", "mdns:", "--json", "list"]);
        unclear.clone_from(&result.stderr);
        result.code == 2 && unclear.contains(&one.name) && unclear.contains(&two.url)
    });
    assert!(both_named, "{unclear}");
    assert!(unclear.contains("several servers"), "{unclear}");

    let store = format!("mdns:{}", two.name);
    let submitted = elsewhere.qo(&["--store", &store, "submit", "--type", "t"]);
    let id = submitted.assert(0).stdout.trim().to_owned();
    assert!(two.workspace.qo(&["list"]).assert(0).stdout.contains(&id));
    assert!(!one.workspace.qo(&["list"]).assert(0).stdout.contains(&id));

    // A server that stops says goodbye.
    two.process.signal(Signal::TERM);
    two.process.end().assert(0);
    let mut servers = Vec::new();
    let is_gone = wait_until(LIMIT, || {
        servers = discovered(&elsewhere);
        find(&servers, &two.name).is_none() && find(&servers, &one.name).is_some()
    });
    assert!(is_gone, "{servers:#?}");
    let gone = elsewhere.qo(&["--store", &store, "--json", "list"]);
    let message = gone.assert(5).error()["message"].to_string();
    assert!(message.contains("no server named"), "{message}");
}

#[test]
fn a_server_is_not_a_store_to_serve() {
    let workspace = Workspace::new();
    let result = workspace.qo(&["serve", "--store", "mdns:"]);
    assert!(
        result.assert(2).stderr.contains("names a server"),
        "{result:#?}"
    );
}
