//! The metrics of a server, in Prometheus's format.

mod histogram;
mod text;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use qo::{Stats, Timestamp};
use qo_engine::watch::Commit;
use qo_store::wrap::Counts;

pub(crate) use self::histogram::{Histogram, SizeHistogram};
pub(crate) use self::text::PrometheusText;
use crate::activity::Activity;
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
    pub(crate) activity: &'a Activity,
    /// The live workers and the dead ones, if they can be counted.
    pub(crate) workers: Option<WorkerCounts>,
    /// The queue's time.
    pub(crate) now: Timestamp,
}

/// How many registered workers there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerCounts {
    pub(crate) live: usize,
    pub(crate) dead: usize,
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
            let group = gauge.group.map(|group| group.to_string());
            let node = gauge.node.map(|node| node.to_string());
            let group = group.as_deref().map(|group| ("group", group));
            let node = node.as_deref().map(|node| ("node", node));
            let labels: Vec<_> = group.into_iter().chain(node).collect();
            text.sample(gauge.name, &labels, gauge.value);
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
        ] {
            histogram.write(&mut text, name, help);
        }
        external.activity.write(&mut text);
        self.write_commits(&mut text);
        if let Some(stats) = external.stats {
            write_stats(&mut text, stats, external.now);
        }
        if let Some(workers) = external.workers {
            text.gauge(
                "qo_workers",
                "Registered workers; a dead one has stopped sending heartbeats.",
            );
            text.sample("qo_workers", &[("state", "live")], workers.live);
            text.sample("qo_workers", &[("state", "dead")], workers.dead);
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
                "qo_store_errors_total",
                "Requests to the store that failed, without those whose condition did not hold.",
            );
            for (prefix, operation, tally) in counts.iter() {
                let labels = [("prefix", prefix), ("operation", operation.name())];
                text.sample("qo_store_errors_total", &labels, tally.errors);
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

fn write_stats(text: &mut PrometheusText, stats: &Stats, now: Timestamp) {
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
    text.gauge(
        "qo_queue_oldest_due_seconds",
        "How long the oldest due task of the queue has been due; 0 if none is.",
    );
    for (name, queue) in &stats.queues {
        let age = queue.oldest_due.map_or(Duration::ZERO, |at| now.since(at));
        let labels = [("queue", name.as_str())];
        text.sample("qo_queue_oldest_due_seconds", &labels, age.as_secs_f64());
    }
    text.gauge(
        "qo_queue_oldest_claim_seconds",
        "How long the oldest running attempt of the queue has been running; 0 if none is.",
    );
    for (name, queue) in &stats.queues {
        let claimed = queue.oldest_claim;
        let age = claimed.map_or(Duration::ZERO, |at| now.since(at));
        let labels = [("queue", name.as_str())];
        text.sample("qo_queue_oldest_claim_seconds", &labels, age.as_secs_f64());
    }
    text.gauge("qo_queue_paused", "Whether the queue is paused.");
    for (name, queue) in &stats.queues {
        let labels = [("queue", name.as_str())];
        text.sample("qo_queue_paused", &labels, u64::from(queue.paused));
    }
    text.gauge("qo_type_paused", "1 for each paused type.");
    for name in stats.pauses.types.keys() {
        text.sample("qo_type_paused", &[("type", name.as_str())], 1_u64);
    }
    text.gauge(
        "qo_tasks_partial",
        "Whether only some of the tasks were counted.",
    );
    text.sample("qo_tasks_partial", &[], u64::from(stats.partial));
}
