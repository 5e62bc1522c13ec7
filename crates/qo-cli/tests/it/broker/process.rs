//! Broker processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_testkit::wait_until;
use reqwest::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::LIMIT;
use crate::e2e::store::TestStore;

/// A running broker. Dropping it kills the process.
pub(super) struct BrokerProcess {
    name: String,
    child: Child,
    log: Arc<Mutex<String>>,
    pub(super) url: String,
}

impl BrokerProcess {
    /// Starts a broker on a free port and waits until it listens.
    pub(super) fn start(store: &TestStore, name: &str) -> Self {
        let mut child = store
            .command(["--json", "serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        record(child.stderr.take().unwrap(), Arc::clone(&log));
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let Ok(announcement) = serde_json::from_str::<Value>(&line) else {
            panic!("broker {name} printed {line:?}: {}", log.lock().unwrap());
        };
        Self {
            name: name.to_owned(),
            url: announcement["url"].as_str().unwrap().to_owned(),
            child,
            log,
        }
    }

    /// Starts a broker and waits until it leads.
    pub(super) fn leader(store: &TestStore, name: &str) -> Self {
        let broker = Self::start(store, name);
        broker.wait_for_log("serving as the leader");
        broker
    }

    /// Starts a broker and waits until it stands by.
    pub(super) fn standby(store: &TestStore, name: &str) -> Self {
        let broker = Self::start(store, name);
        broker.wait_for_log("standing by");
        broker
    }

    /// Its log so far.
    pub(super) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(super) fn wait_for_log(&self, text: &str) {
        let found = wait_until(LIMIT, || self.log().contains(text));
        assert!(found, "broker {} did not log {text:?}", self.name);
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills the process and waits for it.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the process with SIGTERM. It must exit with success.
    pub(super) fn stop(&mut self) {
        self.signal(Signal::TERM);
        let mut status = None;
        let ended = wait_until(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended && status.unwrap().success(), "broker {}", self.name);
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        // It may have exited already. This also kills a suspended process.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- broker {} at {}\n{}", self.name, self.url, self.log());
        }
    }
}

fn record(mut pipe: impl Read + Send + 'static, log: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            log.lock().unwrap().push_str(&text);
        }
    });
}

/// A client that follows no redirects and retries nothing.
pub(super) fn http() -> Client {
    // The library does the same; the first call wins.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .no_proxy()
        .tls_certs_only(Vec::new())
        .timeout(Duration::from_mins(1))
        .build()
        .unwrap()
}

/// Sends a GET request. Returns the status and the body.
pub(super) async fn get(url: String) -> (u16, String) {
    let response = http().get(url).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}
