//! One run of a cluster: trouble, recovery, checks.
//!
//! | phase | content |
//! | --- | --- |
//! | trouble | clients work; nodes die at any await and restart with their disks, pause, and are cut off from each other in one direction or both |
//! | recovery | no faults; all nodes run; every acknowledged task is finished within the limit |
//! | checks | every acknowledged task is there, and all nodes have the same rows |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_cluster::{
    ClusterConfig, ClusterEngine, ClusterNode, ClusterSecret, Member, NodeParts, RowStore,
};
use qo_core::TaskId;
use qo_engine::Engine;
use qo_store::runtime::Runtime;

use super::Mutation;
use super::client::Answer;
use super::disk::SimDisk;
use super::ledger::Ledger;
use super::network::SimNetwork;
use crate::random::Random;
use crate::sched::panics;
use crate::sched::{HARNESS, ProcessId, Scheduler, SimRuntime, lock};
use crate::trace::Trace;

/// The number of nodes.
pub(super) const NODES: u64 = 3;
/// How long recovery may take.
const RECOVERY_MAX: Duration = Duration::from_mins(5);
/// One seed in this many has no faults.
const CALM_EVERY: u64 = 6;
/// The largest error of a node's clock.
const SKEW_MAX_MS: u64 = 30_000;

/// The result of a run.
#[derive(Debug, Clone)]
pub struct ClusterOutcome {
    /// Its seed.
    pub seed: u64,
    /// What is wrong.
    pub found: Vec<String>,
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

/// The faults of a run.
#[derive(Debug)]
struct Faults {
    trouble: Duration,
    /// Chances in ten seconds.
    death: f64,
    pause: f64,
    cut: f64,
    loss: f64,
    latency_ms: u64,
    slow_ms: u64,
    skew: bool,
}

impl Faults {
    fn of(seed: u64) -> Self {
        let mut dice = Random::of(&[seed, 0xc105]);
        let is_calm = seed % CALM_EVERY == CALM_EVERY - 1;
        let mut rate = |share: f64, most: f64| {
            let included = dice.chance(share) && !is_calm;
            let rate = most * dice.unit();
            if included { rate } else { 0.0 }
        };
        let (death, pause) = (rate(0.6, 0.6), rate(0.4, 0.5));
        let (cut, loss) = (rate(0.6, 0.8), rate(0.4, 0.1));
        Self {
            trouble: dice.millis(20_000, 90_000),
            death,
            pause,
            cut,
            loss,
            latency_ms: [1, 5, 60][usize::try_from(dice.below(3)).unwrap_or_default()],
            slow_ms: [1, 5, 40][usize::try_from(dice.below(3)).unwrap_or_default()],
            skew: dice.chance(0.4) && !is_calm,
        }
    }
}

/// The shared state of a run.
pub(super) struct Stage {
    pub(super) seed: u64,
    pub(super) scheduler: Scheduler,
    pub(super) ledger: Mutex<Ledger>,
    faults: Faults,
    network: SimNetwork,
    disks: BTreeMap<u64, SimDisk>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<u64, (ProcessId, Option<ClusterNode>)>,
    deaths: u64,
    calm: bool,
    over: bool,
}

/// Runs a seed, with a planted bug or without.
pub fn run(seed: u64, mutation: Option<Mutation>, keeps_trace: bool) -> ClusterOutcome {
    panics::record();
    let faults = Faults::of(seed);
    let scheduler = Scheduler::new(seed, Trace::new(keeps_trace));
    let network = SimNetwork::new(
        &scheduler,
        Random::of(&[seed, 0x4e7]),
        faults.loss,
        faults.latency_ms,
        mutation,
    );
    let disk = |node| {
        let dice = Random::of(&[seed, 0xd15c, node]);
        (
            node,
            SimDisk::new(&scheduler, dice, faults.slow_ms, mutation),
        )
    };
    let stage = Arc::new(Stage {
        seed,
        network,
        disks: (1..=NODES).map(disk).collect(),
        ledger: Mutex::default(),
        state: Mutex::default(),
        faults,
        scheduler: scheduler.clone(),
    });
    let main = Arc::clone(&stage);
    let ended = scheduler.run(Box::pin(async move { main.play().await }));
    let mut found = lock(&stage.ledger).found.clone();
    if let Err(stuck) = ended {
        found.push(format!("the run cannot continue: {stuck:?}"));
    }
    found.extend(panics::recorded());
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

    /// The engine of a node that runs, and its process.
    pub(super) fn engine(&self, node: u64) -> Option<(ProcessId, ClusterEngine)> {
        let state = lock(&self.state);
        let (process, node) = state.nodes.get(&node)?;
        Some((*process, node.as_ref()?.engine()))
    }

    fn breach(&self, what: String) {
        lock(&self.ledger).found.push(what);
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.scheduler.spawn(HARNESS, Box::pin(future));
    }

    async fn play(self: Arc<Self>) {
        for node in 1..=NODES {
            self.spawn(Arc::clone(&self).lives_of_a_node(node));
            self.spawn(Arc::clone(&self).storms_of_a_node(node));
        }
        let mut dice = Random::of(&[self.seed, 0x9]);
        for number in 1..=2 {
            let tasks = dice.between(5, 25);
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
        let mut state = lock(&self.state);
        state.calm = true;
        for (process, _) in state.nodes.values() {
            self.scheduler.unpause(*process);
            self.scheduler.spare(*process);
        }
        drop(state);
        self.scheduler.note(HARNESS, || "faults end".to_owned());
    }

    /// Starts a node again and again, until the run is over.
    async fn lives_of_a_node(self: Arc<Self>, node: u64) {
        for life in 1_u64.. {
            let mut dice = Random::of(&[self.seed, 0x11fe, node, life]);
            if life > 1 {
                self.scheduler.sleep(dice.millis(10, 8_000)).await;
            }
            let process = self.start_node(node, life, &mut dice);
            self.scheduler.died(process).await;
            self.network.leave(node);
            let mut state = lock(&self.state);
            let gone = state.nodes.remove(&node);
            state.deaths += 1;
            let over = state.over;
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
        let disk = self.disks[&node].clone();
        let parts = NodeParts {
            files: Arc::new(disk.clone()),
            rows: Arc::new(disk.rows.clone()),
            pool: Arc::new(disk),
            transport: self.network.transport(node),
        };
        let stage = Arc::clone(self);
        let starting = async move {
            let Some(config) = config(node) else { return };
            match ClusterNode::start_with(parts, config, runtime).await {
                Ok(started) => {
                    stage.network.join(node, process, started.service());
                    lock(&stage.state)
                        .nodes
                        .insert(node, (process, Some(started)));
                    stage.scheduler.note(process, || "runs".to_owned());
                }
                Err(error) => stage.breach(format!("node {node} does not start: {error}")),
            }
        };
        self.scheduler.spawn(process, Box::pin(starting));
        process
    }

    /// Strikes a node every now and then, while there is trouble.
    async fn storms_of_a_node(self: Arc<Self>, node: u64) {
        let mut dice = Random::of(&[self.seed, 0x5707, node]);
        loop {
            self.scheduler.sleep(dice.millis(5_000, 15_000)).await;
            if self.is_calm() {
                return;
            }
            let Some((process, _)) = self.engine(node) else {
                continue;
            };
            if dice.chance(self.faults.death) {
                let polls = dice.between(1, 2_000);
                self.scheduler.doom(process, polls);
            }
            if dice.chance(self.faults.pause) {
                let pause = dice.millis(500, 15_000);
                self.scheduler.note(process, || format!("pauses {pause:?}"));
                self.scheduler.pause(process, pause);
            }
            if dice.chance(self.faults.cut) {
                let others: Vec<u64> = (1..=NODES).filter(|other| *other != node).collect();
                let mut cuts = Vec::new();
                for other in others {
                    match dice.below(4) {
                        0 => cuts.push((node, other)),
                        1 => cuts.push((other, node)),
                        2 => cuts.extend([(node, other), (other, node)]),
                        _ => {}
                    }
                }
                self.scheduler
                    .note(process, || format!("messages are cut off: {cuts:?}"));
                for (from, to) in &cuts {
                    self.network.cut(*from, *to);
                }
                self.scheduler.sleep(dice.millis(1_000, 20_000)).await;
                for (from, to) in cuts {
                    self.network.mend(from, to);
                }
            }
        }
    }

    /// Waits until every acknowledged task is finished and all nodes agree.
    async fn recover(self: &Arc<Self>) {
        let began = self.scheduler.elapsed();
        let mut dice = Random::of(&[self.seed, 0x4ec]);
        let mut last = String::new();
        while self.scheduler.elapsed().saturating_sub(began) < RECOVERY_MAX {
            self.scheduler.sleep(Duration::from_secs(5)).await;
            match self.unfinished(&mut dice).await {
                None => {
                    lock(&self.state).over = true;
                    // What clients have begun ends.
                    self.scheduler.sleep(Duration::from_secs(30)).await;
                    return self.compare().await;
                }
                Some(what) => last = what,
            }
        }
        lock(&self.state).over = true;
        self.breach(format!("without faults, after {RECOVERY_MAX:?}: {last}"));
    }

    async fn unfinished(&self, dice: &mut Random) -> Option<String> {
        let ids: Vec<TaskId> = lock(&self.ledger).submitted.keys().copied().collect();
        for id in ids {
            let began = self.scheduler.elapsed();
            let answer = self.insist(dice, |engine| Box::pin(async move { engine.get(id).await }));
            match answer.await {
                Answer::Done(task) => {
                    lock(&self.ledger).read(began, id, Some(&task));
                    if !task.status.is_terminal() {
                        return Some(format!("{id} is {}", task.status));
                    }
                }
                Answer::Rejected(error) => {
                    lock(&self.ledger).read(began, id, None);
                    if !error.is_not_found() {
                        return Some(format!("{id}: {error}"));
                    }
                }
                Answer::Unknown => return Some("no node serves".to_owned()),
            }
        }
        None
    }

    /// Checks that all nodes have the same rows.
    async fn compare(&self) {
        for _ in 0..60 {
            let applied: Vec<_> = self
                .nodes()
                .iter()
                .map(ClusterNode::status)
                .map(|status| (status.log_last, status.applied))
                .collect();
            let settled = applied.len() as u64 == NODES
                && applied
                    .iter()
                    .all(|state| *state == applied[0] && state.0 == state.1);
            if settled {
                let rows: Vec<_> = self
                    .disks
                    .values()
                    .map(|disk| disk.rows.rows.all())
                    .collect();
                for other in &rows {
                    let missing = rows[0].iter().find(|row| !other.contains(row));
                    let surplus = other.iter().find(|row| !rows[0].contains(row));
                    if missing.is_some() || surplus.is_some() {
                        self.breach(format!(
                            "the nodes have different rows: {missing:?} and {surplus:?}"
                        ));
                    }
                }
                return;
            }
            self.scheduler.sleep(Duration::from_millis(500)).await;
        }
        let states: Vec<_> = self
            .nodes()
            .iter()
            .map(|node| {
                let status = node.status();
                format!(
                    "{} {} term {} log {:?} applied {:?} {:?}",
                    status.node,
                    status.state,
                    status.term,
                    status.log_last,
                    status.applied,
                    status.failure
                )
            })
            .collect();
        self.breach(format!("the nodes do not agree in the end: {states:?}"));
    }

    fn nodes(&self) -> Vec<ClusterNode> {
        let state = lock(&self.state);
        let nodes = state.nodes.values();
        nodes.filter_map(|(_, node)| node.clone()).collect()
    }

    fn digest(&self) -> u64 {
        let mut digest = self.scheduler.polls();
        for disk in self.disks.values() {
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

fn config(node: u64) -> Option<ClusterConfig> {
    let secret = ClusterSecret::new("a secret of the simulator").ok()?;
    let listen = "127.0.0.1:0".parse().ok()?;
    let mut config = ClusterConfig::new(node, "sim", "", listen, secret);
    config.members = (1..=NODES)
        .map(|node| Member::new(node, format!("n{node}"), format!("http://n{node}")))
        .collect();
    config.heartbeat = Duration::from_millis(300);
    config.election = (Duration::from_millis(1_200), Duration::from_millis(2_400));
    // Runs are short, and the log should be cut in them.
    config.snapshot_entries = 25;
    config.kept_entries = 6;
    config.segment_bytes = 2_048;
    config.broker.lease_ms = 6_000;
    Some(config)
}
