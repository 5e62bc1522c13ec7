//! Brokers over TLS: the standby pings the leader, and clients find it, with the certificates of `QO_CA_FILE`.

use super::process::BrokerProcess;
use super::task;
use crate::e2e::cli::TestCli;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_and_clients_follow() {
    let names = ["127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let certificate = file("cert.pem", made.cert.pem());
    let key = file("key.pem", made.signing_key.serialize_pem());
    let cli = TestCli::sqlite()
        .with_engine("slate")
        .with_variable("QO_CA_FILE", &certificate);
    let start = |name: &str| {
        let tls = ["--tls-cert", &certificate, "--tls-key", &key];
        let broker = BrokerProcess::start_with(&cli, name, &tls, &[]);
        assert!(broker.url.starts_with("https://"), "{}", broker.url);
        broker
    };
    let mut first = start("first");
    first.wait_for_log("serving as the leader");
    let second = start("second");
    second.wait_for_log("standing by");

    // The standby hears the leader over TLS. Otherwise it would challenge it.
    let queue = cli.connection().open().await.unwrap();
    let before = queue.submit(task()).await.unwrap().task.id;
    let id = cli.submit("work", "1", &[]);
    assert!(!second.log().contains("challenging"), "{}", second.log());

    first.kill();
    let after = queue.submit(task()).await.unwrap().task.id;
    second.wait_for_log("serving as the leader");
    for id in [before, after] {
        assert_eq!(queue.get(id).await.unwrap().status, qo::Status::Pending);
    }
    assert_eq!(cli.task(&id)["status"], "pending");

    // Without the certificate nobody talks to the broker.
    let wary = cli.with_variable("QO_CA_FILE", "/dev/null");
    let refused = wary.run(["list"]);
    assert!(!refused.status.success());
}
