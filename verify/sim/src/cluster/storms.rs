//! What strikes a node: deaths, stops, pauses, messages that are cut off, disks that are full or slow.

use std::sync::Arc;
use std::time::Duration;

use super::run::Stage;
use crate::random::Random;

/// One seed in this many has no faults.
const CALM_EVERY: u64 = 6;
/// One seed in this many has several groups: two, three or four.
const GROUPS_EVERY: u64 = 5;
const GROUPS_MIN: u64 = 2;
const GROUPS_KINDS: u64 = 3;
/// How long a node that is stopped has to hand its groups over.
const STOP_MAX: Duration = Duration::from_secs(2);

/// The number of groups in the run of a seed.
fn groups_of(seed: u64) -> u16 {
    if seed % GROUPS_EVERY != GROUPS_EVERY - 2 {
        return 1;
    }
    u16::try_from(GROUPS_MIN + seed / GROUPS_EVERY % GROUPS_KINDS).unwrap_or(1)
}

/// The faults of a run.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) trouble: Duration,
    /// Chances in ten seconds.
    death: f64,
    pause: f64,
    cut: f64,
    full: f64,
    stall: f64,
    pub(super) loss: f64,
    pub(super) latency_ms: u64,
    pub(super) slow_ms: u64,
    pub(super) skew: bool,
    /// Whether nodes are replaced.
    pub(super) replaces: bool,
    /// Whether nodes are stopped as an operator stops them.
    stops: bool,
    pub(super) groups: u16,
    /// How much a group collects before it writes rows.
    pub(super) collected_bytes: usize,
}

impl Faults {
    /// Whether nothing explains an expired lease.
    pub(super) fn is_calm(&self) -> bool {
        let rates = [
            self.death, self.pause, self.cut, self.full, self.stall, self.loss,
        ];
        let has_none = rates.iter().all(|rate| *rate <= 0.0);
        has_none && !self.skew && !self.replaces && !self.stops
    }

    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Random::of(&[seed, 0xc105]);
        let is_calm = seed % CALM_EVERY == CALM_EVERY - 1;
        let mut rate = |share: f64, most: f64| {
            let included = dice.chance(share) && !is_calm;
            let rate = most * dice.unit();
            if included { rate } else { 0.0 }
        };
        let (death, pause) = (rate(0.6, 0.6), rate(0.4, 0.5));
        let (cut, loss) = (rate(0.6, 0.8), rate(0.4, 0.1));
        let (full, stall) = (rate(0.3, 0.5), rate(0.3, 0.5));
        Self {
            trouble: dice.millis(20_000, 90_000),
            death,
            pause,
            cut,
            full,
            stall,
            loss,
            latency_ms: [1, 5, 60][usize::try_from(dice.below(3)).unwrap_or_default()],
            slow_ms: [1, 5, 40][usize::try_from(dice.below(3)).unwrap_or_default()],
            skew: dice.chance(0.4) && !is_calm,
            // Also without other faults.
            replaces: dice.chance(0.4),
            stops: dice.chance(0.4),
            groups: groups_of(seed),
            collected_bytes: [1, 3_000, 30_000][usize::try_from(dice.below(3)).unwrap_or_default()],
        }
    }
}

impl Stage {
    /// Strikes a node every now and then, while there is trouble.
    pub(super) async fn storms_of_a_node(self: Arc<Self>, node: u64) {
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
            if self.faults.stops && dice.chance(0.3) {
                self.stop(node).await;
            }
            if dice.chance(self.faults.pause) {
                let pause = dice.millis(500, 15_000);
                self.scheduler.note(process, || format!("pauses {pause:?}"));
                self.scheduler.pause(process, pause);
            }
            if dice.chance(self.faults.full) {
                self.scheduler
                    .note(process, || "its disk is full".to_owned());
                self.disks[&node].set_full(true);
                self.scheduler.sleep(dice.millis(500, 20_000)).await;
                self.disks[&node].set_full(false);
            }
            // Waiting may have taken longer than the trouble.
            if self.is_calm() {
                return;
            }
            if dice.chance(self.faults.stall) {
                self.scheduler
                    .note(process, || "its disk is slow".to_owned());
                self.disks[&node].set_stalls(true);
                self.scheduler.sleep(dice.millis(500, 15_000)).await;
                self.disks[&node].set_stalls(false);
            }
            if self.is_calm() {
                return;
            }
            if dice.chance(self.faults.cut) {
                self.cut_off(&mut dice, node).await;
            }
        }
    }

    /// Lets a node hand its groups over, and ends it.
    async fn stop(&self, node: u64) {
        let Some((process, running)) = self.node(node) else {
            return;
        };
        self.scheduler.note(process, || "is stopped".to_owned());
        let stopping = async move { running.hand_over().await };
        self.scheduler.spawn(process, Box::pin(stopping));
        tokio::select! {
            biased;
            () = self.scheduler.died(process) => {}
            () = self.scheduler.sleep(STOP_MAX) => self.scheduler.doom(process, 1),
        }
    }

    /// Cuts a node off from others for a while, in one direction or both.
    async fn cut_off(&self, dice: &mut Random, node: u64) {
        let mut cuts = Vec::new();
        // Often it is cut off from everybody.
        let is_alone = dice.chance(0.3);
        for other in self.present().into_iter().filter(|other| *other != node) {
            match if is_alone { 2 } else { dice.below(4) } {
                0 => cuts.push((node, other)),
                1 => cuts.push((other, node)),
                2 => cuts.extend([(node, other), (other, node)]),
                _ => {}
            }
        }
        self.scheduler.note(crate::sched::HARNESS, || {
            format!("messages are cut off: {cuts:?}")
        });
        for (from, to) in &cuts {
            self.network.cut(*from, *to);
        }
        self.scheduler.sleep(dice.millis(1_000, 20_000)).await;
        for (from, to) in cuts {
            self.network.mend(from, to);
        }
    }

    /// Ends what strikes disks.
    pub(super) fn calm_disks(&self) {
        for disk in self.disks.values() {
            disk.set_full(false);
            disk.set_stalls(false);
        }
    }
}
