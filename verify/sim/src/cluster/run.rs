//! One run of a cluster: trouble, recovery, checks.
//!
//! | phase | content |
//! | --- | --- |
//! | trouble | clients work; nodes die at any await and restart with their disks, pause, are cut off from each other in one direction or both, and have full and slow disks; in some runs nodes are replaced |
//! | recovery | no faults; all nodes run; every acknowledged task is finished within the limit |
//! | checks | every acknowledged task is there, and all members have the same rows |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_check::{Breaches, Promise};
use qo_cluster::{ClusterConfig, ClusterSecret, NodeGroups, NodeParts, RowStore};
use qo_engine::Engine;
use qo_store::runtime::Runtime;

use super::disk::NodeDisk;
use super::ledger::Ledger;
use super::network::SimNetwork;
use super::operator::member;
use super::rules::Rules;
use super::storms::Faults;
use crate::random::Random;
use crate::sched::panics;
use crate::sched::{HARNESS, ProcessId, Scheduler, SimRuntime, lock};
use crate::trace::Trace;

/// The number of nodes, and the highest number of one, if nodes are replaced.
pub(super) const NODES: u64 = 3;
pub(super) const NODES_MAX: u64 = 6;
/// The number of clients of each kind, and the most tasks of one, if there are rules.
const CLIENTS: u64 = 2;
const RULED_TASKS_MAX: u64 = 14;
/// The largest error of a node's clock.
const SKEW_MAX_MS: u64 = 30_000;

/// The result of a run.
#[derive(Debug, Clone)]
pub struct ClusterOutcome {
    /// Its seed.
    pub seed: u64,
    /// What is wrong.
    pub found: Breaches,
    /// The number of acknowledged tasks.
    pub tasks: usize,
    /// The number of deaths of nodes.
    pub deaths: u64,
    /// The length of the run in virtual time.
    pub lasted: Duration,
    /// A number that depends on every poll and on all rows in the end.
    pub digest: u64,
    /// The trace, if it was kept.
    pub trace: Vec<String>,
}

/// The shared state of a run.
pub(super) struct Stage {
    pub(super) seed: u64,
    pub(super) scheduler: Scheduler,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) faults: Faults,
    /// The rules, if the run has any.
    pub(super) rules: Option<Rules>,
    pub(super) network: SimNetwork,
    pub(super) disks: BTreeMap<u64, NodeDisk>,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// The nodes that run.
    pub(super) nodes: BTreeMap<u64, (ProcessId, Option<NodeGroups>)>,
    /// The nodes that exist, also while they do not run.
    present: BTreeSet<u64>,
    pub(super) operator_done: bool,
    /// The clients that still submit.
    pub(super) submitters: u64,
    deaths: u64,
    calm: bool,
    pub(super) over: bool,
}

/// Runs a seed.
pub fn run(seed: u64, keeps_trace: bool) -> ClusterOutcome {
    panics::record();
    let faults = Faults::of(seed);
    let scheduler = Scheduler::new(seed, Trace::new(keeps_trace));
    let network = SimNetwork::new(
        &scheduler,
        Random::of(&[seed, 0x4e7]),
        faults.loss,
        faults.latency_ms,
    );
    let rules = Rules::of(seed, &faults, &scheduler);
    let versions = rules.as_ref().map(|rules| &rules.versions);
    let disk = |node| {
        let dice = [seed, 0xd15c, node];
        let (groups, slow_ms) = (faults.groups, faults.slow_ms);
        let disk = NodeDisk::new(&scheduler, &dice, groups, slow_ms, versions);
        (node, disk)
    };
    let stage = Arc::new(Stage {
        seed,
        network,
        disks: (1..=NODES_MAX).map(disk).collect(),
        ledger: Mutex::default(),
        state: Mutex::default(),
        rules,
        faults,
        scheduler: scheduler.clone(),
    });
    let main = Arc::clone(&stage);
    let ended = scheduler.run(Box::pin(async move { main.play().await }));
    let mut found = lock(&stage.ledger).found.clone();
    if let Err(stuck) = ended {
        found.add(Promise::Run, format!("the run cannot continue: {stuck:?}"));
    } else if let Some(rules) = &stage.rules {
        found.0.extend(rules.check(&stage.faults).0);
    }
    for panic in panics::recorded() {
        found.add(Promise::Run, panic);
    }
    let digest = stage.digest();
    let outcome = ClusterOutcome {
        seed,
        found,
        tasks: lock(&stage.ledger).submitted.len(),
        deaths: lock(&stage.state).deaths,
        lasted: scheduler.elapsed(),
        digest,
        trace: scheduler.take_trace(),
    };
    lock(&stage.state).nodes.clear();
    scheduler.finish();
    outcome
}

