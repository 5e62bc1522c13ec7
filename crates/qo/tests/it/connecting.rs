//! Opening a queue by its URL: the check, the probe and its stored report, and errors.

use std::time::Duration;

use qo::{Connect, Error, ErrorKind, OpenOptions};
use qo_store::probe::REPORT_KEY;
use qo_store::runtime::TokioRuntime;

use crate::test_queue::TestQueue;

/// The first connection probes the store, and later ones use the stored report.
async fn is_probed_once(test_queue: TestQueue) {
    let connection = || test_queue.connection().probe_budget(Duration::from_secs(3));
    let first = connection().open().await.unwrap();
    let client = first.direct_engine().unwrap().client();
    let verdict = client.get(REPORT_KEY).await.unwrap();
    let second = connection().open().await.unwrap();
    let client = second.direct_engine().unwrap().client();
    let again = client.get(REPORT_KEY).await.unwrap();
    assert_eq!(again.body, verdict.body, "the store was probed again");
    second.task("job", &1).unwrap().submit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_is_probed_once() {
    is_probed_once(TestQueue::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs_is_probed_once() {
    is_probed_once(TestQueue::seaweedfs()).await;
}

#[tokio::test]
async fn memory_is_not_probed() {
    let queue = qo::connect("memory:").await.unwrap();
    let client = queue.direct_engine().unwrap().client();
    assert!(client.get(REPORT_KEY).await.is_err());
    assert_eq!(queue.store().unwrap().description, "memory:");
}

#[tokio::test]
async fn only_known_engines_are_accepted() {
    for known in ["direct", "objects", "json"] {
        let url = format!("memory:known-{known}?engine={known}");
        assert!(qo::connect(&url).await.is_ok(), "{url}");
    }
    let error = qo::connect("memory:?engine=magic").await.unwrap_err();
    let expected = Error::UnknownEngine {
        name: "magic".to_owned(),
    };
    assert_eq!(error, expected);
    assert_eq!(error.kind(), ErrorKind::BadInput);
    assert!(error.to_string().contains("engine=direct"), "{error}");
    let error = qo::connect("memory:?colour=red").await.unwrap_err();
    assert!(matches!(error, Error::Open(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_url_chooses_the_engine() {
    for (url, is_direct) in [
        ("memory:engines?engine=direct", true),
        ("memory:engines?engine=json", false),
        ("memory:engines?engine=slate", false),
    ] {
        let queue = qo::connect(url).await.unwrap();
        assert_eq!(queue.direct_engine().is_some(), is_direct, "{url}");
        let submitted = queue.task("job", &1).unwrap().submit().await.unwrap();
        let mut claim_request =
            qo::ClaimRequest::new("w".parse().unwrap(), vec!["job".parse().unwrap()]);
        claim_request.wait_ms = 20_000;
        let task = queue.claim(&claim_request).await.unwrap().pop().unwrap();
        assert_eq!(
            task.id, submitted.task.id,
            "{url}: each engine has a queue of its own"
        );
        let lease = task.lease_id.unwrap();
        queue.complete(task.id, lease, None).await.unwrap();
        let done = queue.get(task.id).await.unwrap();
        assert_eq!(done.status, qo::Status::Completed, "{url}");
        queue.close().await;
    }
}

#[tokio::test]
async fn the_environment_names_the_default_url() {
    let options = OpenOptions::new(TokioRuntime::shared());
    let named = options
        .clone()
        .with_var("QO_STORE", "memory:x?engine=direct");
    let queue = Connect::to_default().options(named).open().await.unwrap();
    assert_eq!(queue.store().unwrap().description, "memory:x");

    let folder = tempfile::tempdir().unwrap();
    let home = options.with_var("XDG_DATA_HOME", folder.path().to_str().unwrap());
    let connection = Connect::to_default().options(home).skip_probe();
    connection.open().await.unwrap();
    assert!(folder.path().join("qo/qo.db").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_bucket_is_named_in_the_error() {
    let server = qo_testkit::SeaweedFs::shared().unwrap();
    let options = OpenOptions::new(TokioRuntime::shared())
        .with_var("S3_ENDPOINT", server.endpoint())
        .with_var("AWS_ACCESS_KEY_ID", server.access_key())
        .with_var("AWS_SECRET_ACCESS_KEY", server.secret_key());
    let connection = Connect::to("s3://no-such-bucket-here").options(options);
    let error = connection.open().await.unwrap_err();
    assert!(matches!(error, Error::Check(_)), "{error:?}");
    assert!(error.to_string().contains("no-such-bucket-here"), "{error}");
}

/// A process that opens the database fences out the queue that this process opened for itself. The queue notices and opens it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_was_replaced_works_again() {
    let runtime = TokioRuntime::shared();
    let queue = qo::connect("memory:replaced?engine=slate").await.unwrap();
    queue.task("job", &1).unwrap().submit().await.unwrap();
    let options = OpenOptions::new(TokioRuntime::shared());
    let store = qo_store::open("memory:replaced", &options).unwrap();
    let other = qo_broker::BrokerEngine::slate(
        store.objects,
        store.clock,
        TokioRuntime::shared(),
        qo_store::client::ClientConfig::default(),
        qo_broker::SlateConfig::default(),
    );
    qo::Engine::close(&other.await.unwrap()).await;
    let submitted = async {
        while let Err(error) = queue.task("job", &2).unwrap().submit().await {
            println!("refused: {error}");
            runtime.sleep(Duration::from_millis(100)).await;
        }
    };
    let limit = Duration::from_mins(1);
    tokio::time::timeout(limit, submitted).await.unwrap();
    let tasks = queue.list(&qo::TaskFilter::default(), None, 10).await;
    assert_eq!(tasks.unwrap().tasks.len(), 2);
    queue.close().await;
    // The next process does not have to wait.
    let next = qo::connect("memory:replaced?engine=slate").await.unwrap();
    next.close().await;
}

#[tokio::test]
async fn a_payload_that_the_store_cannot_hold_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("q.db").display());
    let queue = Connect::to(url).open().await.unwrap();
    let large = "x".repeat(65 * 1024 * 1024);
    let error = queue.task("t", &large).unwrap().submit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    let limit = (64 * 1024 * 1024).to_string();
    assert!(error.to_string().contains(&limit), "{error}");
    let fits = "x".repeat(20 * 1024 * 1024);
    let task = queue.task("t", &fits).unwrap().submit().await.unwrap().task;
    let input = queue.input(&task).await.unwrap();
    assert_eq!(input.size(), fits.len() + 2, "it was written in parts");
}
