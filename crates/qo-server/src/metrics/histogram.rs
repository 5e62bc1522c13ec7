//! Lock-free histograms of durations and sizes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::text::PrometheusText;

/// Upper bounds in microseconds: from a request served from memory to a task that waited for a day.
const DURATIONS_US: [u64; 18] = [
    1_000,
    2_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
    86_400_000_000,
];
/// Upper bounds of sizes: from one to more than a commit contains.
const SIZES: [u64; 13] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000,
];

/// A histogram of durations.
#[derive(Debug)]
pub(crate) struct Histogram(Buckets);

impl Default for Histogram {
    fn default() -> Self {
        Self(Buckets::new(&DURATIONS_US))
    }
}

impl Histogram {
    pub(crate) fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.0.observe(micros);
    }

    pub(super) fn write(&self, text: &mut PrometheusText, name: &str, help: &str) {
        self.0.write(text, name, help, seconds);
    }

    /// Writes the samples of one of several histograms with the same name.
    pub(crate) fn write_samples(
        &self,
        text: &mut PrometheusText,
        name: &str,
        labels: &[(&str, &str)],
    ) {
        self.0.write_samples(text, name, labels, seconds);
    }
}

/// A histogram of sizes.
#[derive(Debug)]
pub(crate) struct SizeHistogram(Buckets);

impl Default for SizeHistogram {
    fn default() -> Self {
        Self(Buckets::new(&SIZES))
    }
}

impl SizeHistogram {
    pub(crate) fn observe(&self, number: usize) {
        self.0.observe(number as u64);
    }

    pub(super) fn write(&self, text: &mut PrometheusText, name: &str, help: &str) {
        self.0.write(text, name, help, |number| number.to_string());
    }
}

#[derive(Debug)]
struct Buckets {
    bounds: &'static [u64],
    /// One count per bound, and one for values above all bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Buckets {
    fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    fn observe(&self, value: u64) {
        let index = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    fn write(
        &self,
        text: &mut PrometheusText,
        name: &str,
        help: &str,
        show: impl Fn(u64) -> String,
    ) {
        text.head(name, help, "histogram");
        self.write_samples(text, name, &[], show);
    }

    fn write_samples(
        &self,
        text: &mut PrometheusText,
        name: &str,
        labels: &[(&str, &str)],
        show: impl Fn(u64) -> String,
    ) {
        let bucket = format!("{name}_bucket");
        let bounds = self.bounds.iter().map(|bound| show(*bound));
        let bounds = bounds.chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (bound, below) in bounds.zip(&self.counts) {
            count += below.load(Ordering::Relaxed);
            let labels: Vec<_> = labels
                .iter()
                .copied()
                .chain([("le", bound.as_str())])
                .collect();
            text.sample(&bucket, &labels, count);
        }
        let sum = show(self.sum.load(Ordering::Relaxed));
        text.sample(&format!("{name}_sum"), labels, sum);
        text.sample(&format!("{name}_count"), labels, count);
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
        let mut text = PrometheusText::default();
        histogram.write(&mut text, "h", "Help.");
        let sizes = SizeHistogram::default();
        for size in [1, 2, 3, 20_000] {
            sizes.observe(size);
        }
        sizes.write(&mut text, "s", "Help.");
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
            "s_bucket{le=\"1\"} 1",
            "s_bucket{le=\"5\"} 3",
            "s_bucket{le=\"10000\"} 3",
            "s_bucket{le=\"+Inf\"} 4",
            "s_sum 20006",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
