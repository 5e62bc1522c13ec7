//! The tasks that clients submit, and the acknowledgements that they receive.

use qo_core::TaskId;
use qo_sim::random::Random;
use serde_json::json;

/// How the attempts of a task end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// The first attempts fail, then one succeeds.
    FailsFirst(u32),
    /// No attempt succeeds.
    Doomed,
}

/// A task to submit.
#[derive(Debug, Clone)]
pub(crate) struct TaskSpec {
    /// Its id, if the client names it.
    pub(crate) id: Option<TaskId>,
    /// Its idempotency key, otherwise.
    pub(crate) key: Option<String>,
    pub(crate) course: Course,
    /// The input, as JSON.
    pub(crate) input: String,
    retries: u32,
    delay_ms: u64,
}

impl TaskSpec {
    /// Draws a task.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let number = (u128::from(random.bits()) << 64) | u128::from(random.bits());
        let has_id = random.chance(0.7);
        let course = match random.below(20) {
            0 => Course::Doomed,
            1..=3 => Course::FailsFirst(1),
            4 => Course::FailsFirst(2),
            _ => Course::FailsFirst(0),
        };
        // Most attempts are short. Some outlive their first lease and renew it.
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
            // An expired lease counts as a retry, so tasks with few retries may fail by faults alone.
            retries: if random.chance(0.1) { 1 } else { 25 },
            delay_ms: if random.chance(0.2) {
                random.between(100, 3_000)
            } else {
                0
            },
        }
    }

    /// The line for `qo submit --many --full`.
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

/// What clients submitted, and the replies.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) specs: Vec<TaskSpec>,
    /// The index of a task and the id in the reply, one per acknowledgement.
    pub(crate) acknowledged: Vec<(usize, TaskId)>,
    /// The number of client processes, and of those that were killed.
    pub(crate) clients: u64,
    pub(crate) clients_killed: u64,
    /// Tasks that were not acknowledged after the faults had stopped.
    pub(crate) unacknowledged: Vec<(usize, String)>,
}
