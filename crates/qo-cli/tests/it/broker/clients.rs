//! Clients that generate load and record their requests and the results.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qo::{ClaimRequest, Connect, Json, LeaseId, Queue, Task, TaskId};

use super::task;

/// Leases are short, so that tasks whose claim response was lost are recovered soon.
const LEASE_MS: u64 = 4_000;
/// Maximum number of tasks per claim.
const CLAIM_MAX: usize = 32;

/// Requests of clients and their results.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) asked: BTreeSet<TaskId>,
    pub(super) acknowledged: Vec<TaskId>,
    /// Task, attempt, lease.
    pub(super) handed_out: Vec<(TaskId, u32, LeaseId)>,
    /// Task, attempt, output.
    pub(super) completed: Vec<(TaskId, u32, String)>,
    /// Task and attempt of completions that were rejected because the lease was lost.
    pub(super) refused: Vec<(TaskId, u32)>,
    /// Calls that failed after all retries.
    pub(super) given_up: usize,
}

impl Notes {
    pub(super) fn add(&mut self, other: Self) {
        self.asked.extend(other.asked);
        self.acknowledged.extend(other.acknowledged);
        self.handed_out.extend(other.handed_out);
        self.completed.extend(other.completed);
        self.refused.extend(other.refused);
        self.given_up += other.given_up;
    }
}

/// Stop flags for clients.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// No more submits.
    pub(super) submitted: AtomicBool,
    /// No more work.
    pub(super) drained: AtomicBool,
}

/// Submits tasks until the flag is set.
pub(super) async fn submitter(connect: Connect, signals: Arc<Signals>) -> Notes {
    let queue = connect.open().await.unwrap();
    let mut notes = Notes::default();
    while !signals.submitted.load(Ordering::Relaxed) {
        let request = task();
        notes.asked.extend(request.id);
        match queue.submit(request).await {
            Ok(submitted) => notes.acknowledged.push(submitted.task.id),
            Err(_) => notes.given_up += 1,
        }
    }
    notes
}

/// Claims and completes tasks until the flag is set.
pub(super) async fn worker(connect: Connect, name: &str, signals: Arc<Signals>) -> Notes {
    let queue = connect.open().await.unwrap();
    let mut notes = Notes::default();
    let request = ClaimRequest {
        max: CLAIM_MAX,
        wait_ms: 1_000,
        lease_ms: Some(LEASE_MS),
        ..ClaimRequest::new(name.parse().unwrap(), vec!["work".parse().unwrap()])
    };
    while !signals.drained.load(Ordering::Relaxed) {
        let Ok(tasks) = queue.claim(&request).await else {
            notes.given_up += 1;
            continue;
        };
        for task in &tasks {
            let lease = task.lease_id.unwrap();
            notes.handed_out.push((task.id, task.attempt, lease));
        }
        let ends = tasks.iter().map(|task| complete(&queue, task, name));
        for (task, end) in tasks.iter().zip(futures_util::future::join_all(ends).await) {
            match end {
                Ok(output) => notes.completed.push((task.id, task.attempt, output)),
                Err(error) if error.kind() == qo::ErrorKind::LeaseLost => {
                    notes.refused.push((task.id, task.attempt));
                }
                Err(_) => notes.given_up += 1,
            }
        }
    }
    notes
}

async fn complete(queue: &Queue, task: &Task, name: &str) -> Result<String, qo::Error> {
    let output = format!("\"{name}, attempt {}\"", task.attempt);
    let json = Json::parse(output.clone()).unwrap();
    let lease = task.lease_id.unwrap();
    queue.complete(task.id, lease, Some(json)).await?;
    Ok(output)
}
