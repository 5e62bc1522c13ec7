//! The lives of brokers: one serves, and a standby takes over when the first is gone, or too early.
//!
//! The important case is a broker that is replaced too early. It is paused, partitioned or slow, does not know that it was replaced, and
//! keeps replying to its clients.

use std::sync::Arc;
use std::time::Duration;

use super::{BROKER, Stage, lock};
use crate::broker::Serving;
use crate::faults::FaultKind;
use crate::random::Random;
use crate::sched::{HARNESS, ProcessId};

/// How often a standby checks whether a broker serves.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often a broker checks that it still owns the queue.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(2);
/// A broker is polled more often than other processes, so it is doomed after more polls.
const LIVES_LONGER: u64 = 6;

impl Stage {
    pub(super) async fn lives_of_a_broker(self: Arc<Self>, number: u64) {
        for life in 1_u64.. {
            let name = format!("b{number}.{life}");
            let stream = name
                .bytes()
                .fold(11, |sum: u64, byte| sum * 151 + u64::from(byte));
            let mut dice = self.trouble.dice(&[0xb20, stream]);
            self.stand_by(number, &mut dice).await;
            if lock(&self.state).over {
                return;
            }
            let skew_ms = self.draw_skew(&mut dice);
            let process = self.start_broker(&name, skew_ms);
            self.doom(process, &name, &mut dice, LIVES_LONGER);
            self.spawn(Arc::clone(&self).storms_of_a_process(process, name.clone()));
            let goes_on = self.outlive(process, &name).await;
            self.hub.leave(process);
            if !goes_on {
                return;
            }
        }
    }

    /// Waits until no broker serves for a while, or until a limit.
    async fn stand_by(&self, number: u64, dice: &mut Random) {
        let patience = if self.plan.is_calm() {
            Duration::MAX
        } else {
            dice.millis(15_000, 200_000)
        };
        let vacant_for = dice.millis(0, 2_000) + Duration::from_secs(4 * (number - 1));
        let began = self.scheduler.elapsed();
        let mut vacant_since = began;
        loop {
            let now = self.scheduler.elapsed();
            if lock(&self.state).over {
                return;
            }
            let serving = self.hub.newest();
            // A broker that is cut off from the store appears dead there, but still serves its clients.
            if serving.is_some_and(|broker| !self.trouble.is_cut_off(broker.process)) {
                vacant_since = now;
            } else if now >= vacant_since + vacant_for {
                return;
            }
            if now.saturating_sub(began) >= patience && !self.trouble.is_over() {
                self.scheduler.note(HARNESS, || {
                    format!("b{number} takes over from a live broker")
                });
                return;
            }
            self.scheduler.sleep(LOOK_INTERVAL).await;
        }
    }

    /// Starts a broker in a new process. It ends when it cannot open the queue or loses it.
    pub(super) fn start_broker(self: &Arc<Self>, name: &str, skew_ms: i64) -> ProcessId {
        let (process, runtime, seat) = self.begin_process(name, BROKER, skew_ms, true);
        if let Err(error) = self.scheduler.give_room(process) {
            self.breach(
                qo_check::Promise::Run,
                format!("cannot create the runtime of a broker: {error}"),
            );
        }
        let opening = self.subject.serve(&seat);
        let stage = Arc::clone(self);
        self.scheduler.spawn(
            process,
            Box::pin(async move {
                match opening.await {
                    Ok(engine) => {
                        stage.scheduler.note(process, || "serves".to_owned());
                        // A takeover may disturb every worker.
                        stage.journal.excuse(process, Duration::ZERO);
                        let serving = Serving {
                            process,
                            engine: engine.clone(),
                        };
                        stage.hub.join(serving);
                        let over = loop {
                            seat.runtime.sleep(MAINTAIN_INTERVAL).await;
                            if let Err(error) = engine.maintain().await {
                                break error;
                            }
                        };
                        stage.hub.leave(process);
                        stage.scheduler.note(process, || format!("stops: {over}"));
                    }
                    Err(error) => {
                        let note = || format!("cannot open the queue: {error}");
                        stage.scheduler.note(process, note);
                    }
                }
                drop(runtime);
                stage.scheduler.kill(process);
            }),
        );
        process
    }

    pub(super) fn draw_skew(&self, dice: &mut Random) -> i64 {
        if !self.plan.has(FaultKind::ClockSkew) {
            return 0;
        }
        let skew_ms = dice.between(0, 2 * super::lives::SKEW_MAX_MS);
        i64::try_from(skew_ms).unwrap_or_default()
            - i64::try_from(super::lives::SKEW_MAX_MS).unwrap_or_default()
    }
}
