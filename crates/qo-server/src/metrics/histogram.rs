//! Durations in buckets, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::text::Text;

/// Upper bounds in milliseconds: from a request in memory to a task that waited for a day.
const BOUNDS_MS: [u64; 18] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 600_000,
    3_600_000, 86_400_000,
];

#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS_MS.len()],
    above: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS_MS.iter().position(|bound| micros <= bound * 1_000);
        place
            .map_or(&self.above, |place| &self.buckets[place])
            .fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn write(&self, text: &mut Text, name: &str, help: &str) {
        text.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (bound, below) in BOUNDS_MS.iter().zip(&self.buckets) {
            count += below.load(Ordering::Relaxed);
            text.sample(&bucket, &[("le", &seconds(bound * 1_000))], count);
        }
        count += self.above.load(Ordering::Relaxed);
        text.sample(&bucket, &[("le", "+Inf")], count);
        let sum = seconds(self.sum_us.load(Ordering::Relaxed));
        text.sample(&format!("{name}_sum"), &[], sum);
        text.sample(&format!("{name}_count"), &[], count);
    }
}

fn seconds(micros: u64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sum of durations needs no more than 53 bits"
    )]
    let seconds = micros as f64 / 1_000_000.0;
    seconds.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up() {
        let histogram = Histogram::default();
        for millis in [0, 1, 3, 700, 90_000_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut text = Text::default();
        histogram.write(&mut text, "h", "Help.");
        let text = text.finish();
        for line in [
            "# TYPE h histogram",
            "h_bucket{le=\"0.001\"} 2",
            "h_bucket{le=\"0.005\"} 3",
            "h_bucket{le=\"1\"} 4",
            "h_bucket{le=\"86400\"} 4",
            "h_bucket{le=\"+Inf\"} 5",
            "h_count 5",
            "h_sum 90000.704",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
