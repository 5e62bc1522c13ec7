//! The words of every engine: what is asked, and what is answered.

mod claim;
mod list;
mod submit;
mod worker;

pub use claim::ClaimRequest;
pub use list::{QueueStats, Stats, TaskFilter, TaskPage, VersionedTask};
pub use submit::{IdempotencyRequest, SubmitRequest, Submitted, When};
pub use worker::WorkerInfo;
