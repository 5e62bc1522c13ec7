//! `qo serve` in broker mode, as processes: takeover, handover, kills under load, and a leader that wakes up too late.
//!
//! Clients know only the URL of the store, and find the broker through it.

pub(crate) mod clients;
mod cut_off;
mod killed;
mod paused;
mod process;
mod sharing;
mod takeover;
mod tls;

use std::time::Duration;

use qo::{Json, SubmitRequest};
use qo_store::runtime::{RuntimeExt, TokioRuntime};

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// A task with an id, so that a test knows the task whatever the reply to its submit.
pub(crate) fn task() -> SubmitRequest {
    SubmitRequest {
        id: Some(TokioRuntime::shared().new_task_id()),
        ..SubmitRequest::new("work".parse().unwrap(), Json::null())
    }
}
