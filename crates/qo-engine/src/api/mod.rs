//! Request and response types of the engines.

mod claim;
mod list;
mod submit;
mod waiting;
mod worker;

pub use claim::{ClaimRequest, DueTask};
pub use list::{QueueStats, Stats, TaskFilter, TaskPage, VersionedTask};
pub use submit::{IdempotencyRequest, SubmitRequest, Submitted, When};
pub use waiting::WaitReason;
pub use worker::WorkerInfo;
