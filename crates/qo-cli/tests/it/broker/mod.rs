//! `qo serve` in broker mode, as processes: taking over, handing over, dying under load, and waking up too late.
//!
//! Clients know only the URL of the store, and find the broker through it.

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

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// A task with an id of its own, so that a test knows it whatever comes of its submit.
fn task() -> SubmitRequest {
    SubmitRequest {
        id: Some(TokioRuntime::shared().new_task_id()),
        ..SubmitRequest::new("work".parse().unwrap(), Json::null())
    }
}
