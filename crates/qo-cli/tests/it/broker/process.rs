//! A broker as a process.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use qo_testkit::LoggedProcess;
use reqwest::Client;
use rustix::process::Signal;
use serde_json::Value;

use super::LIMIT;
use crate::e2e::cli::TestCli;
use crate::e2e::processes::send;

/// A running broker. It is killed when the test is over.
pub(super) struct BrokerProcess {
    process: LoggedProcess,
    pub(super) url: String,
}

impl BrokerProcess {
    /// Starts a broker on a free port, and waits until it listens.
    pub(super) fn start(cli: &TestCli, name: &str) -> Self {
        Self::start_with(cli, name, &[], &[])
    }

    /// Starts a broker with more arguments and variables, and waits until it listens.
    pub(super) fn start_with(
        cli: &TestCli,
        name: &str,
        more: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut arguments = vec!["--json", "serve", "--listen", "127.0.0.1:0"];
        arguments.extend(more);
        let mut command = cli.command(arguments);
        command.envs(variables.iter().copied());
        let mut process = LoggedProcess::start_with_output(name, &mut command).unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(process.child().stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let Ok(started) = serde_json::from_str::<Value>(&line) else {
            panic!("{name} printed {line:?}");
        };
        let url = started["url"].as_str().unwrap().to_owned();
        Self { process, url }
    }

    /// Starts a broker and waits until it leads.
    pub(super) fn leader(cli: &TestCli, name: &str) -> Self {
        let broker = Self::start(cli, name);
        broker.wait_for_log("serving as the leader");
        broker
    }

    /// Starts a broker and waits until it is a standby.
    pub(super) fn standby(cli: &TestCli, name: &str) -> Self {
        let broker = Self::start(cli, name);
        broker.wait_for_log("standing by");
        broker
    }

    /// Its log so far.
    pub(super) fn log(&self) -> String {
        self.process.log()
    }

    pub(super) fn wait_for_log(&self, text: &str) {
        let is_logged = self.process.wait_for_log(text, LIMIT);
        assert!(is_logged, "{} did not log {text:?}", self.process.name());
    }

    pub(super) fn signal(&self, signal: Signal) {
        send(&self.process, signal);
    }

    /// Kills it, and waits until it has exited.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it by SIGTERM, and expects that it exits with success.
    pub(super) fn stop(&mut self) {
        self.signal(Signal::TERM);
        let status = self.process.wait(LIMIT);
        let is_success = status.is_some_and(|status| status.success());
        assert!(is_success, "{}: {status:?}", self.process.name());
    }
}

/// A client that follows no redirects and retries nothing.
pub(super) fn http() -> Client {
    // The library does the same. The first call wins.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .no_proxy()
        .tls_certs_only(Vec::new())
        .timeout(Duration::from_mins(1))
        .build()
        .unwrap()
}

/// Sends a GET, and returns the status and the body of the response.
pub(super) async fn get(url: String) -> (u16, String) {
    let response = http().get(url).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}