impl Stage {
    pub(super) fn is_over(&self) -> bool {
        lock(&self.state).over
    }

    pub(super) fn is_calm(&self) -> bool {
        lock(&self.state).calm
    }

    /// A node that runs, and its process.
    pub(super) fn node(&self, node: u64) -> Option<(ProcessId, NodeGroups)> {
        let state = lock(&self.state);
        let (process, node) = state.nodes.get(&node)?;
        Some((*process, node.clone()?))
    }

    /// The engine of a node that runs, and its process.
    pub(super) fn engine(&self, node: u64) -> Option<(ProcessId, Arc<dyn Engine>)> {
        let (process, node) = self.node(node)?;
        let engine = match &self.rules {
            Some(rules) => rules.recorded(process, node.engine()),
            None => node.engine(),
        };
        Some((process, engine))
    }

    pub(super) fn breach(&self, promise: Promise, what: String) {
        lock(&self.ledger).breach(promise, what);
    }

    pub(super) fn submitter_ends(&self) {
        lock(&self.state).submitters -= 1;
    }

    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.scheduler.spawn(HARNESS, Box::pin(future));
    }

    async fn play(self: Arc<Self>) {
        for node in 1..=NODES {
            self.begin_node(node);
        }
        if self.faults.replaces {
            self.spawn(Arc::clone(&self).replace_nodes());
        } else {
            self.set_operator_done();
        }
        self.write_limits().await;
        let mut dice = Random::of(&[self.seed, 0x9]);
        for number in 1..=CLIENTS {
            lock(&self.state).submitters += 1;
            let mut tasks = dice.between(5, 25);
            if self.rules.is_some() {
                // Their checks take time.
                tasks = tasks.min(RULED_TASKS_MAX);
            }
            self.spawn(Arc::clone(&self).submit_tasks(number, tasks));
            self.spawn(Arc::clone(&self).work(number));
            self.spawn(Arc::clone(&self).read(number));
        }
        self.scheduler.sleep(self.faults.trouble).await;
        self.calm_down();
        self.recover().await;
    }

    fn calm_down(&self) {
        self.network.calm_down();
        self.calm_disks();
        let mut state = lock(&self.state);
        state.calm = true;
        for (process, _) in state.nodes.values() {
            self.scheduler.unpause(*process);
            self.scheduler.spare(*process);
        }
        drop(state);
        self.scheduler.note(HARNESS, || "faults end".to_owned());
    }

    /// Lets a node exist from now on.
    pub(super) fn begin_node(self: &Arc<Self>, node: u64) {
        lock(&self.state).present.insert(node);
        self.spawn(Arc::clone(self).lives_of_a_node(node));
        self.spawn(Arc::clone(self).storms_of_a_node(node));
    }

    /// Stops a node for ever.
    pub(super) fn retire(&self, node: u64) {
        let mut state = lock(&self.state);
        state.present.remove(&node);
        let running = state.nodes.get(&node).map(|(process, _)| *process);
        drop(state);
        if let Some(process) = running {
            self.scheduler.unpause(process);
            self.scheduler.doom(process, 1);
        }
    }

    /// The nodes that exist.
    pub(super) fn present(&self) -> Vec<u64> {
        lock(&self.state).present.iter().copied().collect()
    }

    /// One of the nodes that exist.
    pub(super) fn any_node(&self, dice: &mut Random) -> u64 {
        let nodes = self.present();
        let place = usize::try_from(dice.below(nodes.len() as u64)).unwrap_or_default();
        nodes.get(place).copied().unwrap_or(1)
    }

    pub(super) fn set_operator_done(&self) {
        lock(&self.state).operator_done = true;
    }

    /// Starts a node again and again, until the run is over or the node is retired.
    async fn lives_of_a_node(self: Arc<Self>, node: u64) {
        for life in 1_u64.. {
            let mut dice = Random::of(&[self.seed, 0x11fe, node, life]);
            if life > 1 {
                self.scheduler.sleep(dice.millis(10, 8_000)).await;
            }
            if !self.present().contains(&node) {
                return;
            }
            let process = self.start_node(node, life, &mut dice);
            self.scheduler.died(process).await;
            self.network.leave(node);
            let mut state = lock(&self.state);
            let gone = state.nodes.remove(&node);
            state.deaths += 1;
            let over = state.over || !state.present.contains(&node);
            drop(state);
            drop(gone);
            self.disks[&node].crash();
            if over {
                return;
            }
        }
    }

    fn start_node(self: &Arc<Self>, node: u64, life: u64, dice: &mut Random) -> ProcessId {
        let skew_ms = if self.faults.skew {
            i64::try_from(dice.below(2 * SKEW_MAX_MS)).unwrap_or_default()
                - i64::try_from(SKEW_MAX_MS).unwrap_or_default()
        } else {
            0
        };
        let random = Random::of(&[self.seed, 0x4a, node, life]);
        let process = self
            .scheduler
            .start_process(format!("n{node}.{life}"), random, skew_ms);
        lock(&self.state).nodes.insert(node, (process, None));
        let runtime: Arc<dyn Runtime> = SimRuntime::of(&self.scheduler, process);
        let parts = self.disks[&node].groups.iter().map(|disk| NodeParts {
            files: Arc::new(disk.clone()),
            rows: Arc::new(disk.rows.clone()),
            pool: Arc::new(disk.clone()),
            transport: self.network.transport(node),
        });
        let parts = parts.collect();
        let stage = Arc::clone(self);
        let starting = async move {
            let Some(config) = config(node, &stage.faults) else {
                return;
            };
            match NodeGroups::start_with(parts, config, runtime).await {
                Ok(started) => {
                    stage.network.join(node, process, started.service());
                    lock(&stage.state)
                        .nodes
                        .insert(node, (process, Some(started)));
                    stage.scheduler.note(process, || "runs".to_owned());
                }
                // Nobody can start on a full disk. It is started again later.
                Err(_) if stage.disks[&node].is_full() => stage.scheduler.doom(process, 1),
                Err(error) => {
                    let what = format!("node {node} does not start: {error}");
                    stage.breach(Promise::Run, what);
                }
            }
        };
        self.scheduler.spawn(process, Box::pin(starting));
        process
    }

    pub(super) fn nodes(&self) -> Vec<NodeGroups> {
        let state = lock(&self.state);
        let nodes = state.nodes.values();
        nodes.filter_map(|(_, node)| node.clone()).collect()
    }

    fn digest(&self) -> u64 {
        let mut digest = self.scheduler.polls();
        for disk in self.disks.values().flat_map(|disk| &disk.groups) {
            let end = std::ops::Bound::Unbounded;
            for row in disk.rows.page(end, end, usize::MAX).unwrap_or_default() {
                for byte in row.key.iter().chain(&row.value) {
                    digest = digest.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte);
                }
            }
        }
        digest
    }
}

fn config(node: u64, faults: &Faults) -> Option<ClusterConfig> {
    let secret = ClusterSecret::new("a secret of the simulator").ok()?;
    let listen = "127.0.0.1:0".parse().ok()?;
    let mut config = ClusterConfig::new(node, "sim", "", listen, secret);
    if node <= NODES {
        config.members = (1..=NODES).map(member).collect();
    }
    config.groups = faults.groups;
    config.heartbeat = Duration::from_millis(300);
    config.election = (Duration::from_millis(1_200), Duration::from_millis(2_400));
    // Runs are short, and the log should be cut in them.
    config.snapshot_entries = 25;
    config.kept_entries = 6;
    config.segment_bytes = 2_048;
    config.collected_bytes = faults.collected_bytes * usize::from(faults.groups);
    config.broker.lease_ms = 6_000;
    Some(config)
}
