//! The faults of a run, decided by the seed.
//!
//! Each decision has a random stream of its own, named by the kind of fault, the life of the process and the number of the request.
//! Every injected fault has such a name, and a run can be limited to some of them. That is how a failure is shrunk.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

pub use qo_store::wrap::FaultKind;

use crate::plan::Plan;
use crate::random::Random;
use crate::sched::{HARNESS, ProcessId, Scheduler, lock};
use crate::store::Request;

/// The longest delay of a late write.
pub const LATE_MAX: Duration = Duration::from_secs(90);
/// How often a process is cut off from the store right after a request that arrived twice and gets the second response. The refusal of the
/// second copy can then be read back only much later, when others have built upon the first.
const CUT_AFTER_TWICE: f64 = 0.25;

/// How often a process dies at a write of a record that several tasks share, in runs in which processes die. Such a write is the middle of an
/// operation: the task has changed, and what follows from it is not stored yet. Deaths at random awaits are seldom there.
const DEATH_AT_SHARED: f64 = 0.04;

/// How often a process is suspended while it waits for the response to a lease entry, in crowded runs in which processes are suspended. It is
/// the last request before the swap of a claim: the slots of its limits are taken by then, and on waking up it sends the swap without another look.
const PAUSE_AT_LEASE: f64 = 0.1;

/// A request that a process sends to the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentRequest<'a> {
    pub(crate) process: ProcessId,
    /// The name of this life of the process.
    pub(crate) life: &'a str,
    pub(crate) life_number: u64,
    /// Its number among the requests of this life.
    pub(crate) number: u64,
    pub(crate) request: &'a Request,
}

/// The kinds that the simulator injects. Their order decides what a seed draws.
pub const SIMULATED: [FaultKind; 17] = [
    FaultKind::LostRequest,
    FaultKind::LostResponse,
    FaultKind::LateApply,
    FaultKind::DuplicateApply,
    FaultKind::Conflict,
    FaultKind::ErrorAfterApply,
    FaultKind::Outage,
    FaultKind::StaleList,
    FaultKind::TornRead,
    FaultKind::Crash,
    FaultKind::Pause,
    FaultKind::ClockSkew,
    FaultKind::ClockJump,
    FaultKind::Partition,
    FaultKind::CorruptObject,
    FaultKind::HashTags,
    FaultKind::VersionLimit,
];

/// Whether a kind strikes single requests.
pub fn strikes_requests(kind: FaultKind) -> bool {
    kind <= FaultKind::TornRead && kind != FaultKind::Outage
}

/// The fault of one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strike {
    /// It never arrives.
    LostRequest {
        /// Whether the connection hangs instead of breaking.
        hangs: bool,
    },
    /// It arrives, and its reply does not.
    LostResponse {
        /// As above.
        hangs: bool,
    },
    /// It arrives much later.
    LateApply {
        /// The delay.
        delay: Duration,
        /// As above.
        hangs: bool,
    },
    /// It arrives twice.
    DuplicateApply {
        /// The delay of the second copy.
        delay: Duration,
        /// Whether the second copy arrives at once, and its reply is returned.
        answers_second: bool,
    },
    /// 409.
    Conflict,
    /// 500 after it was applied.
    ErrorAfterApply,
    /// 503.
    Unavailable,
    /// An earlier list.
    StaleList {
        /// How much earlier.
        by: Duration,
    },
    /// A body that ends early.
    TornRead {
        /// The share of the body that arrives.
        kept: f64,
    },
}

impl Strike {
    /// Whether the request arrives twice at once and gets the response to the second copy.
    fn answers_second(self) -> bool {
        matches!(
            self,
            Self::DuplicateApply {
                answers_second: true,
                ..
            }
        )
    }

