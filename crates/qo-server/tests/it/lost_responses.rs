//! Servers that stop, and responses that are lost on the way to the remote engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qo::{ClaimRequest, Engine, Failure, FailureKind, Json, Status, SubmitRequest};
use qo_fixtures::until;
use qo_remote::RemoteConfig;
use qo_remote::RemoteEngine;
use qo_store::runtime::TokioRuntime;
use qo_store::wrap::layer::LayeredStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bodies::HeldReads;
use crate::support::{config, serve};

/// A proxy that drops the given number of responses.
struct Lossy {
    url: String,
    to_lose: Arc<AtomicUsize>,
}

/// What the proxy sends instead of a dropped response; empty to close the connection.
type Replacement = &'static [u8];
const NOTHING: Replacement = b"";
const ERROR_PAGE: Replacement =
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\nsorry";

impl Lossy {
    async fn before(server: &str, replacement: Replacement) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let to_lose = Arc::new(AtomicUsize::new(0));
        let (server, losing) = (server.to_owned(), Arc::clone(&to_lose));
        tokio::task::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, losing) = (server.clone(), Arc::clone(&losing));
                tokio::task::spawn(async move {
                    let server = TcpStream::connect(server).await.unwrap();
                    pass(client, server, &losing, replacement).await;
                });
            }
        });
        Self { url, to_lose }
    }

    fn lose(&self, responses: usize) {
        self.to_lose.store(responses, Ordering::SeqCst);
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    losing: &AtomicUsize,
    replacement: Replacement,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let forward = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    };
    let back = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match from_server.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    // The server has replied, so the request took effect. The response is dropped.
                    let lost = losing
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                            left.checked_sub(1)
                        })
                        .is_ok();
                    if lost {
                        let _ = to_client.write_all(replacement).await;
                    }
                    if lost || to_client.write_all(&buffer[..length]).await.is_err() {
                        break;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = forward => {}
        () = back => {}
    }
}

fn remote(urls: &str) -> RemoteEngine {
    RemoteEngine::new(RemoteConfig::parse(urls).unwrap(), TokioRuntime::shared()).unwrap()
}

fn request() -> SubmitRequest {
    SubmitRequest::new("t".parse().unwrap(), Json::null())
}

