//! What goes wrong, decided by the seed.
//!
//! Each decision is drawn from a stream that its own name decides: the kind of fault, the life of the process, the number of the request.
//! Every fault that strikes has such a name, and a run can be told to let only some of them strike. That is how a failure is shrunk.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use crate::plan::Plan;
use crate::random::Random;
use crate::sched::{HARNESS, ProcessId, Scheduler, lock};
use crate::store::{Request, Verb};

/// The longest that a write may be on its way.
pub const LATE_MAX: Duration = Duration::from_secs(90);

/// One way in which the store, the way to it, or a process fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// The request is never applied, and no answer comes.
    LostRequest,
    /// The request is applied, and no answer comes.
    LostAnswer,
    /// No answer comes, and the write is applied up to 90 s later.
    LateApply,
    /// The write is applied twice.
    DuplicateApply,
    /// 409 to a conditional write, which is not applied.
    Conflict,
    /// 500, although the request was applied.
    ErrorAfterApply,
    /// 503 to everybody for up to three minutes.
    Outage,
    /// A list as it was some seconds ago.
    StaleList,
    /// A body that ends early.
    TornRead,
    /// A process dies at any await, and starts again with the same name.
    Crash,
    /// A process is stopped for up to 90 s and does not notice.
    Pause,
    /// Wall clocks that are up to a minute wrong.
    ClockSkew,
    /// Wall clocks that jump by up to half a lease.
    ClockJump,
    /// One process does not reach the store for a while.
    Partition,
    /// A stored object is damaged.
    CorruptObject,
    /// Entity tags are hashes of the content.
    HashTags,
    /// A key takes a limited number of writes.
    VersionLimit,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 17] = [
        Self::LostRequest,
        Self::LostAnswer,
        Self::LateApply,
        Self::DuplicateApply,
        Self::Conflict,
        Self::ErrorAfterApply,
        Self::Outage,
        Self::StaleList,
        Self::TornRead,
        Self::Crash,
        Self::Pause,
        Self::ClockSkew,
        Self::ClockJump,
        Self::Partition,
        Self::CorruptObject,
        Self::HashTags,
        Self::VersionLimit,
    ];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::LostRequest => "lost-request",
            Self::LostAnswer => "lost-answer",
            Self::LateApply => "late-apply",
            Self::DuplicateApply => "duplicate-apply",
            Self::Conflict => "conflict",
            Self::ErrorAfterApply => "error-after-apply",
            Self::Outage => "outage",
            Self::StaleList => "stale-list",
            Self::TornRead => "torn-read",
            Self::Crash => "crash",
            Self::Pause => "pause",
            Self::ClockSkew => "clock-skew",
            Self::ClockJump => "clock-jump",
            Self::Partition => "partition",
            Self::CorruptObject => "corrupt-object",
            Self::HashTags => "hash-tags",
            Self::VersionLimit => "version-limit",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it strikes single requests.
    pub fn strikes_requests(self) -> bool {
        self <= Self::TornRead && self != Self::Outage
    }

    fn applies_to(self, request: &Request) -> bool {
        match self {
            Self::LostRequest | Self::LostAnswer | Self::ErrorAfterApply => true,
            Self::LateApply | Self::DuplicateApply => request.is_write(),
            Self::Conflict => request.is_conditional(),
            Self::StaleList => request.verb() == Verb::List,
            Self::TornRead => request.verb() == Verb::Get,
            _ => false,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strike {
    /// It never arrives.
    LostRequest {
        /// Whether the caller is not even told that the connection broke.
        hangs: bool,
    },
    /// It arrives, and its answer does not.
    LostAnswer {
        /// As above.
        hangs: bool,
    },
    /// It arrives much later.
    LateApply {
        /// How much.
        delay: Duration,
        /// As above.
        hangs: bool,
    },
    /// It arrives twice.
    DuplicateApply {
        /// How much later the second copy arrives.
        delay: Duration,
        /// Whether the second copy arrives at once, and its answer is the one that is told.
        answers_second: bool,
    },
    /// 409.
    Conflict,
    /// 500 after it was done.
    ErrorAfterApply,
    /// 503.
    Unavailable,
    /// A list of the past.
    StaleList {
        /// How far past.
        by: Duration,
    },
    /// A body that ends early.
    TornRead {
        /// How much of it comes.
        kept: f64,
    },
}

impl Strike {
    /// Whether the answer does not come from the store's objects.
    pub fn answers_by_itself(self) -> bool {
        matches!(self, Self::Conflict | Self::Unavailable)
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LostRequest { .. } => f.write_str("lost request"),
            Self::LostAnswer { .. } => f.write_str("lost answer"),
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

/// A fault that has struck.
#[derive(Debug, Clone, PartialEq)]
pub struct Struck {
    /// Names it.
    pub id: String,
    /// What it was.
    pub kind: FaultKind,
    /// Whom it struck; the harness, if everybody.
    pub process: ProcessId,
    /// When.
    pub at: Duration,
    /// Until when it lasted.
    pub until: Duration,
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
    partitioned: BTreeMap<ProcessId, Duration>,
    struck: Vec<Struck>,
    /// What the outages and partitions have done to requests, which are no faults of their own.
    requests_refused: u64,
}

impl Trouble {
    /// The faults that a plan asks for.
    pub fn new(scheduler: &Scheduler, plan: &Plan) -> Self {
        Self {
            scheduler: scheduler.clone(),
            plan: plan.clone(),
            state: Mutex::default(),
        }
    }

    /// The stream that these numbers name in this run.
    pub fn dice(&self, parts: &[u64]) -> Random {
        let mut named = vec![self.plan.seed];
        named.extend_from_slice(parts);
        Random::of(&named)
    }

    /// How often a fault strikes; nothing, if it does not.
    pub fn rate(&self, kind: FaultKind) -> Option<f64> {
        self.plan.faults.get(&kind).copied()
    }

    /// How long a request or an answer is on its way.
    pub fn latency(&self, dice: &mut Random) -> Duration {
        let (low_us, high_us) = self.plan.latency_us;
        Duration::from_micros(dice.between(low_us, high_us))
    }

    /// Ends all faults.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.over = true;
        state.outage_until = Duration::ZERO;
        state.partitioned.clear();
    }

    /// Whether the faults have ended.
    pub fn is_over(&self) -> bool {
        lock(&self.state).over
    }

    /// Whether a process reaches nobody now.
    pub fn is_cut_off(&self, process: ProcessId) -> bool {
        let now = self.scheduler.elapsed();
        let state = lock(&self.state);
        let until = state.partitioned.get(&process);
        until.is_some_and(|until| now < *until)
    }

    /// Everything that has gone wrong.
    pub fn struck(&self) -> Vec<Struck> {
        lock(&self.state).struck.clone()
    }

    /// How many requests outages and partitions have refused.
    pub fn requests_refused(&self) -> u64 {
        lock(&self.state).requests_refused
    }

    /// Notes a fault of a process or of the store, if it may strike.
    pub fn begin(&self, id: String, kind: FaultKind, process: ProcessId, lasts: Duration) -> bool {
        let at = self.scheduler.elapsed();
        let mut state = lock(&self.state);
        if state.over || !may_strike(self.plan.only.as_ref(), &id) {
            return false;
        }
        let until = at + lasts;
        match kind {
            FaultKind::Outage => state.outage_until = until,
            FaultKind::Partition => {
                state.partitioned.insert(process, until);
            }
            _ => {}
        }
        let line = format!("FAULT {id}: {kind} for {lasts:?}");
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

    /// Decides what happens to a request.
    pub(crate) fn strike(
        &self,
        process: ProcessId,
        life: &str,
        life_number: u64,
        number: u64,
        request: &Request,
    ) -> Option<Strike> {
        let now = self.scheduler.elapsed();
        let mut state = lock(&self.state);
        if state.over {
            return None;
        }
        if state
            .partitioned
            .get(&process)
            .is_some_and(|until| now < *until)
        {
            state.requests_refused += 1;
            return Some(Strike::LostRequest { hangs: true });
        }
        if now < state.outage_until {
            state.requests_refused += 1;
            return Some(Strike::Unavailable);
        }
        for (kind, rate) in &self.plan.faults {
            if !kind.strikes_requests() || !kind.applies_to(request) {
                continue;
            }
            let mut dice = self.dice(&[*kind as u64, life_number, number]);
            if !dice.chance(*rate) {
                continue;
            }
            let id = format!("{life}#{number}");
            if !may_strike(self.plan.only.as_ref(), &id) {
                continue;
            }
            state.struck.push(Struck {
                id,
                kind: *kind,
                process,
                at: now,
                until: now,
            });
            return Some(draw(*kind, &mut dice));
        }
        None
    }
}

fn may_strike(only: Option<&BTreeSet<String>>, id: &str) -> bool {
    only.is_none_or(|only| only.contains(id))
}

fn draw(kind: FaultKind, dice: &mut Random) -> Strike {
    let hangs = dice.chance(0.3);
    match kind {
        FaultKind::LostAnswer => Strike::LostAnswer { hangs },
        FaultKind::LateApply => {
            // Most are a little late, some very.
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

/// A fault that strikes everybody.
pub const EVERYBODY: ProcessId = HARNESS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_kinds() {
        for kind in FaultKind::ALL {
            assert_eq!(FaultKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(FaultKind::from_name("nothing"), None);
    }

    #[test]
    fn requests_are_struck_by_their_own_kinds_alone() {
        let requests: Vec<_> = FaultKind::ALL
            .into_iter()
            .filter(|kind| kind.strikes_requests())
            .collect();
        assert_eq!(requests.len(), 8);
        assert!(!requests.contains(&FaultKind::Outage));
    }
}
