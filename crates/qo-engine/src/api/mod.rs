//! Request and response types of the engines.

mod claim;
mod list;
mod submit;
mod worker;

pub use claim::{ClaimRequest, DueTask};
pub use list::{
    InvalidSearch, ListPosition, NEWEST_CURSOR, QueueStats, SEARCH_MAX_BYTES, SearchText, Stats,
    TaskFilter, TaskOrder, TaskPage, VersionedTask, invalid_cursor,
};
pub use submit::{IdempotencyRequest, SubmitRequest, Submitted, When};
pub use worker::WorkerInfo;
