//! The cost of a command at different depths, and the memory of a task.
//!
//! Run with `cargo bench -p qo-core`. It prints the rates at one thousand and one million pending tasks. Their ratio
//! shows that the cost of a command is logarithmic in the depth. The memory is the growth of the resident set while
//! one million tasks are added, minus the payloads.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark may panic, read the clock and query its memory"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use qo_core::queue_state::{Claim, CommandOutcome, Request, StateCommand};
use qo_core::{Action, Json, LeaseId, OpId, Payload, QueueState, Submission, TaskId, Timestamp};

const MILLION: u64 = 1_000_000;
const PAYLOAD_BYTES: usize = 256;

struct Bench {
    state: QueueState,
    counter: u64,
}

impl Bench {
    fn with_depth(depth: u64) -> Self {
        let mut bench = Self {
            state: QueueState::new(),
            counter: 0,
        };
        for _ in 0..depth {
            bench.submit();
        }
        bench
    }

    /// 128 deterministic bits that are distributed like random ones.
    fn bits(&mut self) -> u128 {
        self.counter += 1;
        u128::from(self.counter).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + i64::try_from(self.counter / 50).unwrap())
    }

    fn apply(&mut self, request: Request) -> CommandOutcome {
        let op = OpId::from_random(self.bits());
        let now = self.now();
        self.state.apply(StateCommand { op, request }, now).0
    }

    fn submit(&mut self) {
        let text = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES - 2));
        let input = Payload::Inline(Json::parse(text).unwrap());
        let id = TaskId::from_random(self.bits());
        // Each name is parsed again, like commands from a network: nothing is shared by accident.
        let mut submission = Submission::new(id, "send_email".parse().unwrap(), input);
        submission.priority = u8::try_from(self.counter % 10).unwrap();
        black_box(self.apply(Request::Submit(Box::new(submission))));
    }

    /// Claims one task, completes it and drops it, like a broker.
    fn work(&mut self) {
        let lease = LeaseId::from_random(self.bits());
        let outcome = self.apply(Request::Claim(Claim {
            worker: "w-1".parse().unwrap(),
            queues: vec!["default".parse().unwrap()],
            types: vec!["send_email".parse().unwrap()],
            leases: vec![lease],
            lease_ms: 60_000,
        }));
        let CommandOutcome::Claimed(claimed) = outcome else {
            return;
        };
        for claimed in claimed {
            let action = Action::Complete {
                lease,
                output: None,
            };
            self.apply(Request::Task {
                id: claimed.id,
                action,
            });
            self.state.forget(claimed.id);
        }
    }
}

/// The resident set of this process in bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * 4_096
}

fn memory() -> Bench {
    let before = resident_bytes();
    let started = Instant::now();
    let bench = Bench::with_depth(MILLION);
    let elapsed = started.elapsed();
    let per_task = (resident_bytes() - before) / MILLION;
    let beyond = per_task.saturating_sub(PAYLOAD_BYTES as u64);
    println!(
        "one million pending tasks: {per_task} bytes each, {beyond} beyond a payload of {PAYLOAD_BYTES} bytes"
    );
    println!(
        "limit: 1024 bytes beyond the payload: {}",
        if beyond <= 1_024 { "met" } else { "EXCEEDED" }
    );
    println!(
        "added in {elapsed:.1?}, {:.0} submits/s",
        1e6 / elapsed.as_secs_f64()
    );
    assert!(beyond <= 1_024, "a task exceeds its memory limit");
    bench
}

fn main() {
    let mut deep = memory();
    let mut shallow = Bench::with_depth(1_000);
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(20)
        .configure_from_args();
    let mut group = criterion.benchmark_group("submit, claim, complete");
    for (name, bench) in [
        ("1,000 pending", &mut shallow),
        ("1,000,000 pending", &mut deep),
    ] {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| {
                bench.submit();
                bench.work();
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
