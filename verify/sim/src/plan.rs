//! The plan of a run: processes, tasks, and faults with their rates, all decided by the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use qo_broker::BrokerConfig;
use qo_core::{Json, Webhook, WebhookRules};

use crate::faults::{FaultKind, SIMULATED, strikes_requests};
use crate::random::Random;

/// One seed in this many has no faults and stricter limits.
const CALM_EVERY: u64 = 8;

/// One seed in this many has a fleet of workers, where the engine is made for one, and few tasks.
const FLEET_EVERY: u64 = 40;
/// The number of workers of a fleet.
const FLEET: u64 = 50;
/// The number of workers beside which no fleet is simulated.
const FEW: u64 = 4;

/// The limits of a broker that is easily overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerLimits {
    /// How long a claim holds without a renewal.
    pub lease_ms: u64,
    /// The most callers of each kind that one write serves.
    pub group_max: usize,
    /// The most submits without a response.
    pub submits_max: u64,
}

impl BrokerLimits {
    /// Applies the limits to the settings of an engine.
    pub fn apply(self, config: &mut BrokerConfig) {
        config.lease_ms = self.lease_ms;
        config.group_max = self.group_max;
        config.submits_max = self.submits_max;
    }
}

/// The plan of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The seed. It also decides everything else in the run.
    pub seed: u64,
    /// The faults with their rates: the share of requests, or for other faults the chance in ten seconds.
    pub faults: BTreeMap<FaultKind, f64>,
    /// The number of workers.
    pub workers: u64,
    /// Whether two workers that come first by name leave for good when the faults end, and leave their records behind.
    pub first_leave: bool,
    /// The number of clients.
    pub clients: u64,
    /// The number of submitted tasks.
    pub tasks: u64,
    /// The duration of the faults.
    pub trouble: Duration,
    /// The interval of the sweeper, in seconds.
    pub sweep_seconds: u64,
    /// The latency of requests and replies, in microseconds: lowest and highest.
    pub latency_us: (u64, u64),
    /// Whether clients treat a refusal of the first try as final, as they do by default, or read the object back.
    pub trust_first_refusal: bool,
    /// Whether the store keeps versions.
    pub keeps_versions: bool,
    /// How far the clocks of the store's wrong gateways are ahead, in milliseconds. There is one right gateway more, and each serves as many
    /// requests as any other.
    pub gateways_ahead_ms: Vec<i64>,
    /// If set, only these faults strike.
    pub only: Option<BTreeSet<String>>,
    /// How long finished tasks are kept, if that is shorter than the run.
    pub retention: Option<Duration>,
    /// The limits of brokers, if they are not the shipped ones.
    pub limits: Option<BrokerLimits>,
}

/// The seeds, by their remainder, in which limits apply to tasks.
const LIMITED: (u64, [u64; 3]) = (16, [2, 5, 11]);

/// The seeds, by their remainder, whose tasks have ordering keys.
const ORDERED: (u64, [u64; 3]) = (16, [6, 10, 13]);

/// The seeds, by their remainder, whose tasks have groups.
const FAIR: (u64, [u64; 2]) = (16, [8, 12]);
/// How many more tasks these have.
const FAIR_TASKS: u64 = 60;

/// The seeds with limits or ordering keys, by their remainder, that have a backlog: otherwise tasks seldom wait for others.
const CROWDED: (u64, [u64; 6]) = (32, [18, 21, 22, 26, 27, 29]);
/// How many more tasks these have.
const CROWDED_TASKS: u64 = 40;

/// The seeds, by their remainder, in which operators move tasks to another queue and back. They have limits or unique keys.
const REDRIVEN: (u64, [u64; 4]) = (32, [16, 19, 21, 31]);

/// The seeds, by their remainder, in which a webhook is notified of the ends of tasks. One in five has no faults; the others have settings, limits
/// or ordering keys.
const NOTIFIED: (u64, [u64; 5]) = (32, [17, 23, 26, 27, 30]);

/// The seeds, by their remainder, whose workers serve one type each. They have limits and a backlog.
const SPECIALISED: (u64, [u64; 2]) = (32, [21, 27]);

/// The seeds, by their remainder, in which the queue has settings.
const SETTLED: (u64, [u64; 3]) = (16, [1, 4, 14]);

/// The seeds, by their remainder, in which keys are held for part of a task's life, and submits change the task that holds their key.
const UNIQUE: (u64, [u64; 4]) = (16, [0, 3, 9, 15]);

impl Plan {
    /// Whether tasks have groups that take turns. The seed alone decides, as for ordering keys.
    pub fn has_groups(&self) -> bool {
        let (modulus, remainders) = FAIR;
        remainders.contains(&(self.seed % modulus))
    }

