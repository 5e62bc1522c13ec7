//! Without a broker one process at a time can open the queue; with one, all processes share it.

use serde_json::Value;

use super::process::BrokerProcess;
use super::task;
use crate::e2e::store::TestStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_a_broker_excludes_others_until_it_closes_the_queue() {
    let store = TestStore::sqlite().with_engine("slate");
    let queue = store.connection().open().await.unwrap();
    queue.submit(task()).await.unwrap();
    let rejected = store.run(["--json", "list"]);
    assert_eq!(rejected.status.code(), Some(5));
    let errors = String::from_utf8(rejected.stderr).unwrap();
    let error: Value = serde_json::from_str(errors.lines().last().unwrap()).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("qo serve"), "{message}");

    // A broker waits and serves as soon as the queue is free.
    let broker = BrokerProcess::standby(&store, "broker");
    assert!(broker.log().contains("no address"), "{}", broker.log());
    queue.close().await;
    assert!(queue.submit(task()).await.is_err(), "it is closed");
    broker.wait_for_log("serving as the leader");
    assert!(!broker.log().contains("challenging"));
    let shared = store.connection().open().await.unwrap();
    shared.submit(task()).await.unwrap();
    assert_eq!(store.tasks().len(), 2);
}

/// The broker was killed and has no successor: the next command waits for a while and then opens the queue itself.
#[test]
fn a_queue_can_be_used_after_its_broker_died() {
    let store = TestStore::sqlite().with_engine("slate");
    let mut broker = BrokerProcess::leader(&store, "broker");
    let id = store.submit("work", "1", &[]);
    broker.kill();
    assert_eq!(store.task(&id)["status"], "pending");
    // Now there is no leader to wait for.
    let broker = BrokerProcess::leader(&store, "another");
    assert!(!broker.log().contains("challenging"), "{}", broker.log());
}

#[test]
fn consecutive_commands_need_no_broker() {
    let store = TestStore::sqlite().with_engine("slate");
    let id = store.submit("work", "1", &[]);
    store.ok(["worker", "--exec", "work=cat", "--max-tasks", "1"]);
    assert_eq!(store.task(&id)["status"], "completed");
    // A command that fails also closes the queue.
    let unknown = store.run(["status", "00000000-0000-4000-8000-000000000000"]);
    assert_eq!(unknown.status.code(), Some(3));
    assert_eq!(store.history(&id).len(), 3);
}

#[test]
fn clients_that_find_the_broker_need_its_token() {
    let store = TestStore::sqlite().with_engine("slate");
    let token = store.ok(["token", "create", "--name", "reader", "--scope", "read"]);
    let _broker = BrokerProcess::leader(&store, "broker");
    let rejected = store.run(["list"]);
    assert_eq!(rejected.status.code(), Some(6));
    let store = store.with_variable("QO_TOKEN", token.trim());
    assert_eq!(store.tasks().len(), 0);
    let rejected = store.run(["submit", "--type", "work"]);
    assert_eq!(rejected.status.code(), Some(6), "the token lacks the scope");
}

#[test]
fn invalid_arguments_are_rejected() {
    let store = TestStore::sqlite().with_engine("slate");
    let errors = |arguments: &[&str]| {
        let output = store.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = errors(&["serve", "--listen", "0.0.0.0:0"]);
    assert!(text.contains("--advertise"), "{text}");
    let text = errors(&["serve", "--advertise", "queue.example.org"]);
    assert!(text.contains("http://host:port"), "{text}");
    let direct = TestStore::sqlite();
    let output = direct.run(["serve", "--advertise", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2));
    let store = store.with_variable("QO_BROKER_ANSWER_MS", "soon");
    let output = store.run(["list"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("QO_BROKER_ANSWER_MS"), "{text}");
}
