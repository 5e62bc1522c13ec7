//! What a command costs at depth, and what a task costs in memory.
//!
//! `cargo bench -p qo-core`. The rates at one thousand and at one million pending tasks stand side by side: their ratio is what
//! shows that a command costs the logarithm of the depth. The memory is the growth of the resident set while one million tasks
//! are added, payloads subtracted.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark stops loudly, reads the clock and asks the kernel for its memory"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use qo_core::queue_state::{Claim, Outcome, Request, StateCommand};
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

    /// 128 bits that are spread like random ones and the same in every run.
    fn bits(&mut self) -> u128 {
        self.counter += 1;
        u128::from(self.counter).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + i64::try_from(self.counter / 50).unwrap())
    }

    fn apply(&mut self, request: Request) -> Outcome {
        let op = OpId::from_random(self.bits());
        let now = self.now();
        self.state.apply(StateCommand { op, request }, now).0
    }

    fn submit(&mut self) {
        let text = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES - 2));
        let input = Payload::Inline(Json::parse(text).unwrap());
        let id = TaskId::from_random(self.bits());
        // Each name is parsed anew, as it is when commands arrive over a network: nothing is shared by luck.
        let mut submission = Submission::new(id, "send_email".parse().unwrap(), input);
        submission.priority = u8::try_from(self.counter % 10).unwrap();
        black_box(self.apply(Request::Submit(Box::new(submission))));
    }

    /// Claims one task, completes it and drops it, as a broker does.
    fn work(&mut self) {
        let lease = LeaseId::from_random(self.bits());
        let outcome = self.apply(Request::Claim(Claim {
            worker: "w-1".parse().unwrap(),
            queues: vec!["default".parse().unwrap()],
            types: vec!["send_email".parse().unwrap()],
            leases: vec![lease],
            lease_ms: 60_000,
        }));
        let Outcome::Claimed(claimed) = outcome else {
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

/// The resident set of this process, in bytes.
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
        if beyond <= 1_024 { "kept" } else { "BROKEN" }
    );
    println!(
        "added in {elapsed:.1?}, {:.0} submits/s",
        1e6 / elapsed.as_secs_f64()
    );
    assert!(beyond <= 1_024, "a task takes more memory than it may");
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