    /// Whether tasks with limits or ordering keys come faster than they can run, so that many wait for others.
    pub fn is_crowded(&self) -> bool {
        let (modulus, remainders) = CROWDED;
        remainders.contains(&(self.seed % modulus))
    }

    /// Whether operators move tasks to another queue and back.
    pub fn has_redrives(&self) -> bool {
        let (modulus, remainders) = REDRIVEN;
        remainders.contains(&(self.seed % modulus))
    }

    /// The webhooks that exist from the start, by their names and documents. The seed alone decides, as for ordering keys.
    pub fn webhooks(&self) -> Vec<(&'static str, &'static str)> {
        let (modulus, remainders) = NOTIFIED;
        if !remainders.contains(&(self.seed % modulus)) {
            return Vec::new();
        }
        vec![
            (
                "ends",
                r#"{"url":"https://example.org/","events":["completed","failed","cancelled"]}"#,
            ),
            (
                "images",
                r#"{"url":"https://example.org/","events":["failed"],"task_types":["image"]}"#,
            ),
        ]
    }

    /// The webhooks, as the rules read them.
    pub fn webhook_rules(&self) -> WebhookRules {
        let read = self.webhooks().into_iter().filter_map(|(name, body)| {
            let webhook = Webhook::parse(&Json::parse(body).ok()?).ok()?;
            Some((name.parse().ok()?, webhook))
        });
        read.collect()
    }

    /// Whether each worker serves only one of the types. Then a task whose claim is under way is not what another worker claims next: a worker
    /// that is suspended in the middle of a claim finds its task unchanged, and others have used its slots.
    pub fn has_specialists(&self) -> bool {
        let (modulus, remainders) = SPECIALISED;
        remainders.contains(&(self.seed % modulus))
    }

    /// The settings of the queue, which apply from the start. The seed alone decides, as for ordering keys.
    pub fn queue_settings(&self) -> Option<&'static str> {
        let (modulus, remainders) = SETTLED;
        (remainders.contains(&(self.seed % modulus)))
            .then_some(r#"{"timeout_seconds":600,"max_wait_ms":45000,"max_waiting":4}"#)
    }

    /// Whether submits change the tasks that hold their keys. The seed alone decides, as for ordering keys.
    pub fn is_unique(&self) -> bool {
        let (modulus, remainders) = UNIQUE;
        remainders.contains(&(self.seed % modulus))
    }

    /// The limits that apply from the start, by their names and documents. The seed alone decides, as for ordering keys.
    pub fn task_limits(&self) -> Vec<(&'static str, &'static str)> {
        let (modulus, remainders) = LIMITED;
        // A store that takes no more versions of a limit's record would stop its tasks for good.
        if !remainders.contains(&(self.seed % modulus)) || self.has(FaultKind::VersionLimit) {
            return Vec::new();
        }
        // The window is longer than what the clocks may differ, so that something is left to check.
        let account = if self.clocks_agree() {
            r#"{"limit_key":"account-0","concurrent":1,"starts":{"max":4,"window_ms":20000}}"#
        } else {
            r#"{"limit_key":"account-0","concurrent":1,"starts":{"max":8,"window_ms":120000}}"#
        };
        vec![
            ("all", r#"{"queue":"default","concurrent":3}"#),
            ("account", account),
        ]
    }

    /// Whether some tasks have an ordering key. The seed alone decides, so that the runs of all other seeds are as they would be without.
    pub fn has_order(&self) -> bool {
        let (modulus, remainders) = ORDERED;
        remainders.contains(&(self.seed % modulus))
    }

    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Random::of(&[seed, 0x91a4]);
        let mut faults = BTreeMap::new();
        let calm = seed % CALM_EVERY == CALM_EVERY - 1;
        // Some seeds have few faults, so that each also occurs alone. Some have many.
        let share = [0.15, 0.35, 0.6][usize::try_from(dice.below(3)).unwrap_or_default()];
        for kind in SIMULATED {
            let included = dice.chance(share);
            // Every order of magnitude is equally likely.
            let rate = if strikes_requests(kind) {
                0.1 * 0.03_f64.powf(dice.unit())
            } else {
                0.5 * 0.1_f64.powf(dice.unit())
            };
            if included && !calm {
                faults.insert(kind, rate);
            }
        }
        let slowest_us =
            [3_000, 30_000, 200_000][usize::try_from(dice.below(3)).unwrap_or_default()];
        // Streams of their own, so that they change nothing else in the plan.
        let mut store = Random::of(&[seed, 0x7e51]);
        let keeps_versions = store.chance(0.3);
        // A process whose own clock is ahead as well cannot tell that its first responses are wrong: the promises say so.
        let clocks_are_right = !faults.contains_key(&FaultKind::ClockSkew)
            && !faults.contains_key(&FaultKind::ClockJump);
        let mut gateways_ahead_ms = Vec::new();
        if !calm && store.chance(0.5) && clocks_are_right {
            gateways_ahead_ms.push(gateway_ahead_ms(&mut store));
            if store.chance(0.4) {
                gateways_ahead_ms.push(gateway_ahead_ms(&mut store));
            }
        }
        let is_fleet = seed % FLEET_EVERY == FLEET_EVERY / 2 + 1;
        let mut plan = Self {
            first_leave: is_fleet && !calm,
            keeps_versions,
            gateways_ahead_ms,
            seed,
            faults,
            workers: dice.between(2, 4),
            clients: dice.between(1, 2),
            tasks: dice.between(4, 40),
            trouble: Duration::from_secs(dice.between(40, 240)),
            sweep_seconds: if calm {
                300
            } else {
                [20, 60, 300][usize::try_from(dice.below(3)).unwrap_or_default()]
            },
            latency_us: (500, slowest_us),
            trust_first_refusal: dice.chance(0.5),
            only: None,
            retention: None,
            limits: None,
        };
        if plan.has_groups() {
            plan.tasks += FAIR_TASKS;
        } else if plan.is_crowded() {
            plan.tasks += CROWDED_TASKS;
        }
        if !is_fleet {
            return plan;
        }
        // Few tasks and a short time: a fleet is mostly idle.
        Self {
            workers: FLEET,
            tasks: plan.tasks.min(16),
            trouble: plan.trouble.min(Duration::from_secs(90)),
            ..plan
        }
    }

