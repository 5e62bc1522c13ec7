//! What a server measures of itself, and how it is written for Prometheus.

mod histogram;
mod text;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use qo::{Stats, Status, Task};
use qo_engine::watch::Commit;
use qo_store::wrap::Counts;

pub(crate) use self::histogram::{Histogram, SizeHistogram};
use self::text::Text;

/// How many kinds of requests are told apart. Routes, methods and statuses are few; this is against surprises.
const REQUEST_KINDS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(String, String, u16), u64>>,
    /// How long a request took, waiting on purpose included.
    pub(crate) request_seconds: Histogram,
    /// How long it took until submits were durable.
    pub(crate) submit_seconds: Histogram,
    /// How long a claim took that found something, waiting included.
    pub(crate) claim_seconds: Histogram,
    /// From the time at which tasks were due to their claim.
    pub(crate) wait_seconds: Histogram,
    /// From the claim to the end of the attempt.
    pub(crate) run_seconds: Histogram,
    /// From the submit to the end of the task.
    pub(crate) total_seconds: Histogram,
    /// From the moment at which a group of changes was handed to the store until it was durable.
    commit_seconds: Histogram,
    /// How many callers a commit served.
    commit_callers: SizeHistogram,
    /// How many tasks a commit changed.
    commit_tasks: SizeHistogram,
}

/// What is known from elsewhere when the metrics are written.
pub(crate) struct Surroundings<'a> {
    pub(crate) stats: Option<&'a Stats>,
    pub(crate) counts: Option<(Counts, f64)>,
    pub(crate) is_leader: bool,
    /// Which leader this process is, where there are several that could be.
    pub(crate) epoch: Option<u64>,
    pub(crate) connections: usize,
}

impl Metrics {
    pub(crate) fn request(&self, route: &str, method: &str, status: u16, took: Duration) {
        self.request_seconds.observe(took);
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (route.to_owned(), method.to_owned(), status);
        if requests.len() < REQUEST_KINDS_MAX || requests.contains_key(&key) {
            *requests.entry(key).or_default() += 1;
        }
    }

    /// Learns from a group of changes that is durable.
    pub(crate) fn committed(&self, commit: &Commit) {
        self.commit_seconds.observe(commit.took);
        self.commit_callers.observe(commit.callers);
        self.commit_tasks.observe(commit.tasks);
    }

    /// Learns from a task that was handed out.
    pub(crate) fn claimed(&self, task: &Task) {
        if let Some(started) = task.started_at {
            self.wait_seconds.observe(started.since(task.available_at));
        }
    }

    /// Learns from a task whose attempt has ended.
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

    /// Everything, as Prometheus reads it.
    pub(crate) fn write(&self, around: &Surroundings<'_>) -> String {
        let mut text = Text::default();
        text.gauge("qo_leader", "Whether this process may serve.");
        text.sample("qo_leader", &[], u64::from(around.is_leader));
        if let Some(epoch) = around.epoch {
            text.gauge(
                "qo_leader_epoch",
                "Which leader this process is, counted from the first.",
            );
            text.sample("qo_leader_epoch", &[], epoch);
        }
        text.gauge("qo_connections", "Connections that are open.");
        text.sample("qo_connections", &[], around.connections);
        self.write_requests(&mut text);
        for (name, help, histogram) in [
            (
                "qo_http_request_seconds",
                "How long requests took, waiting on purpose included.",
                &self.request_seconds,
            ),
            (
                "qo_submit_seconds",
                "How long it took until the submits of a request were durable.",
                &self.submit_seconds,
            ),
            (
                "qo_claim_seconds",
                "How long claims took that found something, waiting included.",
                &self.claim_seconds,
            ),
            (
                "qo_task_wait_seconds",
                "From the time at which tasks were due to their claim.",
                &self.wait_seconds,
            ),
            (
                "qo_task_run_seconds",
                "From the claim of an attempt to its end.",
                &self.run_seconds,
            ),
            (
                "qo_task_total_seconds",
                "From the submit of tasks to their end.",
                &self.total_seconds,
            ),
        ] {
            histogram.write(&mut text, name, help);
        }
        self.write_commits(&mut text);
        if let Some(stats) = around.stats {
            write_stats(&mut text, stats);
        }
        if let Some((counts, dollars)) = &around.counts {
            text.counter(
                "qo_store_requests_total",
                "Requests to the store, by kind and first part of the key.",
            );
            for (prefix, operation, tally) in counts.iter() {
                let labels = [("prefix", prefix), ("operation", operation.name())];
                text.sample("qo_store_requests_total", &labels, tally.requests);
            }
            text.counter(
                "qo_store_dollars_total",
                "What these requests cost at the prices that the server was told.",
            );
            text.sample("qo_store_dollars_total", &[], dollars);
        }
        text.finish()
    }

    fn write_commits(&self, text: &mut Text) {
        self.commit_seconds.write(
            text,
            "qo_commit_seconds",
            "From handing a group of changes to the store until it was durable.",
        );
        self.commit_callers.write(
            text,
            "qo_commit_callers",
            "How many callers a commit served.",
        );
        self.commit_tasks
            .write(text, "qo_commit_tasks", "How many tasks a commit changed.");
    }

    fn write_requests(&self, text: &mut Text) {
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

fn write_stats(text: &mut Text, stats: &Stats) {
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
    text.gauge("qo_queue_paused", "Whether claims pass the queue by.");
    for (name, queue) in &stats.queues {
        let labels = [("queue", name.as_str())];
        text.sample("qo_queue_paused", &labels, u64::from(queue.paused));
    }
    text.gauge(
        "qo_tasks_partial",
        "Whether only a part of the tasks was counted.",
    );
    text.sample("qo_tasks_partial", &[], u64::from(stats.partial));
}