fn claim_request() -> ClaimRequest {
    ClaimRequest {
        wait_ms: 20_000,
        ..ClaimRequest::new("w".parse().unwrap(), vec![])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_responses_cause_no_duplicates() {
    let server = serve(config()).await;
    let lossy = Lossy::before(server.authority(), NOTHING).await;
    let engine = remote(&lossy.url);

    lossy.lose(2);
    let submitted = engine.submit(request()).await.unwrap();
    assert!(!submitted.duplicate, "a retry is not a duplicate");
    let filter = qo::TaskFilter::default();
    assert_eq!(
        server
            .engine
            .list(qo::TaskQuery::first(&filter, 10))
            .await
            .unwrap()
            .tasks
            .len(),
        1
    );

    lossy.lose(2);
    let tasks = engine.claim(&claim_request()).await.unwrap();
    assert_eq!(tasks.len(), 1);
    assert_eq!(
        (tasks[0].id, tasks[0].attempt),
        (submitted.task.id, 1),
        "claimed once"
    );
    let lease = tasks[0].lease_id.unwrap();

    lossy.lose(1);
    engine.renew(tasks[0].id, lease, None).await.unwrap();
    lossy.lose(2);
    let output = Some(Json::parse("\"done\"").unwrap());
    let completed = engine.complete(tasks[0].id, lease, output).await.unwrap();
    assert_eq!(completed.status, Status::Completed);
    // Without a lost response, a second completion is rejected.
    let refused = engine.complete(tasks[0].id, lease, None).await.unwrap_err();
    assert!(refused.is_lease_lost());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_of_an_attempt_is_recognised_after_a_lost_response() {
    let server = serve(config()).await;
    let lossy = Lossy::before(server.authority(), NOTHING).await;
    let engine = remote(&lossy.url);
    let attempt = async || {
        engine.submit(request()).await.unwrap();
        let task = engine.claim(&claim_request()).await.unwrap().pop().unwrap();
        (task.id, task.lease_id.unwrap())
    };
    let failure = || Failure {
        kind: FailureKind::Permanent,
        // Longer than the history keeps.
        error: "it broke ".repeat(200).into(),
    };

    let (id, lease) = attempt().await;
    lossy.lose(1);
    let failed = engine.fail(id, lease, failure()).await.unwrap();
    assert_eq!(failed.status, Status::Failed);
    // Without a lost response, a second end is rejected.
    assert!(
        engine
            .fail(id, lease, failure())
            .await
            .unwrap_err()
            .is_lease_lost()
    );

    let (id, lease) = attempt().await;
    lossy.lose(1);
    let snoozed = engine.snooze(id, lease, 3_600_000).await.unwrap();
    assert_eq!(snoozed.status, Status::Pending);

    let (id, lease) = attempt().await;
    lossy.lose(1);
    let released = engine.release(id, lease).await.unwrap();
    assert_eq!((released.id, released.status), (id, Status::Pending));
    // An end is recognised even after a later change.
    let task = engine.claim(&claim_request()).await.unwrap().pop().unwrap();
    assert_eq!(task.id, id);
    let lease = task.lease_id.unwrap();

    // The end of another caller is not: here the attempt was released before its worker completes it.
    server.engine.release(id, lease).await.unwrap();
    lossy.lose(1);
    let error = engine.complete(id, lease, None).await.unwrap_err();
    assert!(error.is_lease_lost(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_may_repeat_an_end_with_an_unknown_outcome() {
    let server = serve(config()).await;
    let lossy = Lossy::before(server.authority(), NOTHING).await;
    let mut config = RemoteConfig::parse(&lossy.url).unwrap();
    config.retry_for = std::time::Duration::ZERO;
    let engine = RemoteEngine::new(config, TokioRuntime::shared()).unwrap();
    engine.submit(request()).await.unwrap();
    let task = engine.claim(&claim_request()).await.unwrap().pop().unwrap();
    let lease = task.lease_id.unwrap();
    lossy.lose(1);
    let doubt = engine.complete(task.id, lease, None).await.unwrap_err();
    assert!(!doubt.is_lease_lost(), "{doubt}");
    let done = engine.complete(task.id, lease, None).await.unwrap();
    assert_eq!(done.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_tried_in_order() {
    let mut first = serve(config()).await;
    let second = serve(config()).await;
    let urls = format!("http://127.0.0.1:9,{},{}", first.url, second.url);
    let engine = remote(&urls);
    let task = engine.submit(request()).await.unwrap().task;
    assert_eq!(first.engine.get(task.id).await.unwrap().id, task.id);
    first.stop();
    first.ended.take().unwrap().await.unwrap();
    let task = engine.submit(request()).await.unwrap().task;
    assert_eq!(second.engine.get(task.id).await.unwrap().id, task.id);
}

#[tokio::test]
async fn an_unreachable_server_is_named_in_the_error() {
    let mut config = RemoteConfig::parse("http://127.0.0.1:9").unwrap();
    config.retry_for = std::time::Duration::from_millis(200);
    let engine = RemoteEngine::new(config, TokioRuntime::shared()).unwrap();
    let error = engine.submit(request()).await.unwrap_err().to_string();
    assert!(
        error.contains("127.0.0.1:9") && !error.contains("may still take effect"),
        "{error}"
    );
}

#[tokio::test]
async fn a_store_url_can_name_a_server() {
    let server = serve(config()).await;
    let queue = qo::connect(&server.url).await.unwrap();
    let submitted = queue.task("t", &1).unwrap().submit().await.unwrap();
    assert_eq!(
        server.engine.get(submitted.task.id).await.unwrap().id,
        submitted.task.id
    );
    let error = qo::connect("http://u:p@127.0.0.1").await.unwrap_err();
    assert_eq!(error.kind(), qo::ErrorKind::BadInput);
    assert!(error.to_string().contains("QO_TOKEN"), "{error}");
}

#[tokio::test]
async fn a_wrong_token_is_denied() {
    let mut config = config();
    config.auth = qo_server::Auth::given(vec![
        crate::access::token(&[qo_server::tokens::Scope::Read]).record,
    ]);
    let server = serve(config).await;
    let options = qo::OpenOptions::new(TokioRuntime::shared()).with_var("QO_TOKEN", "qo_wrong");
    let error = qo::Connect::to(&server.url)
        .options(options)
        .open()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), qo::ErrorKind::Denied);
    assert!(!error.to_string().contains("qo_wrong"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_page_of_a_proxy_is_a_lost_response() {
    let server = serve(config()).await;
    let lossy = Lossy::before(server.authority(), ERROR_PAGE).await;
    let engine = remote(&lossy.url);
    lossy.lose(1);
    let submitted = engine.submit(request()).await.unwrap();
    assert!(!submitted.duplicate, "a retry is not a duplicate");
    lossy.lose(1);
    let tasks = engine.claim(&claim_request()).await.unwrap();
    assert_eq!((tasks[0].id, tasks[0].attempt), (submitted.task.id, 1));
    lossy.lose(1);
    let lease = tasks[0].lease_id.unwrap();
    let task = engine.complete(tasks[0].id, lease, None).await.unwrap();
    assert_eq!((task.status, task.attempt), (Status::Completed, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_being_made_when_the_server_stops_is_handed_out_or_taken_back() {
    for leaves in [false, true] {
        let mut store = crate::support::memory();
        let reads = HeldReads::new(Arc::clone(&store.objects), "tasks/");
        store.objects = Arc::new(LayeredStore(reads.clone()));
        let mut server = crate::support::serve_store(store, config()).await;
        let id = server.engine.submit(request()).await.unwrap().task.id;
        reads.closed.store(true, Ordering::SeqCst);
        let claim = serde_json::json!({"worker_id": "w", "types": ["t"], "wait_ms": 20_000});
        let (url, client) = (server.url.clone(), crate::support::plain_client());
        let response = tokio::task::spawn(async move {
            let request = client.post(format!("{url}/v1/claim"));
            let request = request.header("content-type", "application/json");
            let response = request.body(claim.to_string()).send().await.unwrap();
            response.text().await.unwrap()
        });
        until("the claim reads the task", async || {
            (reads.held.load(Ordering::SeqCst) > 0).then_some(())
        })
        .await;
        if leaves {
            response.abort();
        }
        server.stop();
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        reads.open();
        server.ended.take().unwrap().await.unwrap();
        let handed_out = response
            .await
            .is_ok_and(|body| body.contains(&id.to_string()));
        let task = server.engine.get(id).await.unwrap();
        let expected = if handed_out {
            Status::Running
        } else {
            Status::Pending
        };
        assert_eq!(task.status, expected, "handed out: {handed_out}");
        assert_eq!(handed_out, !leaves);
    }
}
