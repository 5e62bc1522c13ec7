//! The shipped alert rules and the Grafana dashboard name only metrics and labels that a running server exports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use qo::BrokerEngine;
use qo_broker::JsonConfig;
use qo_store::client::ClientConfig;
use qo_store::runtime::TokioRuntime;
use qo_store::wrap::CountingStore;
use serde_json::{Value, json};

use crate::support::{TestServer, api, config, memory, serve_engine};

const ALERTS: &str = include_str!("../../../../packaging/monitoring/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../../packaging/monitoring/grafana-dashboard.json");
/// Words of a query and label names may look like metrics; metrics begin so.
const PREFIX: &str = "qo_";
/// Only the nodes of a cluster have these. A test of the command scrapes one of them.
const CLUSTER_PREFIX: &str = "qo_cluster_";

/// The metrics in a text, each with the labels that its selectors and groupings name.
fn named(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (start, _) in text.match_indices(PREFIX) {
        let rest = &text[start..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let labels = metrics.entry(rest[..end].to_owned()).or_default();
        if let Some(selector) = rest[end..].strip_prefix('{') {
            let selector = selector.split('}').next().unwrap_or_default();
            for condition in selector.split(',') {
                let name = condition.split(['=', '!']).next().unwrap_or_default();
                labels.insert(name.trim().to_owned());
            }
        }
    }
    metrics
}

/// The samples of a scrape, by metric, with the names of their labels.
fn scraped(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).unwrap();
        let labels = metrics.entry(line[..end].to_owned()).or_default();
        if let Some(selector) = line[end..].strip_prefix('{') {
            let selector = selector.rsplit_once('}').unwrap().0;
            for pair in selector.split("\",") {
                labels.insert(pair.split('=').next().unwrap().to_owned());
            }
        }
    }
    metrics
}

/// Completes a task, fails one and leaves one pending, on a queue with a live worker.
async fn produce(server: &TestServer) {
    for (task_type, end) in [("mail", "complete"), ("bill", "fail"), ("rest", "")] {
        let body = json!({"task_type": task_type, "queue": "q", "max_retries": 0});
        server.reply(api("POST", "/v1/tasks").json(&body)).await;
        if end.is_empty() {
            continue;
        }
        let claim =
            json!({"worker_id": "w", "queues": ["q"], "types": [task_type], "wait_ms": 20_000});
        let (_, claimed) = server.reply(api("POST", "/v1/claim").json(&claim)).await;
        let task = &claimed["tasks"][0];
        let mut body = json!({ "lease_id": task["lease_id"] });
        if end == "fail" {
            body["error"] = json!("no");
        }
        let path = format!("/v1/tasks/{}/{end}", task["id"].as_str().unwrap());
        let (status, reply) = server.reply(api("POST", path).json(&body)).await;
        assert_eq!(status, 200, "{reply}");
    }
    let now = server.engine.now();
    let worker = qo::WorkerInfo::new("w".parse().unwrap(), now);
    server.engine.heartbeat(&worker).await.unwrap();
}

async fn broker_server() -> TestServer {
    let mut store = memory();
    let counting = Arc::new(CountingStore::new(Arc::clone(&store.objects)));
    store.objects = Arc::clone(&counting) as _;
    let engine = BrokerEngine::json(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        TokioRuntime::shared(),
        ClientConfig::default(),
        JsonConfig::local(),
    );
    let mut config = config();
    config.counts = Some(Arc::new(move || counting.counts()));
    config.stats_max_age = Duration::ZERO;
    serve_engine(store, Arc::new(engine), config).await
}

#[tokio::test]
async fn every_metric_of_the_rules_and_the_dashboard_is_exported() {
    let server = broker_server().await;
    produce(&server).await;
    let text = server
        .send(api("GET", "/metrics"))
        .await
        .text()
        .await
        .unwrap();
    let exported = scraped(&text);
    for (file, content) in [("alerts", ALERTS), ("dashboard", DASHBOARD)] {
        let wanted = named(content);
        assert!(wanted.len() > 5, "{file} names metrics: {wanted:?}");
        let wanted = wanted.into_iter();
        for (metric, labels) in wanted.filter(|(metric, _)| !metric.starts_with(CLUSTER_PREFIX)) {
            let found = exported.get(&metric);
            let found = found.unwrap_or_else(|| panic!("{file}: {metric} is not in\n{text}"));
            let missing: Vec<_> = labels.difference(found).collect();
            assert!(
                missing.is_empty(),
                "{file}: {metric} has no label {missing:?}"
            );
        }
    }
    for line in [
        "qo_tasks_submitted_total{queue=\"q\",type=\"mail\"} 1",
        "qo_tasks_completed_total{queue=\"q\",type=\"mail\"} 1",
        "qo_tasks_failed_total{queue=\"q\",type=\"bill\"} 1",
        "qo_task_run_seconds_count{queue=\"q\",type=\"bill\"} 1",
        "qo_task_wait_seconds_count{queue=\"q\",type=\"mail\"} 1",
        "qo_workers{state=\"live\"} 1",
        "qo_workers{state=\"dead\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    let age = text
        .lines()
        .find_map(|line| line.strip_prefix("qo_queue_oldest_due_seconds{queue=\"q\"} "))
        .and_then(|age| age.parse::<f64>().ok());
    assert!(age.is_some_and(|age| (0.0..60.0).contains(&age)), "{age:?}");
    server.engine.close().await;
}

#[test]
fn the_dashboard_is_valid_json_with_a_query_in_each_panel() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 10);
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            assert!(
                target["expr"]
                    .as_str()
                    .is_some_and(|expr| expr.contains(PREFIX))
            );
        }
    }
}

#[tokio::test]
async fn activity_is_counted_by_queue_and_type() {
    let server = broker_server().await;
    produce(&server).await;
    let (status, reply) = server.reply(api("GET", "/v1/activity")).await;
    assert_eq!(status, 200, "{reply}");
    assert_eq!(reply["period"], "hour");
    assert_eq!(reply["covers"], "server");
    let types = reply["types"].as_array().unwrap();
    assert_eq!(types.len(), 3, "{reply}");
    let of_type = |name: &str| types.iter().find(|one| one["task_type"] == name).unwrap();
    assert_eq!(of_type("mail")["completed"], 1);
    assert_eq!(of_type("bill")["failed"], 1);
    assert_eq!(of_type("bill")["run"]["count"], 1);
    assert_eq!(of_type("rest")["submitted"], 1);
    let sum: u64 = reply["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["submitted"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, 3);
    let (_, reply) = server
        .reply(api("GET", "/v1/activity?period=week&task_type=bill"))
        .await;
    assert_eq!(reply["types"].as_array().unwrap().len(), 1, "{reply}");
    let (status, _) = server.reply(api("GET", "/v1/activity?period=year")).await;
    assert_eq!(status, 400);
    server.engine.close().await;
}
