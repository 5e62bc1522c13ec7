//! The nodes as processes.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use qo_remote::wire::cluster::MemberBody;
use qo_remote::{RemoteConfig, RemoteEngine};
use qo_store::runtime::TokioRuntime;
use qo_testkit::ports;
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_mins(2);
/// Three members, and a node that joins.
const COUNT: usize = 4;

/// The nodes of a cluster. They are killed when this is dropped.
pub(crate) struct Nodes {
    folder: TempDir,
    clients: [u16; COUNT],
    between: [u16; COUNT],
    processes: [Option<Child>; COUNT],
    groups: u16,
}

impl Nodes {
    /// Starts three nodes with one group, and waits until one leads.
    pub(crate) fn start() -> Self {
        Self::with_groups(1)
    }

    /// Starts three nodes that divide the tasks over groups.
    pub(crate) fn with_groups(groups: u16) -> Self {
        let ports = ports::free::<{ 2 * COUNT }>().unwrap();
        // The data must be on a disk, and a temporary directory may be in memory.
        let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let mut nodes = Self {
            folder: tempfile::tempdir_in(target).unwrap(),
            clients: std::array::from_fn(|node| ports[node]),
            between: std::array::from_fn(|node| ports[COUNT + node]),
            processes: [const { None }; COUNT],
            groups,
        };
        for node in 1..=3 {
            nodes.start_node(node);
        }
        nodes.leader();
        nodes
    }

    fn url_of(&self, node: usize) -> String {
        format!("http://127.0.0.1:{}", self.clients[node - 1])
    }

    /// Starts a node on the data that it has.
    pub(crate) fn start_node(&mut self, node: usize) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
        command
            .args(["--json", "serve", "--cluster=bench"])
            .arg(format!("--node={node}"))
            .arg(format!("--groups={}", self.groups))
            .arg(format!(
                "--data={}",
                self.folder.path().join(node.to_string()).display()
            ))
            .arg(format!("--listen=127.0.0.1:{}", self.clients[node - 1]))
            .arg(format!(
                "--node-listen=127.0.0.1:{}",
                self.between[node - 1]
            ))
            .env("QO_CLUSTER_SECRET", "a secret of the benchmark")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        for member in (1..=3).filter(|_| node <= 3) {
            command.arg(format!(
                "--member={member}@127.0.0.1:{}={}",
                self.between[member - 1],
                self.url_of(member)
            ));
        }
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert!(line.contains("serving"), "node {node} printed {line:?}");
        self.processes[node - 1] = Some(process);
    }

    pub(crate) fn kill(&mut self, node: usize) {
        let mut process = self.processes[node - 1].take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Stops a node cleanly.
    pub(crate) fn stop(&mut self, node: usize) {
        let mut process = self.processes[node - 1].take().unwrap();
        let id = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        process.wait().unwrap();
    }

    pub(crate) fn process_ids(&self) -> Vec<u32> {
        self.processes.iter().flatten().map(Child::id).collect()
    }

    /// The memory of a node.
    pub(crate) fn memory_mib(&self, node: usize) -> f64 {
        let id = self.processes[node - 1].as_ref().unwrap().id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.unwrap_or_default() / 1_024.0
    }

    /// A client of all nodes.
    pub(crate) fn engine(&self) -> RemoteEngine {
        let hosts: Vec<_> = (1..=3)
            .map(|node| format!("127.0.0.1:{}", self.clients[node - 1]))
            .collect();
        let mut config = RemoteConfig::parse(&format!("cluster://{}", hosts.join(","))).unwrap();
        config.retry_for = PATIENCE;
        RemoteEngine::new(config, TokioRuntime::shared()).unwrap()
    }

    /// What a node says about the cluster.
    fn status(&self, node: usize) -> Option<Value> {
        self.processes[node - 1].as_ref()?;
        let output = Command::new(env!("CARGO_BIN_EXE_qo"))
            .args(["cluster", "status", "--json", "--store", &self.url_of(node)])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Waits until a node leads, and returns it.
    pub(crate) fn leader(&self) -> usize {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            for node in 1..=3 {
                // A node that follows is answered for by the leader.
                let status = self.status(node).unwrap_or_default();
                if let (true, Some(leader)) = (status["serving"] == true, status["leader"].as_u64())
                {
                    return usize::try_from(leader).unwrap();
                }
            }
        }
        panic!("no node leads");
    }

    /// Waits until all nodes have the same log.
    pub(crate) async fn wait_until_equal(&self) {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let status = self.status(self.leader()).unwrap_or_default();
            let members = status["members"].as_array().cloned().unwrap_or_default();
            if !members.is_empty() && members.iter().all(|member| member["lag"] == 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("a node stays behind");
    }

    /// The size of the log for each completed task, in the entries that the leader has.
    pub(crate) async fn log_bytes_a_task(&self) -> f64 {
        let engine = self.engine();
        engine.check().await.unwrap();
        let entries = engine.cluster_log(0, None, 1_000).await.unwrap();
        let (mut bytes, mut completed) = (0.0, 0.0_f64);
        for entry in entries {
            bytes += entry["bytes"].as_f64().unwrap_or_default();
            let commands = entry["commands"].as_array().cloned().unwrap_or_default();
            let ended = commands
                .iter()
                .filter(|command| command["name"] == "COMPLETE");
            completed += ended.count() as f64;
        }
        bytes / completed.max(1.0)
    }

    /// Adds a fourth node. Returns when it has caught up.
    pub(crate) async fn join_fourth(&mut self) {
        self.start_node(COUNT);
        let member = MemberBody {
            address: format!("127.0.0.1:{}", self.between[COUNT - 1]),
            url: self.url_of(COUNT),
        };
        let engine = self.engine();
        engine.check().await.unwrap();
        engine.cluster_add(COUNT as u64, &member).await.unwrap();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for mut process in self.processes.iter_mut().filter_map(Option::take) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
