//! The lives of brokers: the shipping election decides who serves. A broker that dies restarts at the same address.
//!
//! A broker that is replaced while it lives is the interesting one: it is paused, partitioned or slow, and does not know it.

use std::sync::Arc;
use std::time::Duration;

use qo_broker::election::{Candidate, ElectionConfig, Elector, LeaderGate};
use qo_check::Promise;
use qo_store::StoreClient;
use qo_store::runtime::Runtime;

use super::{BROKER, BROKER_SLOT, Stage, lock};
use crate::broker::{BrokerSeat, SimPing};
use crate::faults::{FaultKind, Reach, strikes_requests};
use crate::random::Random;
use crate::sched::ProcessId;
use crate::subject::Host;

/// A broker is polled more often than other processes, so it is doomed after more polls.
const LIVES_LONGER: u64 = 6;
/// The longest pause between two challenges of a leader that answers them, so that the limits below can be short.
const CHALLENGE_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a leader may be unfit to lead while a standby is well: where single requests fail, and where they do not.
const UNFIT_MAX: Duration = Duration::from_secs(40);
const UNFIT_MAX_CALM: Duration = Duration::from_secs(15);
/// How long there may be no leader that serves after the faults: a broker restarts, and a hanging request of SlateDB times out.
pub(super) const VACANT_MAX: Duration = Duration::from_mins(1);
/// How often the leader is looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

impl Stage {
    pub(super) async fn lives_of_a_broker(self: Arc<Self>, number: u64) {
        let slot = format!("{BROKER_SLOT}{number}");
        for life in 1_u64.. {
            let name = format!("{slot}.{life}");
            let stream = name
                .bytes()
                .fold(11, |sum: u64, byte| sum * 151 + u64::from(byte));
            let mut dice = self.trouble.dice(&[0xb20, stream]);
            if lock(&self.state).over {
                return;
            }
            let skew_ms = self.draw_skew(&mut dice);
            let process = self.start_broker(&slot, &name, skew_ms);
            self.doom(process, &name, &mut dice, LIVES_LONGER);
            self.spawn(Arc::clone(&self).storms_of_a_process(process, name.clone()));
            let goes_on = self.outlive(process, &name).await;
            self.hub.leave(process);
            if !goes_on {
                return;
            }
        }
    }

    /// Starts a broker in a new process: a candidate that stands by and leads until the process dies.
    pub(super) fn start_broker(
        self: &Arc<Self>,
        address: &str,
        name: &str,
        skew_ms: i64,
    ) -> ProcessId {
        let (process, runtime, seat) = self.begin_process(name, BROKER, skew_ms, true);
        if let Err(error) = self.scheduler.give_room(process) {
            self.breach(
                Promise::Run,
                format!("there is no runtime for a broker: {error}"),
            );
        }
        let stream = name
            .bytes()
            .fold(17, |sum: u64, byte| sum * 157 + u64::from(byte));
        let ping = SimPing::new(&self.scheduler, &self.trouble, &self.hub, process, stream);
        let runtime: Arc<dyn Runtime> = runtime;
        let client = StoreClient::new(
            Arc::clone(&seat.objects),
            Arc::clone(&seat.clock),
            Arc::clone(&runtime),
            seat.client.clone(),
        );
        let mut config = ElectionConfig::default();
        config.challenge_pause_max = CHALLENGE_PAUSE_MAX;
        let elector = Elector::new(&client, Arc::clone(&runtime), config, Arc::new(ping), None);
        let gate = Arc::new(LeaderGate::new(client));
        self.hub.join(BrokerSeat {
            process,
            address: address.to_owned(),
            id: elector.id().to_owned(),
            gate: Arc::clone(&gate),
        });
        let open = self.opener(process, seat);
        let mut candidate = Candidate::new(elector, gate, runtime, open);
        let address = address.to_owned();
        self.scheduler.spawn(
            process,
            Box::pin(async move { candidate.run(&address).await }),
        );
        process
    }

    /// Opens the engine of a broker that leads.
    fn opener(self: &Arc<Self>, process: ProcessId, seat: Host) -> qo_broker::election::OpenEngine {
        let stage = Arc::clone(self);
        Box::new(move || {
            let opening = stage.subject.serve(&seat);
            let stage = Arc::clone(&stage);
            Box::pin(async move {
                let opened = opening.await;
                match &opened {
                    Ok(_) => {
                        stage.begin_round();
                        stage.scheduler.note(process, || "serves".to_owned());
                    }
                    Err(error) => stage
                        .scheduler
                        .note(process, || format!("cannot open the queue: {error}")),
                }
                // Whoever is served by another now may feel it.
                stage.journal.excuse(process, Duration::ZERO);
                opened
            })
        })
    }

    /// Checks throughout a run that no two brokers are certain to lead, and that a leader which is unfit to lead is replaced while a
    /// standby is well.
    pub(super) async fn watch_leader(self: Arc<Self>) {
        let requests_fail = self.plan.faults.keys().any(|kind| strikes_requests(*kind));
        let unfit_max = if requests_fail {
            UNFIT_MAX
        } else {
            UNFIT_MAX_CALM
        };
        let mut fit_at = self.scheduler.elapsed();
        let mut unfit_leader = String::new();
        loop {
            self.scheduler.sleep(WATCH_INTERVAL).await;
            let now = self.scheduler.elapsed();
            if lock(&self.state).over {
                return;
            }
            let record = self.hub.record();
            let leader = record
                .and_then(|record| record.holder)
                .map(|holder| holder.id);
            let leader = leader.unwrap_or_default();
            let brokers = self.hub.brokers();
            let is_fit = brokers
                .iter()
                .any(|broker| broker.id == leader && self.is_well(broker));
            let has_standby = brokers
                .iter()
                .any(|broker| broker.id != leader && self.is_well(broker));
            if is_fit || !has_standby || self.trouble.is_outage() || leader != unfit_leader {
                fit_at = now;
                unfit_leader = leader;
            }
            let leading = brokers
                .iter()
                .filter(|broker| self.scheduler.is_alive(broker.process))
                .filter_map(|broker| broker.gate.certain_epoch());
            let leading: Vec<u64> = leading.collect();
            if leading.len() > 1 {
                self.breach(
                    Promise::OneAttempt,
                    format!("the leaders of epochs {leading:?} are certain to lead at {now:?}"),
                );
                return;
            }
            if now.saturating_sub(fit_at) > unfit_max {
                self.breach(
                    Promise::Ends,
                    format!(
                        "a leader that was dead, paused or cut off from the store was not replaced within {unfit_max:?}, until {now:?}"
                    ),
                );
                return;
            }
        }
    }

    /// Whether a broker runs and reaches the store. Without the other brokers it can lead, and take over.
    fn is_well(&self, broker: &BrokerSeat) -> bool {
        let process = broker.process;
        self.scheduler.is_alive(process)
            && !self.scheduler.is_paused(process)
            && !self.trouble.is_cut_off(process, Reach::Store)
    }

    /// Waits until a leader serves. Returns whether one does within the limit.
    pub(super) async fn await_leader(&self) -> bool {
        let until = self.scheduler.elapsed() + VACANT_MAX;
        while self.scheduler.elapsed() < until {
            let leader = self.hub.leader();
            let serves = |leader: BrokerSeat| {
                self.scheduler.is_alive(leader.process) && leader.gate.serves()
            };
            if leader.is_some_and(serves) {
                return true;
            }
            self.scheduler.sleep(WATCH_INTERVAL).await;
        }
        false
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
