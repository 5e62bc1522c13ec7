//! The HTTP layer: error responses are preserved, nothing is sent twice, and the store's clock is observed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::sync::Arc;

use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use qo_store::response::{self, ResponseError};
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::{OpenOptions, Store, open};
use tokio::net::TcpListener;

use crate::fake_server::{FakeServer, Response};

pub(crate) fn s3_options() -> OpenOptions {
    OpenOptions::new(TokioRuntime::shared())
        .with_var("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        .with_var("AWS_SECRET_ACCESS_KEY", "hidden-secret")
}

fn s3(server: &FakeServer) -> Store {
    open(
        &format!("s3://bucket?endpoint={}", server.endpoint),
        &s3_options(),
    )
    .unwrap()
}

fn status(error: &Error) -> (u16, Option<&str>) {
    match response::find(error) {
        Some(ResponseError::Status { status, code, .. }) => (*status, code.as_deref()),
        other => panic!("expected a status, found {other:?} in {error:?}"),
    }
}

async fn swap(store: &dyn ObjectStore) -> Error {
    let mode = PutMode::Update(UpdateVersion {
        e_tag: Some("\"tag\"".to_owned()),
        version: None,
    });
    store
        .put_opts(&Path::from("key"), "x".into(), mode.into())
        .await
        .unwrap_err()
}

async fn create(store: &dyn ObjectStore) -> Error {
    store
        .put_opts(&Path::from("key"), "x".into(), PutMode::Create.into())
        .await
        .unwrap_err()
}

#[tokio::test]
async fn an_error_response_keeps_its_status_and_is_not_retried() {
    for (code, name) in [
        (400, "ExpiredToken"),
        (401, "Unauthorized"),
        (403, "AccessDenied"),
        (408, "RequestTimeout"),
        (409, "ConditionalRequestConflict"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (501, "NotImplemented"),
        (503, "SlowDown"),
        (301, "PermanentRedirect"),
    ] {
        let server = FakeServer::scripted(vec![Response::error(code, name); 3]).await;
        let store = s3(&server);
        let objects = &*store.objects;
        assert_eq!(status(&create(objects).await), (code, Some(name)));
        assert_eq!(server.requests().len(), 1, "a create is sent once");
        assert_eq!(status(&swap(objects).await), (code, Some(name)));
        assert_eq!(server.requests().len(), 2, "a swap is sent once");
        let read = objects.get(&Path::from("key")).await.unwrap_err();
        assert_eq!(status(&read), (code, Some(name)));
        assert_eq!(server.requests().len(), 3, "a read is sent once");
    }
}

#[tokio::test]
async fn unambiguous_responses_pass() {
    let server = FakeServer::scripted(vec![
        Response::error(412, "PreconditionFailed"),
        Response::error(412, "PreconditionFailed"),
        Response::error(404, "NoSuchKey"),
        Response::error(404, "NoSuchBucket"),
    ])
    .await;
    let store = s3(&server);
    let objects = &*store.objects;
    assert!(matches!(create(objects).await, Error::AlreadyExists { .. }));
    assert!(matches!(swap(objects).await, Error::Precondition { .. }));
    let key = Path::from("key");
    assert!(matches!(
        objects.get(&key).await,
        Err(Error::NotFound { .. })
    ));
    // A missing bucket is not a missing object.
    let error = objects.get(&key).await.unwrap_err();
    assert_eq!(status(&error), (404, Some("NoSuchBucket")));
}

#[tokio::test]
async fn a_huge_error_response_is_not_read_to_its_end() {
    let mut body = b"<Error><Code>SlowDown</Code><Message>".to_vec();
    body.resize(10 * 1024 * 1024, b'x');
    let server = FakeServer::scripted(vec![Response::new(503).body(body)]).await;
    let error = create(&*s3(&server).objects).await;
    assert_eq!(status(&error), (503, None));
}

#[tokio::test]
async fn a_missing_response_reports_whether_the_request_may_have_been_sent() {
    let server = FakeServer::scripted(vec![Response::hang_up()]).await;
    let error = create(&*s3(&server).objects).await;
    let Some(ResponseError::NoResponse { detail }) = response::find(&error) else {
        panic!("expected no response, found {error:?}");
    };
    assert!(
        detail.ends_with("; the request may have been applied"),
        "{detail}"
    );
    assert_eq!(server.requests().len(), 1);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let store = open(
        &format!("s3://bucket?endpoint=http://{address}"),
        &s3_options(),
    )
    .unwrap();
    let error = create(&*store.objects).await;
    let Some(ResponseError::NoResponse { detail }) = response::find(&error) else {
        panic!("expected no response, found {error:?}");
    };
    assert!(
        detail.starts_with("could not connect (") && detail.ends_with("; the request was not sent"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_request_times_out() {
    // Connections are accepted, but nothing reads from them.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "s3://bucket?endpoint=http://{}",
        listener.local_addr().unwrap()
    );
    let store = open(&url, &s3_options().with_var("AWS_TIMEOUT", "200ms")).unwrap();
    let error = create(&*store.objects).await;
    let Some(ResponseError::NoResponse { detail }) = response::find(&error) else {
        panic!("expected no response, found {error:?}");
    };
    assert!(
        detail.starts_with("timed out (")
            && detail.ends_with("; the request may have been applied"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_server_without_a_certificate_is_rejected() {
    let server = FakeServer::scripted(Vec::new()).await;
    let endpoint = server.endpoint.replace("http:", "https:");
    let store = open(&format!("s3://bucket?endpoint={endpoint}"), &s3_options()).unwrap();
    let error = create(&*store.objects).await;
    let Some(ResponseError::NoResponse { detail }) = response::find(&error) else {
        panic!("expected no response, found {error:?}");
    };
    assert!(detail.ends_with("; the request was not sent"), "{detail}");
    assert_eq!(server.requests().len(), 0);
}

fn date(runtime: &Arc<dyn Runtime>, ahead_seconds: i64) -> String {
    let millis = runtime.now().as_millis() + ahead_seconds * 1000;
    let date = chrono::DateTime::from_timestamp_millis(millis).unwrap();
    date.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[tokio::test]
async fn the_date_of_a_response_updates_the_clock() {
    let runtime = TokioRuntime::shared();
    let server = FakeServer::start({
        let runtime = Arc::clone(&runtime);
        move |_| Response::error(404, "NoSuchKey").header("date", date(&runtime, 90))
    })
    .await;
    let store = s3(&server);
    assert_eq!(store.clock.uncertainty_ms(), None);
    let _ = store.objects.get(&Path::from("key")).await;
    let offset_ms = store.clock.offset_ms();
    assert!((88_000..=92_000).contains(&offset_ms), "{offset_ms}");
}

#[tokio::test]
async fn a_cached_or_invalid_date_is_ignored() {
    let runtime = TokioRuntime::shared();
    let server = FakeServer::scripted(vec![
        Response::error(404, "NoSuchKey")
            .header("date", date(&runtime, 90))
            .header("age", "7"),
        Response::error(404, "NoSuchKey").header("date", "soon"),
        Response::error(404, "NoSuchKey"),
    ])
    .await;
    let store = s3(&server);
    for _ in 0..3 {
        let _ = store.objects.get(&Path::from("key")).await;
    }
    assert_eq!(store.clock.uncertainty_ms(), None);
}

#[tokio::test]
async fn a_credential_endpoint_is_not_the_store() {
    // The container's endpoint is also on the loopback interface, on another port. Its date must not count, and
    // its error is not a response of the store.
    let runtime = TokioRuntime::shared();
    let agent = FakeServer::start({
        let runtime = Arc::clone(&runtime);
        move |_| Response::new(403).header("date", date(&runtime, 500))
    })
    .await;
    let server = FakeServer::scripted(Vec::new()).await;
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "token").unwrap();
    let options = OpenOptions::new(runtime)
        .with_var("AWS_CONTAINER_CREDENTIALS_FULL_URI", &agent.endpoint)
        .with_var(
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            token.to_str().unwrap(),
        );
    let store = open(
        &format!("s3://bucket?endpoint={}", server.endpoint),
        &options,
    )
    .unwrap();
    let error = store.objects.get(&Path::from("key")).await.unwrap_err();
    assert_eq!(response::find(&error), None, "{error:?}");
    assert_eq!(agent.requests().len(), 1);
    assert!(agent.requests()[0].header("authorization").is_some());
    assert_eq!(server.requests().len(), 0);
    assert_eq!(store.clock.uncertainty_ms(), None);
}