    /// Whether the reply does not depend on the store's objects.
    pub fn answers_by_itself(self) -> bool {
        matches!(self, Self::Conflict | Self::Unavailable)
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LostRequest { .. } => f.write_str("lost request"),
            Self::LostResponse { .. } => f.write_str("lost answer"),
            Self::LateApply { delay, .. } => write!(f, "late by {delay:?}"),
            Self::DuplicateApply {
                answers_second: true,
                ..
            } => f.write_str("twice at once"),
            Self::DuplicateApply { delay, .. } => write!(f, "twice, {delay:?} apart"),
            Self::Conflict => f.write_str("409"),
            Self::ErrorAfterApply => f.write_str("500 after applying"),
            Self::Unavailable => f.write_str("503"),
            Self::StaleList { by } => write!(f, "stale by {by:?}"),
            Self::TornRead { .. } => f.write_str("torn read"),
        }
    }
}

/// An injected fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Struck {
    /// Its name.
    pub id: String,
    /// Its plan.
    pub kind: FaultKind,
    /// The process that it struck; the harness if it struck all.
    pub process: ProcessId,
    /// When.
    pub at: Duration,
    /// When it ended.
    pub until: Duration,
}

/// The other side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The store.
    Store,
    /// Workers and clients, or for them the brokers.
    Callers,
    /// The other brokers.
    Brokers,
}

/// What a partition cuts a process off from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Everything.
    All,
    /// The store alone.
    Store,
    /// All other processes.
    Processes,
    /// The other brokers.
    Brokers,
}

impl Cut {
    /// The cuts that a broker can suffer.
    pub const OF_BROKERS: [Self; 4] = [Self::All, Self::Store, Self::Processes, Self::Brokers];

    fn covers(self, reach: Reach) -> bool {
        match self {
            Self::All => true,
            Self::Store => reach == Reach::Store,
            Self::Processes => reach != Reach::Store,
            Self::Brokers => reach == Reach::Brokers,
        }
    }
}

/// The faults of a run.
#[derive(Debug)]
pub struct Trouble {
    scheduler: Scheduler,
    plan: Plan,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    over: bool,
    outage_until: Duration,
    partitioned: BTreeMap<ProcessId, (Cut, Duration)>,
    /// Whether the clock of one gateway is off.
    gateway_is_off: bool,
    struck: Vec<Struck>,
    /// The number of requests that outages and partitions refused.
    requests_refused: u64,
}

impl Trouble {
    /// The faults of a plan.
    pub fn new(scheduler: &Scheduler, plan: &Plan) -> Self {
        Self {
            scheduler: scheduler.clone(),
            plan: plan.clone(),
            state: Mutex::default(),
        }
    }

    /// The random stream of this run that these numbers name.
    pub fn dice(&self, parts: &[u64]) -> Random {
        let mut named = vec![self.plan.seed];
        named.extend_from_slice(parts);
        Random::of(&named)
    }

    /// The rate of a fault, if the plan contains it.
    pub fn rate(&self, kind: FaultKind) -> Option<f64> {
        self.plan.faults.get(&kind).copied()
    }

    /// The latency of a request or of a reply.
    pub fn latency(&self, dice: &mut Random) -> Duration {
        let (low_us, high_us) = self.plan.latency_us;
        Duration::from_micros(dice.between(low_us, high_us))
    }

    /// Begins the fault of the gateways whose clocks are off, if the plan has some.
    pub fn begin_gateway(&self) {
        let id = "gateway!clock".to_owned();
        if !self.plan.gateways_ahead_ms.is_empty()
            && self.begin(id, FaultKind::ClockSkew, EVERYBODY, self.plan.trouble)
        {
            lock(&self.state).gateway_is_off = true;
        }
    }

    /// How far the clock of the gateway is ahead that answers a request, in milliseconds.
    pub(crate) fn gateway_ahead_ms(&self, life_number: u64, number: u64) -> i64 {
        let wrong = &self.plan.gateways_ahead_ms;
        if !lock(&self.state).gateway_is_off {
            return 0;
        }
        let gateways = 2 * wrong.len() as u64 + 1;
        let gateway = self.dice(&[0x6a7e, life_number, number]).below(gateways);
        let gateway = usize::try_from(gateway).unwrap_or(usize::MAX);
        wrong.get(gateway).copied().unwrap_or_default()
    }

