//! Tokens and blobs of a cluster. All nodes have them.

use std::process::Output;

use qo_testkit::wait_until;

use super::LIMIT;
use super::nodes::Cluster;

/// Runs a command without the secret of the cluster.
fn run_with(cluster: &Cluster, token: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = cluster.cli.command(arguments);
    command.env_remove("QO_CLUSTER_SECRET");
    if let Some(token) = token {
        command.env("QO_TOKEN", token);
    }
    command.output().unwrap()
}

/// Whether a node admits the holder of a token.
fn admits(cluster: &Cluster, node: usize, token: Option<&str>) -> bool {
    let url = cluster.url_of(node);
    let output = run_with(
        cluster,
        token,
        &["cluster", "status", "--json", "--store", &url],
    );
    output.status.success()
}

fn wait_for(what: &str, is_so: impl FnMut() -> bool) {
    assert!(wait_until(LIMIT, is_so), "{what}");
}

#[test]
fn tokens_hold_on_all_nodes() {
    let mut cluster = Cluster::start();
    let url = cluster.url();
    let store = ["--store", &url];
    // Until the first token is created, everyone on this machine is admitted. The secret of the cluster creates it.
    assert!(admits(&cluster, 1, None));
    let secret = cluster.cli.file("secret");
    std::fs::write(&secret, format!("{}\n", super::nodes::SECRET)).unwrap();
    let secret = secret.display().to_string();
    let create = [
        &[
            "token",
            "create",
            "--name",
            "ops",
            "--scope",
            "admin",
            "--secret-file",
            &secret,
        ],
        &store[..],
    ]
    .concat();
    let output = run_with(&cluster, None, &create);
    assert!(output.status.success(), "{output:?}");
    let admin = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    for node in 1..=3 {
        wait_for("a node admits requests without a token", || {
            !admits(&cluster, node, None)
        });
        wait_for("a node does not know the token", || {
            admits(&cluster, node, Some(&admin))
        });
    }
    let submit = [&["submit", "--type", "work", "--input", "{}"], &store[..]].concat();
    let refused = run_with(&cluster, None, &submit);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    assert!(run_with(&cluster, Some(&admin), &submit).status.success());

    // A token with few rights, which an operator makes with a token of their own.
    let create = [
        &[
            "token", "create", "--name", "web", "--scope", "submit", "--json",
        ],
        &store[..],
    ]
    .concat();
    let output = run_with(&cluster, Some(&admin), &create);
    assert!(output.status.success(), "{output:?}");
    let web: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (id, web) = (web["id"].as_str().unwrap(), web["token"].as_str().unwrap());
    wait_for("the token does not submit", || {
        run_with(&cluster, Some(web), &submit).status.success()
    });
    let list = [&["token", "list", "--json"], &store[..]].concat();
    assert!(!run_with(&cluster, Some(web), &list).status.success());

    // Another leader has the same tokens, and so has a node that was down.
    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.leader();
    assert!(run_with(&cluster, Some(web), &submit).status.success());
    let revoke = [&["token", "revoke", id], &store[..]].concat();
    let output = run_with(&cluster, Some(&admin), &revoke);
    assert!(output.status.success(), "{output:?}");
    let again = run_with(&cluster, Some(&admin), &revoke);
    assert_eq!(again.status.code(), Some(3), "{again:?}");
    cluster.start_node(leader);
    cluster.settle();
    for node in 1..=3 {
        wait_for("a node still admits a request without a token", || {
            !admits(&cluster, node, None)
        });
        assert!(admits(&cluster, node, Some(&admin)));
    }
    wait_for("a revoked token still submits", || {
        !run_with(&cluster, Some(web), &submit).status.success()
    });
    let output = run_with(&cluster, Some(&admin), &list);
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(
        listed.contains("ops") && !listed.contains("web"),
        "{listed}"
    );
}

#[test]
fn blobs_are_on_all_nodes_up_to_a_limit() {
    let mut cluster = Cluster::start();
    let url = cluster.url();
    let file = cluster.cli.file("blob");
    let content: Vec<u8> = (0_u32..200_000)
        .map(|n| (n % 251 * (n % 7)).to_le_bytes()[0])
        .collect();
    std::fs::write(&file, &content).unwrap();
    let put = ["blob", "put", "blob", "--store", &url];
    let address = cluster.cli.ok(put).trim().to_owned();
    assert_eq!(cluster.cli.ok(put).trim(), address);
    std::fs::write(cluster.cli.file("too-large"), vec![0; 300_000]).unwrap();
    let refused = cluster
        .cli
        .run(["blob", "put", "too-large", "--store", &url]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("262144"), "{error}");

    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.leader();
    let get = ["blob", "get", &address, "-o", "copy", "--store", &url];
    cluster.cli.ok(get);
    assert_eq!(std::fs::read(cluster.cli.file("copy")).unwrap(), content);
    let listed = cluster.cli.ok(["blob", "list", "--json", "--store", &url]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    cluster.cli.ok(["blob", "gc", "--json", "--store", &url]);
    cluster
        .cli
        .ok(["blob", "delete", &address, "--store", &url]);
    let gone = cluster.cli.run(["blob", "get", &address, "--store", &url]);
    assert_eq!(gone.status.code(), Some(3));
}
