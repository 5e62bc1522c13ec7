//! A leader that is suspended during its takeover serves no requests when it resumes.

use std::collections::BTreeMap;

use qo_store::runtime::TokioRuntime;
use rustix::process::Signal;
use serde_json::Value;

use super::process::{BrokerProcess, get, http};
use super::task;
use crate::e2e::store::TestStore;

/// Number of requests of each kind that are pending when the process resumes.
const PENDING_REQUESTS: usize = 4;
/// How long requests are sent after that.
const REQUEST_SECONDS: u64 = 5;

/// On a real S3 server: on SQLite, a process suspended during a write would block all other writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_leader_serves_nothing_when_it_resumes() {
    let store = TestStore::seaweedfs().with_engine("slate");
    let runtime = TokioRuntime::shared();
    let suspended = BrokerProcess::leader(&store, "suspended");
    let mut successor = BrokerProcess::standby(&store, "successor");
    let queue = store.connection().open().await.unwrap();
    let first = queue.submit(task()).await.unwrap().task.id;

    suspended.signal(Signal::STOP);
    successor.wait_for_log("serving as the leader");
    // The client notices that its server does not respond, and uses the next one.
    let second = queue.submit(task()).await.unwrap().task.id;

    // These requests are the first ones that the process sees when it resumes.
    let mut responses = tokio::task::JoinSet::new();
    let mut submitted = Vec::new();
    for _ in 0..PENDING_REQUESTS {
        let id = task().id.unwrap();
        submitted.push(id);
        let submit = http()
            .post(format!("{}/v1/tasks", suspended.url))
            .header("content-type", "application/json")
            .body(format!(r#"{{"task_type":"work","id":"{id}"}}"#));
        for request in [
            submit,
            http().get(format!("{}/v1/tasks/{first}", suspended.url)),
            http().get(format!("{}/v1/stats", suspended.url)),
            http()
                .post(format!("{}/v1/claim", suspended.url))
                .header("content-type", "application/json")
                .body(r#"{"worker_id":"w"}"#),
        ] {
            responses.spawn(async move {
                let response = request.send().await.unwrap();
                (response.status().as_u16(), response.text().await.unwrap())
            });
        }
    }
    // They have arrived once a later request to another server has been answered.
    queue.get(second).await.unwrap();
    suspended.signal(Signal::CONT);
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    let mut check = |(status, text): (u16, String)| {
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        let code = problem["code"].as_str().unwrap_or("none").to_owned();
        assert_eq!((status, code.as_str()), (503, "not_leader"), "{text}");
        *codes.entry(code).or_default() += 1;
    };
    while let Some(response) = responses.join_next().await {
        check(response.unwrap());
    }
    let until = runtime.monotonic() + std::time::Duration::from_secs(REQUEST_SECONDS);
    while runtime.monotonic() < until {
        check(get(format!("{}/v1/tasks/{first}", suspended.url)).await);
    }
    println!("responses of the old leader: {codes:?}");
    suspended.wait_for_log("standing down");
    suspended.wait_for_log("standing by");
    let (status, text) = get(format!("{}/readyz", suspended.url)).await;
    assert_eq!(status, 503);
    assert!(text.contains("standby"), "{text}");
    for id in submitted {
        let error = queue.get(id).await.unwrap_err();
        assert_eq!(
            error.kind(),
            qo::ErrorKind::NotFound,
            "the task was written"
        );
    }

    // It is now an ordinary standby and sees everything that its successor acknowledged.
    successor.kill();
    let third = queue.submit(task()).await.unwrap().task.id;
    for id in [first, second, third] {
        assert_eq!(queue.get(id).await.unwrap().status, qo::Status::Pending);
    }
}
