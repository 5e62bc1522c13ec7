//! A histogram from which percentiles can be estimated.

use std::time::Duration;

use qo_remote::wire::activity::Latency;
use serde::{Deserialize, Serialize};

/// The number of buckets. Each is larger than the one before by half an octave, from 1 ms to about three days.
const BUCKETS: usize = 56;

/// Durations, counted in buckets. The stored form leaves out empty buckets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "StoredLatencies", into = "StoredLatencies")]
pub(super) struct Latencies {
    counts: Box<[u32; BUCKETS]>,
    count: u64,
    sum_ms: u64,
    max_ms: u64,
}

/// The stored form.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredLatencies {
    /// Buckets and their counts.
    counts: Vec<(usize, u32)>,
    count: u64,
    sum_ms: u64,
    max_ms: u64,
}

impl From<StoredLatencies> for Latencies {
    fn from(stored: StoredLatencies) -> Self {
        let mut latencies = Self {
            count: stored.count,
            sum_ms: stored.sum_ms,
            max_ms: stored.max_ms,
            ..Self::default()
        };
        for (bucket, count) in stored.counts {
            if let Some(known) = latencies.counts.get_mut(bucket) {
                *known = count;
            }
        }
        latencies
    }
}

impl From<Latencies> for StoredLatencies {
    fn from(latencies: Latencies) -> Self {
        let counts = latencies.counts.iter().copied().enumerate();
        Self {
            counts: counts.filter(|(_, count)| *count > 0).collect(),
            count: latencies.count,
            sum_ms: latencies.sum_ms,
            max_ms: latencies.max_ms,
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            count: 0,
            sum_ms: 0,
            max_ms: 0,
        }
    }
}

impl Latencies {
    pub(super) fn observe(&mut self, duration: Duration) {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket_of(millis)) {
            *count = count.saturating_add(1);
        }
        self.count += 1;
        self.sum_ms = self.sum_ms.saturating_add(millis);
        self.max_ms = self.max_ms.max(millis);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts.iter()) {
            *sum = sum.saturating_add(*count);
        }
        self.count += other.count;
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
    }

    /// The figures; `None` if there are no durations.
    pub(super) fn summary(&self) -> Option<Latency> {
        (self.count > 0).then(|| Latency {
            count: self.count,
            mean_ms: self.sum_ms / self.count,
            p50_ms: self.percentile(50),
            p95_ms: self.percentile(95),
            p99_ms: self.percentile(99),
            max_ms: self.max_ms,
        })
    }

    /// An estimate: within its bucket, the durations are taken as evenly spread.
    fn percentile(&self, percent: u64) -> u64 {
        let total: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let rank = (total * percent).div_ceil(100).max(1);
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if below + count >= rank {
                let (from, to) = (lower_bound(bucket), lower_bound(bucket + 1));
                let share = (rank - below) * (to - from) / count.max(1);
                return (from + share).min(self.max_ms);
            }
            below += count;
        }
        self.max_ms
    }
}

/// The smallest duration of a bucket: powers of two, and one and a half times those.
fn lower_bound(bucket: usize) -> u64 {
    let Some(octaves) = bucket.checked_sub(1) else {
        return 0;
    };
    let power = 1_u64 << (octaves / 2).min(62);
    if octaves % 2 == 0 {
        power
    } else {
        power + power / 2
    }
}

fn bucket_of(millis: u64) -> usize {
    // Bounds grow, so the bucket is the last one that does not begin later. 1 ms and 1.5 ms are the same number.
    let mut bucket = BUCKETS - 1;
    while bucket > 0 && lower_bound(bucket) > millis {
        bucket -= 1;
    }
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_whose_bounds_contain_it() {
        for millis in (0..5_000).chain([100_000, 86_400_000, u64::MAX]) {
            let bucket = bucket_of(millis);
            assert!(lower_bound(bucket) <= millis);
            assert!(
                bucket == BUCKETS - 1 || millis < lower_bound(bucket + 1),
                "{millis}"
            );
        }
    }

    #[test]
    fn percentiles_are_within_their_bucket() {
        let mut latencies = Latencies::default();
        assert!(latencies.summary().is_none());
        for millis in 1..=1_000 {
            latencies.observe(Duration::from_millis(millis));
        }
        let summary = latencies.summary().unwrap();
        assert_eq!(
            (summary.count, summary.mean_ms, summary.max_ms),
            (1_000, 500, 1_000)
        );
        assert!((450..=560).contains(&summary.p50_ms), "{summary:?}");
        assert!((900..=1_000).contains(&summary.p95_ms), "{summary:?}");
        let mut twice = latencies.clone();
        twice.add(&latencies);
        assert_eq!(twice.summary().unwrap().p50_ms, summary.p50_ms);
        assert_eq!(twice.summary().unwrap().count, 2_000);
    }
}
