//! The lives of workers and clients: a process that dies restarts under the same name.

use std::sync::Arc;
use std::time::Duration;

use super::{Stage, lock};
use crate::actor::{Caller, client, program, worker};
use crate::faults::FaultKind;
use crate::random::Random;
use crate::sched::ProcessId;

/// The largest error of a wall clock.
pub(super) const SKEW_MAX_MS: u64 = 60_000;

impl Stage {
    pub(super) async fn lives_of_a_worker(self: Arc<Self>, number: u64) {
        let slot = format!("w{number}");
        for life in 1_u64.. {
            let name = format!("{slot}.{life}");
            let Some((process, caller, running)) = self.begin_life(&slot, &name) else {
                return;
            };
            let maintenance = (running.maintain)();
            let (trouble, scheduler) = (Arc::clone(&self.trouble), self.scheduler.clone());
            self.scheduler.spawn(
                process,
                Box::pin(async move {
                    // Half of the workers are the library's, half use the engine directly.
                    if number % 2 == 1 {
                        program(caller, trouble).await;
                    } else {
                        worker(caller, trouble).await;
                    }
                    drop((maintenance, running));
                    scheduler.kill(process);
                }),
            );
            if !self.outlive(process, &name).await {
                return;
            }
            if self.plan.leaves(number) && self.trouble.is_over() {
                return;
            }
        }
    }

    pub(super) async fn lives_of_a_client(self: Arc<Self>, number: u64) {
        let slot = format!("c{number}");
        for life in 1_u64.. {
            let name = format!("{slot}.{life}");
            let Some((process, caller, running)) = self.begin_life(&slot, &name) else {
                return;
            };
            let (trouble, errands) = (Arc::clone(&self.trouble), Arc::clone(&self.errands));
            let scheduler = self.scheduler.clone();
            self.scheduler.spawn(
                process,
                Box::pin(async move {
                    client(caller, trouble, errands, scheduler).await;
                    running.engine.close().await;
                }),
            );
            if !self.outlive(process, &name).await {
                return;
            }
        }
    }

    fn begin_life(
        self: &Arc<Self>,
        slot: &str,
        name: &str,
    ) -> Option<(ProcessId, Arc<Caller>, crate::subject::Running)> {
        if lock(&self.state).over {
            return None;
        }
        let worker = slot.parse().ok()?;
        let stream = name
            .bytes()
            .fold(7, |sum: u64, byte| sum * 137 + u64::from(byte));
        let mut dice = self.trouble.dice(&[0xd1ce, stream]);
        let skew_ms = self.draw_skew(&mut dice);
        let (process, runtime, running) = self.start_process(name, slot, skew_ms);
        let mut caller = Caller::new(
            process,
            worker,
            &running.engine,
            runtime,
            &self.journal,
            Random::of(&[self.plan.seed, 0xca11, stream]),
        );
        if self.plan.has_redrives() {
            caller = caller.with_elsewhere();
        }
        let number = slot.strip_prefix('w').and_then(|text| text.parse().ok());
        if let Some(number) = number
            && self.plan.has_specialists()
        {
            caller = caller.as_specialist(number);
        }
        if !self.plan.webhooks().is_empty() {
            caller = caller.with_deliveries();
        }
        self.doom(process, name, &mut dice, 1);
        self.spawn(Arc::clone(self).storms_of_a_process(process, name.to_owned()));
        Some((process, Arc::new(caller), running))
    }

    /// Decides at which await a process dies.
    pub(super) fn doom(&self, process: ProcessId, name: &str, dice: &mut Random, times: u64) {
        let Some(rate) = self.trouble.rate(FaultKind::Crash) else {
            return;
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate of 5 % to 50 % gives some hundred polls"
        )]
        let polls = dice.between(1, (80.0 / rate) as u64 * times);
        let id = format!("{name}!crash");
        if self
            .trouble
            .begin(id, FaultKind::Crash, process, Duration::ZERO)
        {
            self.scheduler.doom(process, polls);
        }
    }

    /// Waits for the death of a process, and a little longer. Returns whether it restarts.
    pub(super) async fn outlive(&self, process: ProcessId, name: &str) -> bool {
        self.scheduler.died(process).await;
        let now = self.scheduler.elapsed();
        let stream = name
            .bytes()
            .fold(3, |sum: u64, byte| sum * 139 + u64::from(byte));
        {
            let mut state = lock(&self.state);
            if state.over {
                return false;
            }
            let mut lives = state.lives.iter_mut();
            if let Some(lived) = lives.find(|lived| lived.process == process) {
                lived.died = Some(now);
            }
        }
        let down = self.trouble.dice(&[0xd0e, stream]).millis(0, 8_000);
        self.scheduler.sleep(down).await;
        true
    }
}
