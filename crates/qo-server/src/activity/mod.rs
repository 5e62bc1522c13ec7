//! Counts what happens to tasks while this process serves, by queue and type, for the metrics and the dashboard.
//!
//! The engine reports each durable change ([`qo_engine::Measurement`]), whoever made it in this process. The leader of brokers or of a
//! cluster makes all changes of the queue. In direct mode other processes change tasks, too, and the counters do not see them.
//! The metrics start at zero with the process. The counters of the last hour, day and week are stored periodically, and continued by the next
//! process ([`store`]).
//!
//! Memory is bounded: 64 combinations of queue and type have counters of their own, the others share one named `other`.

mod latencies;
mod saved;
mod slots;
mod store;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use qo_core::{QueueName, TaskType, Timestamp};
use qo_engine::{End, Measurement, MeasurementKind};
use qo_remote::wire::activity::{ActivityPoint, ActivityResponse, Coverage, Period, TypeActivity};

use self::saved::SavedActivity;
use self::slots::{Slot, Slots, begin, first};
pub use self::store::ActivityStore;
pub(crate) use self::store::{save, save_periodically};
use crate::metrics::{Histogram, PrometheusText};
use crate::tokens::TokenLimits;

/// The most combinations of queue and type.
const SERIES_MAX: usize = 64;
/// The queue and type of all others.
pub(crate) const OTHER: &str = "other";

/// The name and the description of a metric, and its value.
type Metric<T> = (&'static str, &'static str, fn(&Series) -> T);
type HistogramMetric = (&'static str, &'static str, fn(&Series) -> &Histogram);

/// The counters of one queue and type.
#[derive(Debug, Default)]
struct Series {
    submitted: u64,
    ends: BTreeMap<End, u64>,
    wait_seconds: Histogram,
    run_seconds: Histogram,
    total_seconds: Histogram,
    slots: Slots,
}

/// The counters of this process.
#[derive(Debug)]
pub(crate) struct Activity {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    series: BTreeMap<(String, String), Series>,
    /// Since when everything is counted.
    since: Timestamp,
    epoch: Option<u64>,
    /// When earlier counters were taken over.
    resumed_at: Option<Timestamp>,
    /// Whether there is something to store. `None` until the stored counters were taken over: they must not be replaced before.
    is_changed: Option<bool>,
}

