//! What clients want to have done, and what they were told.

use qo_core::TaskId;
use qo_sim::random::Random;
use serde_json::json;

/// How a task goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// Well, once its first so many attempts have failed.
    FailsFirst(u32),
    /// It never goes well.
    Doomed,
}

/// A task to be.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    /// Its id, if the client names it.
    pub(crate) id: Option<TaskId>,
    /// Its idempotency key, otherwise.
    pub(crate) key: Option<String>,
    pub(crate) course: Course,
    /// What its handler reads, as JSON.
    pub(crate) input: String,
    retries: u32,
    delay_ms: u64,
}

impl Wish {
    /// What a client thinks of next.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let number = (u128::from(random.bits()) << 64) | u128::from(random.bits());
        let has_id = random.chance(0.7);
        let course = match random.below(20) {
            0 => Course::Doomed,
            1..=3 => Course::FailsFirst(1),
            4 => Course::FailsFirst(2),
            _ => Course::FailsFirst(0),
        };
        // Most take no time; some outlive their first lease, which is then renewed.
        let sleep_ms = match random.below(30) {
            0 => random.between(6_000, 9_000),
            1..=8 => random.between(300, 2_000),
            _ => random.between(0, 150),
        };
        let sleep = format!("{}.{:03}", sleep_ms / 1_000, sleep_ms % 1_000);
        let fails = match course {
            Course::Doomed => "never".to_owned(),
            Course::FailsFirst(times) => times.to_string(),
        };
        Self {
            id: has_id.then(|| TaskId::from_random(number)),
            key: (!has_id).then(|| format!("key-{:016x}", random.bits())),
            course,
            input: format!("\"{sleep} {fails}\""),
            // A lease that runs out counts; few retries make some tasks fail by the trouble alone.
            retries: if random.chance(0.1) { 1 } else { 25 },
            delay_ms: if random.chance(0.2) {
                random.between(100, 3_000)
            } else {
                0
            },
        }
    }

    /// A line of `qo submit --many --full`.
    pub(crate) fn line(&self) -> String {
        let input: serde_json::Value = serde_json::from_str(&self.input).unwrap_or_default();
        let mut line = json!({
            "type": "work",
            "input": input,
            "retries": self.retries,
            "retry_policy": {"initial_interval_ms": 200, "max_interval_ms": 1_000, "multiplier": 2.0, "jitter_percent": 0.2},
        });
        if let Some(id) = self.id {
            line["id"] = json!(id);
        }
        if let Some(key) = &self.key {
            line["idempotency_key"] = json!(key);
        }
        if self.delay_ms > 0 {
            line["delay"] = json!(format!("{}ms", self.delay_ms));
        }
        line.to_string()
    }
}

/// What clients wanted and were told.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) wishes: Vec<Wish>,
    /// Which wish was acknowledged as which task, as often as it was.
    pub(crate) told: Vec<(usize, TaskId)>,
    /// How many client processes were run, and how many of them were killed.
    pub(crate) clients: u64,
    pub(crate) clients_killed: u64,
    /// Wishes that were still refused when nothing failed any more.
    pub(crate) unheard: Vec<(usize, String)>,
}