    /// The plan with a few workers, for an engine that is not made for a fleet.
    #[must_use]
    pub fn without_fleet(&self) -> Self {
        Self {
            workers: self.workers.min(FEW),
            first_leave: false,
            ..self.clone()
        }
    }

    /// Whether a worker leaves for good when the faults end. Names are compared as text.
    pub fn leaves(&self, worker: u64) -> bool {
        self.first_leave && matches!(worker, 1 | 10)
    }

    /// The plan without some kinds of faults.
    #[must_use]
    pub fn without(&self, leaves_out: impl Fn(FaultKind) -> bool) -> Self {
        let mut plan = self.clone();
        plan.faults.retain(|kind, _| !leaves_out(*kind));
        plan
    }

    /// Whether it has no faults.
    pub fn is_calm(&self) -> bool {
        (self.faults.is_empty() && self.gateways_ahead_ms.is_empty())
            || self.only.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Whether all clocks are right, those of the processes and of the gateways. A process that is suspended keeps its clock.
    pub fn clocks_agree(&self) -> bool {
        !self.has(FaultKind::ClockSkew)
            && !self.has(FaultKind::ClockJump)
            && self.gateways_ahead_ms.is_empty()
    }

    /// Whether it contains a fault.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.faults.contains_key(&kind)
    }
}

/// How far a wrong gateway is ahead, or behind.
fn gateway_ahead_ms(dice: &mut Random) -> i64 {
    let ahead_ms = i64::try_from(dice.between(5_000, 60_000)).unwrap_or_default();
    if dice.chance(0.7) {
        ahead_ms
    } else {
        -ahead_ms
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} workers, {} clients, {} tasks, {} s of trouble, latency up to {} ms",
            self.seed,
            self.workers,
            self.clients,
            self.tasks,
            self.trouble.as_secs(),
            self.latency_us.1 / 1_000
        )?;
        if self.first_leave {
            f.write_str(", the first workers leave")?;
        }
        if !self.trust_first_refusal {
            f.write_str(", first refusals are read back")?;
        }
        if self.keeps_versions {
            f.write_str(", versions are kept")?;
        }
        for ahead_ms in &self.gateways_ahead_ms {
            write!(f, ", a gateway is {ahead_ms} ms ahead")?;
        }
        for (kind, rate) in &self.faults {
            write!(f, ", {kind} {:.1} %", rate * 100.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_decide_and_cover_everything() {
        let plans: Vec<_> = (0..200).map(Plan::of).collect();
        assert_eq!(plans[3], Plan::of(3));
        for kind in SIMULATED {
            let with = plans.iter().filter(|plan| plan.has(kind)).count();
            assert!((20..150).contains(&with), "{kind}: {with}");
        }
        assert!(plans.iter().filter(|plan| plan.is_calm()).count() >= 25);
        let versioned = plans.iter().filter(|plan| plan.keeps_versions).count();
        assert!((40..80).contains(&versioned), "{versioned}");
        let off = plans.iter().map(|plan| plan.gateways_ahead_ms.len());
        assert!((20..70).contains(&off.clone().filter(|count| *count > 0).count()));
        assert!(off.filter(|count| *count > 1).count() >= 8);
        let trusting = plans.iter().filter(|plan| plan.trust_first_refusal).count();
        assert!((80..120).contains(&trusting), "{trusting}");
    }
}
