//! What the fuzzers of this crate run. Each function takes any bytes, and panics where something does not hold.

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

/// How long, on the queue's clock, a request may take. The longest wait for a claim is far below it.
const PATIENCE_SECONDS: u64 = 900;
/// How often everything that can go on is let go on before a second passes.
const TURNS_PER_SECOND: u32 = 20;

/// What is in the queue when the request comes.
struct Known {
    pending: String,
    running: String,
    lease: String,
    completed: String,
}

/// One request to a server on a queue in memory: a line with method and path, lines of headers, an empty line, the body.
///
/// `{pending}`, `{running}`, `{completed}` stand for the ids of three tasks that are there, and `{lease}` for the second one's lease. Whatever is
/// sent, the server answers within its time and without breaking; a refusal has the form of a problem; and a refused request has
/// changed nothing.
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
        let Some(known) = prepare(&queue).await else {
            return;
        };
        let Some(request) = request(bytes, &known) else {
            return;
        };
        let before = objects(&queue).await;
        let Some((status, content_type, body)) = answer(&queue, &clock, request).await else {
            return;
        };
        if !(400..600).contains(&status) {
            return;
        }
        let text = String::from_utf8_lossy(&body);
        assert!(![500, 502].contains(&status), "it broke: {text}");
        assert_eq!(content_type, PROBLEM_TYPE, "{text}");
        let problem: Option<Problem> = serde_json::from_slice(&body).ok();
        let said = problem.as_ref().map(|problem| problem.status);
        assert_eq!(said, Some(status), "{text}");
        assert_eq!(
            objects(&queue).await,
            before,
            "a refused request left something: {text}"
        );
    });
}

/// Three tasks, one in each state that matters.
async fn prepare(queue: &Queue) -> Option<Known> {
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
    Some(Known {
        pending: third.task.id.to_string(),
        running: second.id.to_string(),
        lease: second.lease_id?.to_string(),
        completed: first.id.to_string(),
    })
}

fn request(bytes: &[u8], known: &Known) -> Option<Request> {
    let filled = String::from_utf8_lossy(bytes)
        .replace("{pending}", &known.pending)
        .replace("{running}", &known.running)
        .replace("{completed}", &known.completed)
        .replace("{lease}", &known.lease);
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

/// The answer, while the clock goes on; nothing, if it is a stream that goes on for ever.
async fn answer(
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
        let is_stream = |sort: &str| sort.starts_with("text/event-stream");
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
        for _ in 0..PATIENCE_SECONDS {
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
            assert!(what.is_empty(), "no answer in {PATIENCE_SECONDS} s: {what}");
            None
        }
    }
}

/// Every object with its bytes. What tells others that something may have happened is left out: it says nothing that is believed.
async fn objects(queue: &Queue) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let Some(store) = queue.store() else {
        return found;
    };
    let client = StoreClient::new(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        Arc::clone(queue.runtime()),
        ClientConfig::default(),
    );
    let Ok(page) = client.page("", None, 1_000).await else {
        return found;
    };
    for entry in page.entries {
        if !entry.key.starts_with("meta/")
            && let Ok(object) = client.get(&entry.key).await
        {
            found.insert(entry.key, object.body.to_vec());
        }
    }
    found
}