    /// Ends all faults.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.over = true;
        state.gateway_is_off = false;
        state.outage_until = Duration::ZERO;
        state.partitioned.clear();
    }

    /// Whether the faults have ended.
    pub fn is_over(&self) -> bool {
        lock(&self.state).over
    }

    /// Whether a process is cut off from the other side now.
    pub fn is_cut_off(&self, process: ProcessId, reach: Reach) -> bool {
        lock(&self.state).is_cut_off(process, reach, self.scheduler.elapsed())
    }

    /// Whether the store is unavailable to everybody now.
    pub fn is_outage(&self) -> bool {
        self.scheduler.elapsed() < lock(&self.state).outage_until
    }

    /// All injected faults.
    pub fn struck(&self) -> Vec<Struck> {
        lock(&self.state).struck.clone()
    }

    /// The number of requests that outages and partitions refused.
    pub fn requests_refused(&self) -> u64 {
        lock(&self.state).requests_refused
    }

    /// Begins a fault of a process or of the store, unless the plan excludes it. Returns whether it began.
    pub fn begin(&self, id: String, kind: FaultKind, process: ProcessId, lasts: Duration) -> bool {
        self.begin_cut(id, kind, process, Cut::All, lasts)
    }

    /// Cuts a process off from others, unless the plan excludes it.
    pub fn partition(&self, id: String, process: ProcessId, cut: Cut, lasts: Duration) {
        self.begin_cut(id, FaultKind::Partition, process, cut, lasts);
    }

    fn begin_cut(
        &self,
        id: String,
        kind: FaultKind,
        process: ProcessId,
        cut: Cut,
        lasts: Duration,
    ) -> bool {
        let at = self.scheduler.elapsed();
        let mut state = lock(&self.state);
        if state.over || !may_strike(self.plan.only.as_ref(), &id) {
            return false;
        }
        let until = at + lasts;
        match kind {
            FaultKind::Outage => state.outage_until = until,
            FaultKind::Partition => {
                state.partitioned.insert(process, (cut, until));
            }
            _ => {}
        }
        let what = match (kind, cut) {
            (FaultKind::Partition, Cut::Store | Cut::Processes | Cut::Brokers) => {
                format!("{kind} from {cut:?}")
            }
            _ => kind.to_string(),
        };
        let line = format!("FAULT {id}: {what} for {lasts:?}");
        state.struck.push(Struck {
            id,
            kind,
            process,
            at,
            until,
        });
        drop(state);
        self.scheduler.note(process, || line);
        true
    }

    /// Whether a process dies at a request, and then whether the request is still sent.
    pub(crate) fn death_at(&self, sent: SentRequest<'_>) -> Option<bool> {
        self.rate(FaultKind::Crash)
            .filter(|_| sent.request.writes_shared_record())?;
        let mut dice = self.dice(&[0xdea7, sent.life_number, sent.number]);
        let id = format!("{}#{}!crash", sent.life, sent.number);
        let dies = dice.chance(DEATH_AT_SHARED)
            && self.begin(id, FaultKind::Crash, sent.process, Duration::ZERO);
        dies.then(|| dice.chance(0.5))
    }

    /// How long a process is suspended right after a request is sent, if it is.
    pub(crate) fn pause_at(&self, sent: SentRequest<'_>) -> Option<Duration> {
        self.rate(FaultKind::Pause)
            .filter(|_| self.plan.is_crowded() && sent.request.writes_lease_entry())?;
        let mut dice = self.dice(&[0x9a05, sent.life_number, sent.number]);
        if !dice.chance(PAUSE_AT_LEASE) {
            return None;
        }
        let lasts = dice.millis(10_000, 90_000);
        let id = format!("{}#{}!pause", sent.life, sent.number);
        self.begin(id, FaultKind::Pause, sent.process, lasts)
            .then_some(lasts)
    }

    /// Decides the fault of a request.
    pub(crate) fn strike(&self, sent: SentRequest<'_>) -> Option<Strike> {
        let (process, life_number, number) = (sent.process, sent.life_number, sent.number);
        let now = self.scheduler.elapsed();
        let mut state = lock(&self.state);
        if state.over {
            return None;
        }
        if state.is_cut_off(process, Reach::Store, now) {
            state.requests_refused += 1;
            return Some(Strike::LostRequest { hangs: true });
        }
        if now < state.outage_until {
            state.requests_refused += 1;
            return Some(Strike::Unavailable);
        }
        for (kind, rate) in &self.plan.faults {
            if !strikes_requests(*kind) || !kind.applies_to(sent.request.operation()) {
                continue;
            }
            let mut dice = self.dice(&[*kind as u64, life_number, number]);
            if !dice.chance(*rate) {
                continue;
            }
            let id = format!("{}#{number}", sent.life);
            if !may_strike(self.plan.only.as_ref(), &id) {
                continue;
            }
            state.struck.push(Struck {
                id: id.clone(),
                kind: *kind,
                process,
                at: now,
                until: now,
            });
            drop(state);
            let strike = draw(*kind, &mut dice);
            let mut dice = self.dice(&[0x2cc7, life_number, number]);
            if strike.answers_second() && dice.chance(CUT_AFTER_TWICE) {
                let lasts = dice.millis(5_000, 60_000);
                self.partition(format!("{id}!cut"), process, Cut::Store, lasts);
            }
            return Some(strike);
        }
        None
    }
}

