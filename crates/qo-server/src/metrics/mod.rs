//! The metrics of a server, in Prometheus's format.

mod histogram;
mod text;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use qo::{Stats, Status, Task};
use qo_engine::watch::Commit;
use qo_store::wrap::Counts;

pub(crate) use self::histogram::{Histogram, SizeHistogram};
use self::text::PrometheusText;
use crate::cluster::ClusterGauge;

/// The most combinations of route, method and status. There are few; this is a safeguard.
const REQUEST_KINDS_MAX: usize = 1_000;
/// The methods that are counted by name.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::OPTIONS,
    Method::PATCH,
];

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(String, String, u16), u64>>,
    /// The duration of requests, including the wait of claims and reads.
    pub(crate) request_seconds: Histogram,
    /// The duration until submits were durable.
    pub(crate) submit_seconds: Histogram,
    /// The duration of claims that returned tasks, including the wait.
    pub(crate) claim_seconds: Histogram,
    /// From the due time of tasks to their claim.
    pub(crate) wait_seconds: Histogram,
    /// From the claim to the end of the attempt.
    pub(crate) run_seconds: Histogram,
    /// From the submit of tasks to their end.
    pub(crate) total_seconds: Histogram,
    /// From sending a group of changes to the store until it was durable.
    commit_seconds: Histogram,
    /// The number of callers per commit.
    commit_callers: SizeHistogram,
    /// The number of changed tasks per commit.
    commit_tasks: SizeHistogram,
}

/// Values from other parts of the server that are written with the metrics.
pub(crate) struct ExternalMetrics<'a> {
    pub(crate) stats: Option<&'a Stats>,
    pub(crate) counts: Option<(Counts, f64)>,
    pub(crate) is_leader: bool,
    /// The epoch of this leader, if several processes could lead.
    pub(crate) epoch: Option<u64>,
    pub(crate) connections: usize,
    /// The gauges of the node of a cluster.
    pub(crate) gauges: Vec<ClusterGauge>,
}

impl Metrics {
    pub(crate) fn request(&self, route: &str, method: &Method, status: u16, took: Duration) {
        self.request_seconds.observe(took);
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        // A client can invent methods without end.
        let method = if METHODS.contains(method) {
            method.as_str()
        } else {
            "other"
        };
        let key = (route.to_owned(), method.to_owned(), status);
        if requests.len() < REQUEST_KINDS_MAX || requests.contains_key(&key) {
            *requests.entry(key).or_default() += 1;
        }
    }

    /// Records a durable group of changes.
    pub(crate) fn committed(&self, commit: &Commit) {
        self.commit_seconds.observe(commit.took);
        self.commit_callers.observe(commit.callers);
        self.commit_tasks.observe(commit.tasks);
    }

    /// Records a claimed task.
    pub(crate) fn claimed(&self, task: &Task) {
        if let Some(started) = task.started_at {
            self.wait_seconds.observe(started.since(task.available_at));
        }
    }

    /// Records a task whose attempt has ended.
    pub(crate) fn ended(&self, task: &Task) {
        let mut events = task.events.iter().rev();
        let end = events.next();
        let start = events.find(|event| event.to == Status::Running);
        if let (Some(end), Some(start)) = (end, start)
            && end.from == Some(Status::Running)
        {
            self.run_seconds.observe(end.at.since(start.at));
        }
        if let Some(completed) = task.completed_at {
            self.total_seconds.observe(completed.since(task.created_at));
        }
    }