impl Activity {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            state: Mutex::new(State {
                series: BTreeMap::new(),
                since: now,
                epoch: None,
                resumed_at: None,
                is_changed: None,
            }),
        }
    }

    /// Notes the epoch in which this process leads. What happened between two epochs is not counted.
    pub(crate) fn lead(&self, epoch: u64, now: Timestamp) {
        let mut state = self.lock();
        if state.epoch != Some(epoch) {
            state.epoch = Some(epoch);
            state.since = now;
            state.resumed_at = None;
            state.is_changed = None;
            // Another process has counted meanwhile, and has taken over what was stored here.
            for series in state.series.values_mut() {
                series.slots = Slots::default();
            }
        }
    }

    /// Takes over what was stored, if there is anything, and adds it to what was counted since.
    pub(crate) fn resume(&self, saved: Option<SavedActivity>, now: Timestamp) {
        let mut state = self.lock();
        // Something may have been counted before the stored counters were read.
        let has_counted = state.series.values().any(|series| !series.slots.is_empty());
        state.is_changed = Some(has_counted);
        let Some((saved, since)) = saved.and_then(|saved| {
            let since = saved.since()?;
            Some((saved, since))
        }) else {
            return;
        };
        state.since = state.since.min(since);
        state.resumed_at = Some(now);
        for (names, slots) in saved.into_slots() {
            state.series_named(names).slots.add(&slots);
        }
    }

    /// Whether what was stored is still to be taken over.
    pub(crate) fn must_resume(&self) -> bool {
        self.lock().is_changed.is_none()
    }

    /// The counters to store, if they have changed since the last time.
    pub(crate) fn take_changed(&self) -> Option<SavedActivity> {
        let mut state = self.lock();
        if state.is_changed != Some(true) {
            return None;
        }
        state.is_changed = Some(false);
        Some(SavedActivity::of(&state.series, state.since))
    }

    pub(crate) fn record(&self, measurement: &Measurement) {
        let mut state = self.lock();
        state.is_changed = state.is_changed.map(|_| true);
        let series = state.series_of(&measurement.queue, &measurement.task_type);
        series.slots.count(measurement.kind, measurement.at);
        match measurement.kind {
            MeasurementKind::Submitted => series.submitted += 1,
            MeasurementKind::Claimed { wait } => series.wait_seconds.observe(wait),
            MeasurementKind::Ended { end, run, total } => {
                *series.ends.entry(end).or_default() += 1;
                if let Some(run) = run {
                    series.run_seconds.observe(run);
                }
                if let Some(total) = total {
                    series.total_seconds.observe(total);
                }
            }
            _ => {}
        }
    }

    /// What happened in a period that ends now, as far as a token with these limits may see it.
    pub(crate) fn report(
        &self,
        period: Period,
        queue: Option<&QueueName>,
        task_type: Option<&TaskType>,
        limits: &TokenLimits,
        covers: Coverage,
        now: Timestamp,
    ) -> ActivityResponse {
        let state = self.lock();
        let mut points: BTreeMap<u64, Slot> = BTreeMap::new();
        let mut whole = Slot::default();
        let mut types = Vec::new();
        let is_wanted =
            |wanted: Option<&str>, name: &str| wanted.is_none_or(|wanted| wanted == name);
        for ((of_queue, of_type), series) in &state.series {
            if !is_wanted(queue.map(QueueName::as_str), of_queue)
                || !is_wanted(task_type.map(TaskType::as_str), of_type)
                || !limits.allow_counters(of_queue, of_type)
            {
                continue;
            }
            let mut sum = Slot::default();
            let mut is_active = false;
            for (number, slot) in series.slots.steps(period, now) {
                is_active = true;
                sum.add(slot);
                points.entry(number).or_default().add(slot);
            }
            whole.add(&sum);
            if is_active {
                types.push(TypeActivity {
                    queue: of_queue.clone(),
                    task_type: of_type.clone(),
                    changes: sum.changes(),
                });
            }
        }
        let points = points.into_iter().map(|(number, slot)| ActivityPoint {
            at: begin(period, number),
            changes: slot.changes(),
        });
        ActivityResponse {
            period,
            step_seconds: period.step_seconds(),
            from: begin(period, first(period, now)),
            to: now,
            since: state.since,
            resumed_at: state.resumed_at,
            covers,
            latencies: whole.latencies(),
            types,
            points: points.collect(),
        }
    }

    /// Writes the counters as metrics.
    pub(crate) fn write(&self, text: &mut PrometheusText) {
        let state = self.lock();
        let counters: [Metric<u64>; 5] = [
            (
                "qo_tasks_submitted_total",
                "Tasks that were submitted.",
                |series| series.submitted,
            ),
            (
                "qo_tasks_completed_total",
                "Tasks that were completed.",
                |series| series.ended(End::Completed),
            ),
            (
                "qo_tasks_failed_total",
                "Tasks that failed permanently.",
                |series| series.ended(End::Failed),
            ),
            (
                "qo_tasks_cancelled_total",
                "Tasks that were cancelled.",
                |series| series.ended(End::Cancelled),
            ),
            (
                "qo_task_retries_total",
                "Attempts that failed or expired and are repeated.",
                |series| series.ended(End::Retried),
            ),
        ];
        for (name, help, value) in counters {
            text.counter(name, help);
            for (names, series) in &state.series {
                text.sample(name, &labels(names), value(series));
            }
        }
        let histograms: [HistogramMetric; 3] = [
            (
                "qo_task_wait_seconds",
                "Time from the due time of tasks to their claim.",
                |series| &series.wait_seconds,
            ),
            (
                "qo_task_run_seconds",
                "Time from the claim of an attempt to its end.",
                |series| &series.run_seconds,
            ),
            (
                "qo_task_total_seconds",
                "Time from the submit of tasks to their end.",
                |series| &series.total_seconds,
            ),
        ];
        for (name, help, histogram) in histograms {
            text.head(name, help, "histogram");
            for (names, series) in &state.series {
                histogram(series).write_samples(text, name, &labels(names));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn series_of(&mut self, queue: &QueueName, task_type: &TaskType) -> &mut Series {
        self.series_named((queue.as_str().to_owned(), task_type.as_str().to_owned()))
    }

    fn series_named(&mut self, mut names: (String, String)) -> &mut Series {
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(&names) {
            names = (OTHER.to_owned(), OTHER.to_owned());
        }
        self.series.entry(names).or_default()
    }
}

impl Series {
    fn ended(&self, end: End) -> u64 {
        self.ends.get(&end).copied().unwrap_or(0)
    }
}

fn labels((queue, task_type): &(String, String)) -> [(&str, &str); 2] {
    [("queue", queue), ("type", task_type)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_763_200_000_000 + seconds * 1_000)
    }

    fn measured(task_type: &str, seconds: i64, kind: MeasurementKind) -> Measurement {
        Measurement {
            queue: "q".parse().unwrap(),
            task_type: task_type.parse().unwrap(),
            at: at(seconds),
            kind,
        }
    }

    fn ended(end: End) -> MeasurementKind {
        MeasurementKind::Ended {
            end,
            run: Some(Duration::from_millis(100)),
            total: None,
        }
    }

    #[test]
    fn periods_count_what_happened_in_them() {
        let activity = Activity::new(at(0));
        for second in 0..7_200 {
            activity.record(&measured("a", second, MeasurementKind::Submitted));
            let end = if second % 10 == 0 {
                End::Failed
            } else {
                End::Completed
            };
            activity.record(&measured("a", second, ended(end)));
        }
        let now = at(7_199);
        let report = |period| {
            activity.report(
                period,
                None,
                None,
                &TokenLimits::default(),
                Coverage::Queue,
                now,
            )
        };
        let hour = report(Period::Hour);
        assert_eq!(hour.points.len(), 60);
        let sum: u64 = hour
            .points
            .iter()
            .map(|point| point.changes.completed + point.changes.failed)
            .sum();
        assert!(
            (3_541..=3_600).contains(&sum),
            "the last step is not full: {sum}"
        );
        let [of_type] = hour.types.as_slice() else {
            panic!("{:?}", hour.types)
        };
        assert_eq!(of_type.changes.completed + of_type.changes.failed, sum);
        assert_eq!(of_type.changes.failed, sum.div_ceil(10));
        assert_eq!(of_type.changes.latencies.run.as_ref().unwrap().max_ms, 100);
        let day = report(Period::Day);
        let submitted: u64 = day.points.iter().map(|point| point.changes.submitted).sum();
        assert_eq!(submitted, 7_200);
        assert_eq!(report(Period::Week).types[0].changes.failed, 720);
        // A day later the hour is empty, and the week is not.
        let later = at(86_400 * 2);
        let hour = activity.report(
            Period::Hour,
            None,
            None,
            &TokenLimits::default(),
            Coverage::Queue,
            later,
        );
        assert!(hour.types.is_empty() && hour.points.is_empty());
        let week = activity.report(
            Period::Week,
            None,
            None,
            &TokenLimits::default(),
            Coverage::Queue,
            later,
        );
        assert_eq!(week.types[0].changes.submitted, 7_200);
    }

    #[test]
    fn invented_types_share_their_counters() {
        let activity = Activity::new(at(0));
        for number in 0..SERIES_MAX * 3 {
            let name = format!("type-{number}");
            activity.record(&measured(&name, 0, MeasurementKind::Submitted));
        }
        let report = activity.report(
            Period::Hour,
            None,
            None,
            &TokenLimits::default(),
            Coverage::Queue,
            at(1),
        );
        assert_eq!(report.types.len(), SERIES_MAX + 1);
        let sum: u64 = report
            .types
            .iter()
            .map(|of_type| of_type.changes.submitted)
            .sum();
        assert_eq!(sum, SERIES_MAX as u64 * 3);
    }

    /// A queue may be named like the counters that many share.
    #[test]
    fn a_limited_token_sees_its_own_counters_and_never_shared_ones() {
        let activity = Activity::new(at(0));
        for number in 0..SERIES_MAX * 2 {
            let name = format!("type-{number}");
            activity.record(&measured(&name, 0, MeasurementKind::Submitted));
        }
        let seen = |limits: &TokenLimits| {
            let report = activity.report(Period::Hour, None, None, limits, Coverage::Queue, at(1));
            let points: u64 = report
                .points
                .iter()
                .map(|point| point.changes.submitted)
                .sum();
            let names = report.types.into_iter().map(|of_type| of_type.task_type);
            (points, names.collect::<Vec<_>>())
        };
        let types = |names: &[&str]| TokenLimits {
            types: names.iter().map(|name| name.parse().unwrap()).collect(),
            ..TokenLimits::default()
        };
        assert_eq!(seen(&types(&["type-7"])), (1, vec!["type-7".to_owned()]));
        assert_eq!(seen(&types(&["other", "missing"])), (0, vec![]));
        let queue = |name: &str| TokenLimits {
            queues: [name.parse().unwrap()].into(),
            ..TokenLimits::default()
        };
        assert_eq!(seen(&queue("q")).0, SERIES_MAX as u64);
        assert_eq!(seen(&queue("other")), (0, vec![]));
        assert_eq!(seen(&TokenLimits::default()).0, SERIES_MAX as u64 * 2);
    }

    /// What a process has stored, its successor continues. Nothing is counted twice, also if a process leads again.
    #[test]
    fn a_successor_continues_what_was_stored() {
        let first = Activity::new(at(0));
        first.lead(1, at(0));
        assert!(first.take_changed().is_none(), "nothing was taken over yet");
        first.resume(None, at(0));
        for second in 0..600 {
            first.record(&measured("a", second, ended(End::Completed)));
        }
        let text = serde_json::to_string(&first.take_changed().unwrap()).unwrap();
        assert!(first.take_changed().is_none(), "nothing has changed since");
        let stored = || Some(serde_json::from_str(&text).unwrap());
        let second = Activity::new(at(700));
        second.lead(2, at(700));
        second.record(&measured("a", 701, ended(End::Failed)));
        second.resume(stored(), at(702));
        for period in Period::ALL {
            let report = second.report(
                period,
                None,
                None,
                &TokenLimits::default(),
                Coverage::Queue,
                at(710),
            );
            assert_eq!((report.since, report.resumed_at), (at(0), Some(at(702))));
            let changes = &report.types[0].changes;
            assert_eq!((changes.completed, changes.failed), (600, 1), "{period:?}");
            assert_eq!(changes.latencies.run.as_ref().unwrap().count, 601);
        }
        // The first leads again, and takes over what the second has stored.
        let text = serde_json::to_string(&second.take_changed().unwrap()).unwrap();
        first.lead(3, at(800));
        first.resume(Some(serde_json::from_str(&text).unwrap()), at(801));
        let report = first.report(
            Period::Hour,
            None,
            None,
            &TokenLimits::default(),
            Coverage::Queue,
            at(802),
        );
        assert_eq!(report.types[0].changes.completed, 600);
        // The metrics count what this process has seen.
        let mut metrics = PrometheusText::default();
        first.write(&mut metrics);
        let later: SavedActivity = serde_json::from_str(r#"{"version":2,"series":[]}"#).unwrap();
        let third = Activity::new(at(900));
        third.resume(Some(later), at(900));
        let report = third.report(
            Period::Week,
            None,
            None,
            &TokenLimits::default(),
            Coverage::Queue,
            at(901),
        );
        assert_eq!((report.since, report.resumed_at), (at(900), None));
    }

    #[test]
    fn what_is_stored_is_bounded_and_loses_no_change() {
        let activity = Activity::new(at(0));
        activity.resume(None, at(0));
        for number in 0..SERIES_MAX * 2 {
            let name = format!("type-{number}");
            for second in 0..400 {
                let measurement = measured(&name, second * 1_500, ended(End::Completed));
                activity.record(&measurement);
            }
        }
        let text = serde_json::to_string(&activity.take_changed().unwrap()).unwrap();
        assert!(text.len() < 2_000_000, "{} bytes", text.len());
        let next = Activity::new(at(600_000));
        next.resume(Some(serde_json::from_str(&text).unwrap()), at(600_000));
        let week = |activity: &Activity| {
            let report = activity.report(
                Period::Week,
                None,
                None,
                &TokenLimits::default(),
                Coverage::Queue,
                at(600_000),
            );
            let sum: u64 = report
                .points
                .iter()
                .map(|point| point.changes.completed)
                .sum();
            sum
        };
        assert_eq!(week(&next), week(&activity));
    }

    #[test]
    fn a_new_leadership_begins_to_count_anew() {
        let activity = Activity::new(at(0));
        let since = || {
            activity
                .report(
                    Period::Hour,
                    None,
                    None,
                    &TokenLimits::default(),
                    Coverage::Queue,
                    at(9),
                )
                .since
        };
        assert_eq!(since(), at(0));
        activity.lead(1, at(1));
        activity.lead(1, at(2));
        assert_eq!(since(), at(1));
        activity.lead(2, at(5));
        assert_eq!(since(), at(5));
    }
}
