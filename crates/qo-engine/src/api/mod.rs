//! Request and response types of the engines.

mod claim;
mod document;
mod list;
mod submit;
mod waiting;
mod worker;

pub use claim::{ClaimRequest, DueTask};
pub use document::{
    Document, DocumentQuery, DocumentWrite, Duty, document_error, too_many_documents,
};
pub use list::{
    InvalidSearch, ListPosition, NEWEST_CURSOR, QueueStats, SEARCH_MAX_BYTES, SearchText, Stats,
    TaskFilter, TaskOrder, TaskPage, TaskQuery, VersionedTask, invalid_cursor,
};
pub use submit::{IdempotencyRequest, SubmitRequest, Submitted, When};
pub use waiting::WaitReason;
pub use worker::{WorkerAction, WorkerInfo, WorkerRequest};
