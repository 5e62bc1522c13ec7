//! Request and response types of the engines.

mod claim;
mod list;
mod submit;
mod worker;

pub use claim::{ClaimRequest, DueTask};
pub use list::{QueueStats, Stats, TaskFilter, TaskPage, VersionedTask};
pub use submit::{IdempotencyRequest, SubmitRequest, Submitted, When};
pub use worker::WorkerInfo;
