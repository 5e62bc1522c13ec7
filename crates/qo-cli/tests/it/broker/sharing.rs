//! Without a broker, one process has exclusive access to the queue. With one, all processes share it.

use rustix::process::Signal;
use serde_json::Value;

use super::process::BrokerProcess;
use super::task;
use crate::e2e::cli::TestCli;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_has_the_queue_for_itself_keeps_others_out_until_it_closes_it() {
    let cli = TestCli::sqlite().with_engine("slate");
    let queue = cli.connection().open().await.unwrap();
    queue.submit(task()).await.unwrap();
    let refused = cli.run(["--json", "list"]);
    assert_eq!(refused.status.code(), Some(5));
    let said = String::from_utf8(refused.stderr).unwrap();
    let error: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("qo serve"), "{message}");

    // A broker waits, and serves as soon as the queue is free.
    let broker = BrokerProcess::standby(&cli, "broker");
    assert!(broker.log().contains("no address"), "{}", broker.log());
    queue.close().await;
    assert!(queue.submit(task()).await.is_err(), "it is closed");
    broker.wait_for_log("serving as the leader");
    assert!(!broker.log().contains("challenging"));
    let shared = cli.connection().open().await.unwrap();
    shared.submit(task()).await.unwrap();
    assert_eq!(cli.tasks().len(), 2);
}

/// The broker was killed and has no successor: the next command waits for a while and then opens the queue itself.
#[test]
fn a_queue_whose_broker_died_for_good_is_not_lost() {
    let cli = TestCli::sqlite().with_engine("slate");
    let mut broker = BrokerProcess::leader(&cli, "broker");
    let id = cli.submit("work", "1", &[]);
    broker.kill();
    assert_eq!(cli.task(&id)["status"], "pending");
    // Now no broker leads, and commands wait for none.
    let broker = BrokerProcess::leader(&cli, "another");
    assert!(!broker.log().contains("challenging"), "{}", broker.log());
}

#[test]
fn commands_one_after_the_other_need_no_broker() {
    let cli = TestCli::sqlite().with_engine("slate");
    let id = cli.submit("work", "1", &[]);
    cli.ok(["worker", "--exec", "work=cat", "--max-tasks", "1"]);
    assert_eq!(cli.task(&id)["status"], "completed");
    // A command that fails leaves the queue to the next one as well.
    let unknown = cli.run(["status", "00000000-0000-4000-8000-000000000000"]);
    assert_eq!(unknown.status.code(), Some(3));
    assert_eq!(cli.history(&id).len(), 3);
}

#[test]
fn clients_that_find_the_broker_need_its_token() {
    let cli = TestCli::sqlite().with_engine("slate");
    let token = cli.ok(["token", "create", "--name", "reader", "--scope", "read"]);
    let _broker = BrokerProcess::leader(&cli, "broker");
    let refused = cli.run(["list"]);
    assert_eq!(refused.status.code(), Some(6));
    let cli = cli.with_variable("QO_TOKEN", token.trim());
    assert_eq!(cli.tasks().len(), 0);
    let refused = cli.run(["submit", "--type", "work"]);
    assert_eq!(refused.status.code(), Some(6), "the scope is another one");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let cli = TestCli::sqlite().with_engine("slate");
    let said = |arguments: &[&str]| {
        let output = cli.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = said(&["serve", "--listen", "0.0.0.0:0"]);
    assert!(text.contains("--advertise"), "{text}");
    let text = said(&["serve", "--advertise", "queue.example.org"]);
    assert!(text.contains("http://host:port"), "{text}");
    let direct = TestCli::sqlite();
    let output = direct.run(["serve", "--advertise", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2));
    let cli = cli.with_variable("QO_BROKER_ANSWER_MS", "soon");
    let output = cli.run(["list"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("QO_BROKER_ANSWER_MS"), "{text}");
}

/// A worker opens the queue itself and is suspended. A broker takes over, and the worker continues as its client. On a real S3 server,
/// because a suspended process may hold SQLite's lock.
#[test]
fn a_suspended_process_continues_at_the_broker_that_replaced_it() {
    let cli = TestCli::seaweedfs().with_engine("slate");
    cli.submit("work", "1", &[]);
    let worker = cli.worker("w", &["--lease", "30s", "--exec", "work=touch started"]);
    cli.wait_for_file("started");
    worker.signal(Signal::STOP);
    let _broker = BrokerProcess::leader(&cli, "broker");
    worker.signal(Signal::CONT);
    let id = cli.submit("work", "2", &[]);
    cli.wait_for(&id, "completed");
}

/// A process that opened the queue itself and was killed is replaced after one challenge.
#[test]
fn a_killed_process_keeps_nobody_out() {
    let cli = TestCli::seaweedfs().with_engine("slate");
    cli.submit("work", "1", &[]);
    let worker = cli.worker("w", &["--exec", "work=touch started"]);
    cli.wait_for_file("started");
    worker.signal(Signal::KILL);
    // The heartbeat of the dead process is still fresh.
    assert_eq!(cli.tasks().len(), 1);
}
