//! Faults of processes and of the store.

use std::sync::Arc;
use std::time::Duration;

use super::Stage;
use crate::faults::{Cut, EVERYBODY, FaultKind};
use crate::random::Random;
use crate::sched::ProcessId;

/// How often faults are drawn.
const INTERVAL_MS: u64 = 10_000;
/// Half of the default lease.
const JUMP_MAX_MS: u64 = 15_000;

impl Stage {
    /// Pauses, partitions and clock jumps of one process, until it dies or the faults end.
    pub(super) async fn storms_of_a_process(self: Arc<Self>, process: ProcessId, name: String) {
        let stream = name
            .bytes()
            .fold(5, |sum: u64, byte| sum * 149 + u64::from(byte));
        for round in 0_u64.. {
            let mut dice = self.trouble.dice(&[0x5708, stream, round]);
            self.scheduler.sleep(dice.millis(0, INTERVAL_MS)).await;
            if self.trouble.is_over() || !self.scheduler.is_alive(process) {
                return;
            }
            for kind in [FaultKind::Pause, FaultKind::Partition, FaultKind::ClockJump] {
                let mut dice = self.trouble.dice(&[0x5708, stream, round, kind as u64]);
                if self.is_drawn(kind, &mut dice) {
                    self.disturb(kind, process, format!("{name}!{kind}{round}"), &mut dice);
                }
            }
            self.scheduler
                .sleep(Duration::from_millis(INTERVAL_MS / 2))
                .await;
        }
    }

    fn disturb(&self, kind: FaultKind, process: ProcessId, id: String, dice: &mut Random) {
        match kind {
            FaultKind::Pause => {
                let most_ms = [3_000, 40_000, 90_000][place(dice, 3)];
                let lasts = dice.millis(100, most_ms);
                if self.trouble.begin(id, kind, process, lasts) {
                    self.scheduler.pause(process, lasts);
                }
            }
            FaultKind::Partition => {
                // A leader must be replaced within a limit, so some partitions of brokers last much longer than that.
                let (longest_ms, cut) = if id.starts_with(super::BROKER_SLOT) {
                    let longest_ms = [20_000, 60_000, 180_000][place(dice, 3)];
                    (longest_ms, Cut::OF_BROKERS[place(dice, 4)])
                } else {
                    (60_000, Cut::All)
                };
                let lasts = dice.millis(1_000, longest_ms);
                self.trouble.partition(id, process, cut, lasts);
            }
            _ => {
                let by_ms = i64::try_from(dice.between(0, 2 * JUMP_MAX_MS)).unwrap_or_default()
                    - i64::try_from(JUMP_MAX_MS).unwrap_or_default();
                if self.trouble.begin(id, kind, process, Duration::ZERO) {
                    self.scheduler
                        .note(process, || format!("its clock jumps by {by_ms} ms"));
                    self.scheduler.jump_clock(process, by_ms);
                }
            }
        }
    }

    /// Outages and damaged objects.
    pub(super) async fn storms_of_the_store(self: Arc<Self>) {
        for round in 0_u64.. {
            let mut dice = self.trouble.dice(&[0x570e, round]);
            self.scheduler.sleep(dice.millis(0, INTERVAL_MS)).await;
            if self.trouble.is_over() {
                return;
            }
            let mut dice = self.trouble.dice(&[0x570e, round, 1]);
            if self.is_drawn(FaultKind::Outage, &mut dice) {
                let most_ms = [5_000, 60_000, 180_000][place(&mut dice, 3)];
                let lasts = dice.millis(500, most_ms);
                let id = format!("store!outage{round}");
                self.trouble.begin(id, FaultKind::Outage, EVERYBODY, lasts);
                self.scheduler.sleep(lasts).await;
            }
            let mut dice = self.trouble.dice(&[0x570e, round, 2]);
            if self.is_drawn(FaultKind::CorruptObject, &mut dice) {
                let mut keys = self.bucket.keys("");
                keys.retain(|key| self.subject.may_be_damaged(key));
                // Limits and settings that cannot be read do not apply.
                keys.retain(|key| !key.starts_with("meta/settings/"));
                self.prefer_heads(round, &mut keys);
                let key = keys.get(place(&mut dice, keys.len() as u64));
                let id = format!("store!corrupt-object{round}");
                if let Some(key) = key
                    && self
                        .trouble
                        .begin(id, FaultKind::CorruptObject, EVERYBODY, Duration::ZERO)
                {
                    self.scheduler.note(EVERYBODY, || format!("damages {key}"));
                    self.bucket.damage(key);
                }
            }
            self.scheduler
                .sleep(Duration::from_millis(INTERVAL_MS / 2))
                .await;
        }
    }

    /// In crowded runs, half of the damage is done to a task for which others wait.
    fn prefer_heads(&self, round: u64, keys: &mut Vec<String>) {
        let mut dice = self.trouble.dice(&[0x570e, round, 3]);
        if !self.plan.is_crowded() || dice.chance(0.5) {
            return;
        }
        let mut heads = self.subject.line_heads(&self.bucket);
        heads.retain(|head| keys.contains(head));
        if !heads.is_empty() {
            *keys = heads;
        }
    }

    fn is_drawn(&self, kind: FaultKind, dice: &mut Random) -> bool {
        self.trouble
            .rate(kind)
            .is_some_and(|rate| dice.chance(rate))
    }
}

fn place(dice: &mut Random, count: u64) -> usize {
    usize::try_from(dice.below(count)).unwrap_or_default()
}
