//! Nodes that do not belong to the cluster.

use super::LIMIT;
use super::nodes::Cluster;
use qo_testkit::wait_until;

/// A node with another secret takes no part. The other two serve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_secret_is_refused() {
    let mut cluster = Cluster::start();
    let stranger = 1 + cluster.leader() % 3;
    cluster.kill(stranger);
    let before = cluster.status(cluster.leader()).unwrap();
    let mut command = cluster.command(stranger);
    command.env("QO_CLUSTER_SECRET", "another secret, long enough as well");
    cluster.start_with(stranger, &mut command);
    let queue = cluster.queue().await;
    for _ in 0..20 {
        queue.submit(super::super::broker::task()).await.unwrap();
    }
    let is_logged = wait_until(LIMIT, || cluster.log_of(stranger).contains("secret"));
    assert!(is_logged, "{}", cluster.log_of(stranger));
    let after = cluster.status(cluster.leader()).unwrap();
    assert_eq!(
        after["leader"], before["leader"],
        "the stranger disturbed the cluster"
    );
    let members = after["members"].as_array().unwrap().clone();
    let lag = members
        .iter()
        .find(|member| member["node"] == stranger)
        .unwrap()["lag"]
        .as_u64();
    assert!(lag.unwrap() > 0, "the stranger received entries");
}

#[test]
fn the_data_of_another_node_or_cluster_is_refused() {
    let mut cluster = Cluster::start();
    cluster.kill(2);
    cluster.kill(3);
    for (change, reason) in [("--node=3", "node"), ("--cluster=other", "cluster")] {
        let mut command = cluster.command(2);
        let arguments: Vec<_> = command
            .get_args()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        let name = change.split('=').next().unwrap();
        let changed = arguments.into_iter().map(|argument| {
            let is_changed = argument.starts_with(&format!("{name}="));
            if is_changed {
                change.to_owned()
            } else {
                argument
            }
        });
        command = cluster.cli.command(changed.collect::<Vec<_>>());
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.contains("data directory") && error.contains(reason),
            "{error}"
        );
    }
    let mut command = cluster.command(2);
    command.env("QO_CLUSTER_SECRET", "short");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
