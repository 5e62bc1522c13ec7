//! Clients that keep a broker busy, and record their calls and the replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qo::{
    ClaimRequest, Connect, Json, OnFailure, OrderingRule, Queue, Status, SubmitRequest, Task,
};
use qo_check::{ClientLog, CompletedAttempt, FinalState, StartedAttempt, Submission};
use qo_store::runtime::TokioRuntime;

use super::task;

/// Leases are short, so that tasks whose claim got no reply come back soon.
const LEASE_MS: u64 = 4_000;
/// The most tasks that one claim takes.
const CLAIM_MAX: usize = 32;
/// The pause between two submits with one ordering key.
const ORDERED_PAUSE: Duration = Duration::from_millis(150);

/// The signals that stop clients.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// No more submits.
    pub(crate) submitted: AtomicBool,
    /// No more work.
    pub(crate) drained: AtomicBool,
}

/// Expects that all tasks are completed, and that nothing in what the clients saw contradicts them.
pub(crate) fn expect_no_breach(tasks: &[Task], log: &ClientLog) {
    let breaches = FinalState {
        tasks,
        log,
        ends: &[Status::Completed],
        has_one_clock: true,
        knows_completions: true,
    }
    .check();
    assert!(breaches.is_empty(), "{}:\n{breaches}", breaches.0.len());
}

/// Submits until the signal.
pub(crate) async fn submitter(connect: Connect, signals: Arc<Signals>) -> ClientLog {
    let queue = connect.open().await.unwrap();
    let mut log = ClientLog::default();
    while !signals.submitted.load(Ordering::Relaxed) {
        submit(&queue, task(), &mut log).await;
    }
    log
}

/// Submits tasks with an ordering key until the signal, one after the other. They run one at a time, so it takes pauses.
pub(crate) async fn ordered_submitter(
    connect: Connect,
    key: &str,
    signals: Arc<Signals>,
) -> ClientLog {
    let queue = connect.open().await.unwrap();
    let mut log = ClientLog::default();
    while !signals.submitted.load(Ordering::Relaxed) {
        let mut request = task();
        request.ordering = Some(OrderingRule {
            key: key.parse().unwrap(),
            on_failure: OnFailure::Continue,
        });
        // In a queue with several groups, the id belongs to the group of the key.
        let route = request.route().unwrap();
        request.id = request.id.map(|id| id.with_route(route));
        submit(&queue, request, &mut log).await;
        TokioRuntime::shared().sleep(ORDERED_PAUSE).await;
    }
    log
}

async fn submit(queue: &Queue, request: SubmitRequest, log: &mut ClientLog) {
    let mut submission = Submission {
        id: request.id,
        key: None,
        input: request.input.as_str().to_owned(),
        acknowledged: Vec::new(),
    };
    match queue.submit(request).await {
        Ok(submitted) => submission.acknowledged.push(submitted.task.id),
        // The call was retried for its whole time.
        Err(error) => eprintln!("a submit failed: {error}"),
    }
    log.submissions.push(submission);
}

/// Claims and completes until the signal.
pub(crate) async fn worker(connect: Connect, name: &str, signals: Arc<Signals>) -> ClientLog {
    let queue = connect.open().await.unwrap();
    let mut log = ClientLog::default();
    let request = ClaimRequest {
        max: CLAIM_MAX,
        wait_ms: 1_000,
        lease_ms: Some(LEASE_MS),
        ..ClaimRequest::new(name.parse().unwrap(), vec!["work".parse().unwrap()])
    };
    while !signals.drained.load(Ordering::Relaxed) {
        let Ok(tasks) = queue.claim(&request).await else {
            continue;
        };
        for task in &tasks {
            log.started.push(StartedAttempt {
                task: task.id,
                number: task.attempt,
                worker: name.to_owned(),
            });
        }
        let ends = tasks.iter().map(|task| complete(&queue, task, name));
        for (task, end) in tasks.iter().zip(futures_util::future::join_all(ends).await) {
            match end {
                Ok(output) => log.completed.push(CompletedAttempt {
                    task: task.id,
                    number: task.attempt,
                    output,
                }),
                Err(error) if error.kind() == qo::ErrorKind::LeaseLost => {
                    log.refused.push((task.id, task.attempt));
                }
                Err(_) => log.unknown.push((task.id, task.attempt)),
            }
        }
    }
    log
}

async fn complete(queue: &Queue, task: &Task, name: &str) -> Result<String, qo::Error> {
    let output = format!("\"{name}, attempt {}\"", task.attempt);
    let json = Json::parse(output.clone()).unwrap();
    let lease = task.lease_id.unwrap();
    queue.complete(task.id, lease, Some(json)).await?;
    Ok(output)
}
