//! Fuzz targets of the server. Each takes arbitrary bytes and panics if an invariant is violated.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::handler::Handler as _;
use axum::response::Response;
use axum::routing::any_service;
use futures_util::TryStreamExt;
use http::header::{CONTENT_TYPE, HOST};
use qo::testing::{TestClock, memory_queue};
use qo::{ClaimRequest, Queue, SubmitRequest};
use qo_remote::wire::Problem;
use qo_remote::wire::problem::PROBLEM_TYPE;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;

use crate::app::App;
use crate::config::ServerConfig;
use crate::routes;
use crate::tokens::TokenSource;

pub use crate::tokens::fuzz::tokens;

/// How long a request may take on the queue's clock. The longest wait of a claim is far shorter.
const TIMEOUT_SECONDS: u64 = 900;
/// How often the runtime polls all tasks before the clock advances by a second.
const TURNS_PER_SECOND: u32 = 20;

/// The tasks in the queue before the request.
struct PreparedTasks {
    pending: String,
    running: String,
    lease: String,
    completed: String,
}

/// One request to a server on a queue in memory: a line with method and path, lines of headers, an empty line, the body.
///
/// `{pending}`, `{running}` and `{completed}` are replaced by the ids of three tasks, and `{lease}` by the lease of the second one.
/// For any input the server responds in time and without an internal error, an error response is a problem, and a rejected request
/// changes nothing.
pub fn http_request(bytes: &[u8]) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
    else {
        return;
    };
    runtime.block_on(async {
        let Ok((queue, clock)) = memory_queue() else {
            return;
        };
        let Some(tasks) = prepare(&queue).await else {
            return;
        };
        let Some(request) = request(bytes, &tasks) else {
            return;
        };
        let before = objects(&queue).await;
        let Some((status, content_type, body)) = respond(&queue, &clock, request).await else {
            return;
        };
        if !(400..600).contains(&status) {
            return;
        }
        let text = String::from_utf8_lossy(&body);
        assert!(![500, 502].contains(&status), "internal error: {text}");
        assert_eq!(content_type, PROBLEM_TYPE, "{text}");
        let problem: Option<Problem> = serde_json::from_slice(&body).ok();
        let problem_status = problem.as_ref().map(|problem| problem.status);
        assert_eq!(problem_status, Some(status), "{text}");
        assert_eq!(
            objects(&queue).await,
            before,
            "a rejected request changed the store: {text}"
        );
    });
}

/// Submits three tasks: a pending, a running and a completed one.
async fn prepare(queue: &Queue) -> Option<PreparedTasks> {
    let task_type: qo::TaskType = "send_email".parse().ok()?;
    let worker: qo::WorkerId = "w1".parse().ok()?;
    let submit = || SubmitRequest::new(task_type.clone(), qo::Json::null());
    let claim = ClaimRequest::new(worker, Vec::new());
    queue.submit(submit()).await.ok()?;
    let first = queue.claim(&claim).await.ok()?.pop()?;
    queue.complete(first.id, first.lease_id?, None).await.ok()?;
    queue.submit(submit()).await.ok()?;
    let second = queue.claim(&claim).await.ok()?.pop()?;
    let third = queue.submit(submit()).await.ok()?;
    Some(PreparedTasks {
        pending: third.task.id.to_string(),
        running: second.id.to_string(),
        lease: second.lease_id?.to_string(),
        completed: first.id.to_string(),
    })
}

fn request(bytes: &[u8], tasks: &PreparedTasks) -> Option<Request> {
    let filled = String::from_utf8_lossy(bytes)
        .replace("{pending}", &tasks.pending)
        .replace("{running}", &tasks.running)
        .replace("{completed}", &tasks.completed)
        .replace("{lease}", &tasks.lease);
    let (head, body) = filled.split_once("\n\n").unwrap_or((&filled, ""));
    let mut lines = head.lines();
    let (method, path) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(path);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        request = request.header(name, value.trim());
    }
    let mut request = request.body(Body::from(body.to_owned())).ok()?;
    let headers = request.headers_mut();
    if !headers.contains_key(HOST) {
        headers.insert(HOST, http::HeaderValue::from_static("localhost"));
    }
    if !headers.contains_key(CONTENT_TYPE) && !body.is_empty() {
        headers.insert(
            CONTENT_TYPE,
            http::HeaderValue::from_static("application/json"),
        );
    }
    Some(request)
}

/// The response, while the clock advances. `None` if it is an endless stream.
async fn respond(
    queue: &Queue,
    clock: &TestClock,
    request: Request,
) -> Option<(u16, String, Vec<u8>)> {
    let config = ServerConfig::new("127.0.0.1:0".parse().ok()?);
    let app = App::new(queue.clone(), &config, TokenSource::Open);
    let service = any_service(routes::router(&app));
    let what = format!("{} {}", request.method(), request.uri());
    let response = async {
        let response: Response = service.call(request, ()).await;
        let status = response.status().as_u16();
        let content_type = response.headers().get(CONTENT_TYPE).cloned();
        let content_type = content_type.and_then(|value| value.to_str().map(str::to_owned).ok());
        let is_stream = |text: &str| text.starts_with("text/event-stream");
        if content_type.as_deref().is_some_and(is_stream) {
            return None;
        }
        let body = response.into_body().into_data_stream();
        let body = body
            .try_fold(Vec::new(), async |mut body, chunk| {
                body.extend_from_slice(&chunk);
                Ok(body)
            })
            .await
            .ok()?;
        Some((status, content_type.unwrap_or_default(), body))
    };
    let time = async {
        for _ in 0..TIMEOUT_SECONDS {
            for _ in 0..TURNS_PER_SECOND {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_secs(1));
        }
    };
    tokio::select! {
        biased;
        response = response => response,
        () = time => {
            assert!(what.is_empty(), "no response in {TIMEOUT_SECONDS} s: {what}");
            None
        }
    }
}

/// All objects with their bytes, except those under `meta/`, which are only hints.
async fn objects(queue: &Queue) -> BTreeMap<String, Vec<u8>> {
    let mut objects = BTreeMap::new();
    let Some(store) = queue.store() else {
        return objects;
    };
    let client = StoreClient::new(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        Arc::clone(queue.runtime()),
        ClientConfig::default(),
    );
    let Ok(page) = client.page("", None, 1_000).await else {
        return objects;
    };
    for entry in page.entries {
        if !entry.key.starts_with("meta/")
            && let Ok(object) = client.get(&entry.key).await
        {
            objects.insert(entry.key, object.body.to_vec());
        }
    }
    objects
}
