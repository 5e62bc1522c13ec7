//! `qo serve` in broker mode: takeover, handover, crashes under load, and a leader that resumes too late.
//!
//! Clients know only the store URL and find the broker through it.

mod checker;
mod clients;
mod killed;
mod paused;
mod process;
mod sharing;
mod takeover;

use std::time::Duration;

use qo::{Json, SubmitRequest};
use qo_store::runtime::{RuntimeExt, TokioRuntime};

/// Time limit for any step on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// A request with an explicit id, so that the test knows it even if the submit fails.
fn task() -> SubmitRequest {
    SubmitRequest {
        id: Some(TokioRuntime::shared().new_task_id()),
        ..SubmitRequest::new("work".parse().unwrap(), Json::null())
    }
}
