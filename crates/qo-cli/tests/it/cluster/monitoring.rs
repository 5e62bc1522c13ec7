//! The shipped alert rules name only metrics of clusters that a node exports.

use std::collections::BTreeSet;

use super::nodes::{Cluster, get};

const ALERTS: &str = include_str!("../../../../../packaging/monitoring/alerts.yaml");
const PREFIX: &str = "qo_cluster_";

/// The metrics of clusters in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let starts = text.match_indices(PREFIX).map(|(start, _)| &text[start..]);
    starts
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            &rest[..end.unwrap_or(rest.len())]
        })
        .collect()
}

#[test]
fn the_leader_exports_every_metric_of_the_alert_rules() {
    let cluster = Cluster::start();
    cluster.settle();
    let scrape = get(&cluster.url_of(cluster.leader()), "/metrics", None);
    assert!(scrape.starts_with("HTTP/1.1 200"), "{scrape}");
    let wanted = named(ALERTS);
    assert!(wanted.len() >= 5, "{wanted:?}");
    for metric in wanted {
        let mut samples = scrape.lines().filter(|line| !line.starts_with('#'));
        let is_exported = samples.any(|line| {
            let rest = line.strip_prefix(metric);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        assert!(is_exported, "{metric} is not in\n{scrape}");
    }
    assert!(
        scrape.contains("qo_cluster_lag_entries{node=\""),
        "{scrape}"
    );
}