impl State {
    fn is_cut_off(&self, process: ProcessId, reach: Reach, now: Duration) -> bool {
        let partition = self.partitioned.get(&process);
        partition.is_some_and(|(cut, until)| cut.covers(reach) && now < *until)
    }
}

fn may_strike(only: Option<&BTreeSet<String>>, id: &str) -> bool {
    only.is_none_or(|only| only.contains(id))
}

fn draw(kind: FaultKind, dice: &mut Random) -> Strike {
    let hangs = dice.chance(0.3);
    match kind {
        FaultKind::LostResponse => Strike::LostResponse { hangs },
        FaultKind::LateApply => {
            // Most are a little late, some very late.
            let most_ms = [500, 5_000, 90_000][usize::try_from(dice.below(3)).unwrap_or_default()];
            Strike::LateApply {
                delay: dice.millis(0, most_ms).min(LATE_MAX),
                hangs,
            }
        }
        FaultKind::DuplicateApply => {
            let most_ms = [200, 5_000, 60_000][usize::try_from(dice.below(3)).unwrap_or_default()];
            Strike::DuplicateApply {
                delay: dice.millis(0, most_ms),
                answers_second: dice.chance(0.5),
            }
        }
        FaultKind::Conflict => Strike::Conflict,
        FaultKind::ErrorAfterApply => Strike::ErrorAfterApply,
        FaultKind::StaleList => Strike::StaleList {
            by: dice.millis(100, 8_000),
        },
        FaultKind::TornRead => Strike::TornRead { kept: dice.unit() },
        _ => Strike::LostRequest { hangs },
    }
}

/// The process of a fault that strikes all processes.
pub const EVERYBODY: ProcessId = HARNESS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_keep_the_numbers_that_seeds_draw_by() {
        for (number, kind) in (0_u64..).zip(SIMULATED) {
            assert_eq!(kind as u64, number, "{kind}");
        }
    }

    #[test]
    fn eight_kinds_strike_requests() {
        let kinds = SIMULATED.into_iter();
        assert_eq!(kinds.filter(|kind| strikes_requests(*kind)).count(), 8);
        assert!(!strikes_requests(FaultKind::Outage));
    }
}
