//! What users and operators see of a cluster with several groups.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::nodes::Cluster;
use crate::schema;

const GROUPS: usize = 4;

/// The metrics of a node.
fn metrics(cluster: &Cluster, node: usize) -> String {
    let url = cluster.url_of(node);
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    let request = "GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn groups_are_shown_and_handlers_get_the_index_of_their_claim() {
    let cluster = Cluster::start_with_groups(4);
    let url = cluster.url();
    let ids: Vec<String> = (0..20)
        .map(|_| cluster.cli.submit("greet", "{}", &["--store", &url]))
        .collect();
    let exec = r#"greet=printf '{"index":%s}' "$QO_LOG_INDEX""#;
    let worker = ["--store", &url, "--exec", exec];
    let _worker = cluster.cli.worker("w-1", &worker);
    let mut indexes = Vec::new();
    for id in &ids {
        cluster.cli.ok(["wait", id, "--store", &url]);
        let json = ["status", id, "--json", "--store", &url];
        let task: Value = serde_json::from_str(&cluster.cli.ok(json)).unwrap();
        assert!(task.get("log_index").is_none(), "{task}");
        indexes.push((id, task["output"]["index"].as_u64().unwrap()));
    }

    let leader = cluster.leader();
    let status = cluster.status(leader).unwrap();
    schema::check("cluster-status", &status);
    let groups = status["groups"].as_array().unwrap();
    assert_eq!(groups.len(), GROUPS);
    assert!(groups.iter().all(|group| group["leader"] == leader));
    let table = cluster.cli.ok(["cluster", "status", "--store", &url]);
    assert!(table.contains("GROUP"), "{table}");

    // The claim of each task is in the entry with its index, in one of the groups.
    let mut found = 0;
    for group in 0..GROUPS {
        let group = format!("--group={group}");
        let log = ["cluster", "log", &group, "--limit=1000", "--json"];
        let log = cluster.cli.ok(log.into_iter().chain(["--store", &url]));
        for line in log.lines() {
            let entry: Value = serde_json::from_str(line).unwrap();
            for command in entry["commands"].as_array().into_iter().flatten() {
                let granted = indexes.iter().find(|(id, _)| command["task"] == **id);
                if let (Some((_, index)), "CLAIM") = (granted, command["name"].as_str().unwrap()) {
                    assert_eq!(entry["index"], *index);
                    found += 1;
                }
            }
        }
    }
    assert_eq!(found, ids.len());
    let missing = ["cluster", "log", "--group=4", "--store", &url];
    let missing = cluster.cli.run(missing);
    assert_eq!(missing.status.code(), Some(2));
    let error = String::from_utf8_lossy(&missing.stderr);
    assert!(error.contains("0 to 3"), "{error}");

    let metrics = metrics(&cluster, leader);
    for name in [
        "qo_cluster_term",
        "qo_cluster_leader",
        "qo_cluster_log_bytes",
    ] {
        assert!(
            metrics.contains(&format!("{name}{{group=\"3\"}}")),
            "{name}"
        );
    }
    assert!(metrics.contains("qo_cluster_lag_entries{group=\"0\",node=\"1\"}"));
}

#[test]
fn a_node_with_another_number_of_groups_does_not_start() {
    let mut cluster = Cluster::start_with_groups(2);
    cluster.stop(1);
    let command = cluster.command(1);
    let arguments = command.get_args().map(std::ffi::OsStr::to_os_string);
    let others = arguments.filter(|argument| argument != "--groups=2");
    let refused = cluster.cli.run(others.collect::<Vec<_>>());
    assert_eq!(refused.status.code(), Some(2));
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("--groups 2"), "{error}");
    cluster.start_node(1);
    cluster.settle();
}