    /// All metrics in Prometheus's format.
    pub(crate) fn write(&self, external: &ExternalMetrics<'_>) -> String {
        let mut text = PrometheusText::default();
        text.gauge("qo_leader", "Whether this process may serve.");
        text.sample("qo_leader", &[], u64::from(external.is_leader));
        if let Some(epoch) = external.epoch {
            text.gauge("qo_leader_epoch", "The epoch of this leader.");
            text.sample("qo_leader_epoch", &[], epoch);
        }
        text.gauge("qo_connections", "Open connections.");
        text.sample("qo_connections", &[], external.connections);
        let mut last = "";
        for gauge in &external.gauges {
            if gauge.name != last {
                text.gauge(gauge.name, gauge.help);
                last = gauge.name;
            }
            let node = gauge.node.map(|node| node.to_string());
            let label = node.as_deref().map(|node| ("node", node));
            text.sample(gauge.name, label.as_slice(), gauge.value);
        }
        self.write_requests(&mut text);
        for (name, help, histogram) in [
            (
                "qo_http_request_seconds",
                "Duration of requests, including the wait of claims and reads.",
                &self.request_seconds,
            ),
            (
                "qo_submit_seconds",
                "Duration until the submits of a request were durable.",
                &self.submit_seconds,
            ),
            (
                "qo_claim_seconds",
                "Duration of claims that returned tasks, including the wait.",
                &self.claim_seconds,
            ),
            (
                "qo_task_wait_seconds",
                "Time from the due time of tasks to their claim.",
                &self.wait_seconds,
            ),
            (
                "qo_task_run_seconds",
                "Time from the claim of an attempt to its end.",
                &self.run_seconds,
            ),
            (
                "qo_task_total_seconds",
                "Time from the submit of tasks to their end.",
                &self.total_seconds,
            ),
        ] {
            histogram.write(&mut text, name, help);
        }
        self.write_commits(&mut text);
        if let Some(stats) = external.stats {
            write_stats(&mut text, stats);
        }
        if let Some((counts, dollars)) = &external.counts {
            text.counter(
                "qo_store_requests_total",
                "Requests to the store, by operation and key prefix.",
            );
            for (prefix, operation, tally) in counts.iter() {
                let labels = [("prefix", prefix), ("operation", operation.name())];
                text.sample("qo_store_requests_total", &labels, tally.requests);
            }
            text.counter(
                "qo_store_dollars_total",
                "Cost of these requests at the configured prices.",
            );
            text.sample("qo_store_dollars_total", &[], dollars);
        }
        text.finish()
    }

    fn write_commits(&self, text: &mut PrometheusText) {
        self.commit_seconds.write(
            text,
            "qo_commit_seconds",
            "Time from sending a group of changes to the store until it was durable.",
        );
        self.commit_callers
            .write(text, "qo_commit_callers", "Number of callers per commit.");
        self.commit_tasks.write(
            text,
            "qo_commit_tasks",
            "Number of changed tasks per commit.",
        );
    }

    fn write_requests(&self, text: &mut PrometheusText) {
        text.counter(
            "qo_http_requests_total",
            "Requests, by route, method and status.",
        );
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((route, method, status), count) in requests.iter() {
            let status = status.to_string();
            let labels = [
                ("route", route.as_str()),
                ("method", method),
                ("status", &status),
            ];
            text.sample("qo_http_requests_total", &labels, count);
        }
    }
}

fn write_stats(text: &mut PrometheusText, stats: &Stats) {
    text.gauge("qo_tasks", "Tasks by queue, type and status.");
    for (name, queue) in &stats.queues {
        for (task_type, counts) in &queue.types_by_status {
            for (status, count) in counts {
                let labels = [
                    ("queue", name.as_str()),
                    ("type", task_type.as_str()),
                    ("status", status.as_str()),
                ];
                text.sample("qo_tasks", &labels, count);
            }
        }
    }
    text.gauge("qo_queue_paused", "Whether the queue is paused.");
    for (name, queue) in &stats.queues {
        let labels = [("queue", name.as_str())];
        text.sample("qo_queue_paused", &labels, u64::from(queue.paused));
    }
    text.gauge(
        "qo_tasks_partial",
        "Whether only some of the tasks were counted.",
    );
    text.sample("qo_tasks_partial", &[], u64::from(stats.partial));
}
