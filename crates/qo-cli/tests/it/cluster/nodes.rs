//! The nodes of a cluster as processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use qo::{Connect, OpenOptions, Queue};
use qo_store::runtime::TokioRuntime;
use qo_testkit::{LoggedProcess, ports, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use super::LIMIT;
use super::links::Links;
use crate::e2e::cli::TestCli;
use crate::e2e::processes::send;

pub(super) const SECRET: &str = "a secret of these tests, long enough";

/// The ports of a node.
struct Ports {
    clients: u16,
    nodes: u16,
}

/// Three nodes.
pub(super) struct Cluster {
    pub(super) cli: TestCli,
    ports: Vec<Ports>,
    nodes: Vec<Option<LoggedProcess>>,
    groups: u16,
    /// Between the nodes, if they can be isolated.
    links: Option<Links>,
}

/// How often a cluster is started on other ports, because one of them was taken meanwhile.
const START_TRIES: usize = 5;

/// The number of a node; 0 if there is none.
fn number(value: &Value) -> usize {
    value
        .as_u64()
        .map_or(0, |node| usize::try_from(node).unwrap())
}

/// The response to a GET, with its head. `read` is the kind of read that the client accepts.
pub(super) fn get(url: &str, path: &str, read: Option<&str>) -> String {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    let read = read.map_or_else(String::new, |value| format!("qo-read: {value}\r\n"));
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {host}\r\n{read}connection: close\r\n\r\n"
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

impl Cluster {
    /// Starts three nodes, and waits until one leads.
    pub(super) fn start() -> Self {
        Self::start_with_groups(1)
    }

    /// The same with several groups.
    pub(super) fn start_with_groups(groups: u16) -> Self {
        Self::start_as(groups, false)
    }

    /// The same with nodes that can be isolated from each other.
    pub(super) fn start_with_links(groups: u16) -> Self {
        Self::start_as(groups, true)
    }

    fn start_as(groups: u16, has_links: bool) -> Self {
        let mut failure = String::new();
        for _ in 0..START_TRIES {
            match Self::try_to_start(groups, has_links) {
                Ok(cluster) => {
                    cluster.leader();
                    return cluster;
                }
                Err(error) if error.contains("cannot listen") => failure = error,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("no ports are free: {failure}");
    }

    fn try_to_start(groups: u16, has_links: bool) -> Result<Self, String> {
        let free = ports::free::<6>().unwrap();
        let ports = free.chunks(2).map(|pair| Ports {
            clients: pair[0],
            nodes: pair[1],
        });
        let ports: Vec<Ports> = ports.collect();
        let nodes: Vec<u16> = ports.iter().map(|ports| ports.nodes).collect();
        let mut cluster = Self {
            cli: TestCli::sqlite().with_variable("QO_CLUSTER_SECRET", SECRET),
            ports,
            nodes: vec![None, None, None],
            groups,
            links: has_links.then(|| Links::start(&nodes)),
        };
        for node in 1..=3 {
            let mut command = cluster.command(node);
            cluster.try_to_start_with(node, &mut command)?;
        }
        Ok(cluster)
    }

    pub(super) fn groups(&self) -> u16 {
        self.groups
    }

    /// The URL of all nodes.
    pub(super) fn url(&self) -> String {
        let nodes = self.ports.iter();
        let nodes: Vec<_> = nodes
            .map(|ports| format!("127.0.0.1:{}", ports.clients))
            .collect();
        format!("cluster://{}", nodes.join(","))
    }

    /// The URL of one node.
    pub(super) fn url_of(&self, node: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[node - 1].clients)
    }

    /// A connection of this process.
    pub(super) fn connection(&self) -> Connect {
        Connect::to(self.url()).options(OpenOptions::new(TokioRuntime::shared()))
    }

    /// A connection to one node, which answers reads from its own rows.
    pub(super) fn stale_connection(&self, node: usize) -> Connect {
        let port = self.ports[node - 1].clients;
        Connect::to(format!("cluster://127.0.0.1:{port}?stale=true"))
            .options(OpenOptions::new(TokioRuntime::shared()))
    }

    pub(super) async fn queue(&self) -> Queue {
        self.connection().open().await.unwrap()
    }

    pub(super) fn data(&self, node: usize) -> PathBuf {
        self.cli.file(&format!("node-{node}"))
    }

    /// The command that starts a node.
    pub(super) fn command(&self, node: usize) -> Command {
        let own = &self.ports[node - 1];
        let mut arguments = vec![
            "--json".to_owned(),
            "serve".to_owned(),
            "--cluster=test".to_owned(),
            format!("--node={node}"),
            format!("--data={}", self.data(node).display()),
            format!("--listen=127.0.0.1:{}", own.clients),
            format!("--node-listen=127.0.0.1:{}", own.nodes),
            "--payload-max=262144".to_owned(),
        ];
        if self.groups > 1 {
            arguments.push(format!("--groups={}", self.groups));
        }
        for other in 1..=self.ports.len() {
            arguments.push(format!("--member={}", self.member(other)));
        }
        self.cli.command(arguments)
    }

    /// The command that starts a node which waits to be added.
    pub(super) fn joining_command(&self, node: usize) -> Command {
        let command = self.command(node);
        let arguments = command.get_args().map(std::ffi::OsStr::to_os_string);
        let arguments =
            arguments.filter(|argument| !argument.to_string_lossy().starts_with("--member="));
        self.cli.command(arguments.collect::<Vec<_>>())
    }

    /// A node as `qo cluster add` takes it.
    pub(super) fn member(&self, node: usize) -> String {
        let ports = &self.ports[node - 1];
        let links = self.links.as_ref();
        let reached = links.map_or(ports.nodes, |links| links.port(node));
        format!(
            "{node}@127.0.0.1:{reached}=http://127.0.0.1:{}",
            ports.clients
        )
    }

    /// The connections between the nodes.
    pub(super) fn links(&self) -> &Links {
        self.links.as_ref().unwrap()
    }

    /// Starts a node, and waits until it listens.
    pub(super) fn start_node(&mut self, node: usize) {
        let mut command = self.command(node);
        self.start_with(node, &mut command);
    }

    pub(super) fn start_with(&mut self, node: usize, command: &mut Command) {
        let started = self.try_to_start_with(node, command);
        started.unwrap_or_else(|error| panic!("{error}"));
    }

    fn try_to_start_with(&mut self, node: usize, command: &mut Command) -> Result<(), String> {
        let mut process =
            LoggedProcess::start_with_output(&format!("node {node}"), command).unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(process.child().stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        if !line.contains("serving") {
            process.wait(LIMIT);
            let _ = process.wait_for_log("error", Duration::from_secs(5));
            return Err(format!("node {node} printed {line:?}: {}", process.log()));
        }
        self.nodes[node - 1] = Some(process);
        Ok(())
    }

    pub(super) fn is_running(&self, node: usize) -> bool {
        self.nodes[node - 1].is_some()
    }

    fn process(&self, node: usize) -> &LoggedProcess {
        self.nodes[node - 1].as_ref().unwrap()
    }

    /// The log output of a node.
    pub(super) fn log_of(&self, node: usize) -> String {
        self.process(node).log()
    }

    /// Kills a node with SIGKILL.
    pub(super) fn kill(&mut self, node: usize) {
        let mut process = self.nodes[node - 1].take().unwrap();
        process.kill();
    }

    /// Stops a node cleanly.
    pub(super) fn stop(&mut self, node: usize) {
        let mut process = self.nodes[node - 1].take().unwrap();
        send(&process, Signal::TERM);
        let status = process.wait(LIMIT).expect("the node stops");
        assert!(status.success(), "{status}: {}", process.log());
    }

    pub(super) fn signal(&self, node: usize, signal: Signal) {
        send(self.process(node), signal);
    }

    /// The state that a node shows, if it responds.
    pub(super) fn status(&self, node: usize) -> Option<Value> {
        self.nodes[node - 1].as_ref()?;
        let url = self.url_of(node);
        let output = self
            .cli
            .run(["cluster", "status", "--json", "--store", &url]);
        let text = String::from_utf8(output.stdout).ok()?;
        serde_json::from_str(text.lines().next()?).ok()
    }

    /// Waits until a node leads and serves, and returns it.
    pub(super) fn leader(&self) -> usize {
        let mut leader = 0;
        let is_led = wait_until(LIMIT, || {
            let status = self
                .cli
                .run(["cluster", "status", "--json", "--store", &self.url()]);
            let text = String::from_utf8_lossy(&status.stdout).into_owned();
            let Some(Ok(status)) = text.lines().next().map(serde_json::from_str::<Value>) else {
                return false;
            };
            leader = number(&status["leader"]);
            status["serving"] == true && leader > 0
        });
        assert!(is_led, "no node leads");
        leader
    }

    /// Waits until all running nodes have applied the same entry.
    pub(super) fn settle(&self) {
        self.wait_for_lag(0);
    }

    /// Waits until all running nodes are close behind the leader, which has more to do meanwhile.
    pub(super) fn catch_up(&self) {
        self.wait_for_lag(100);
    }

    fn wait_for_lag(&self, max: u64) {
        let is_settled = wait_until(LIMIT, || {
            let leader = self.leader();
            let Some(status) = self.status(leader) else {
                return false;
            };
            let members = status["members"].as_array().cloned().unwrap_or_default();
            members.iter().all(|member| {
                let node = number(&member["node"]);
                self.nodes[node - 1].is_none()
                    || member["lag"].as_u64().is_some_and(|lag| lag <= max)
            })
        });
        assert!(is_settled, "a node stays behind");
        std::thread::sleep(Duration::from_millis(200));
    }
}
