//! Request and response types of the engines.

mod claim;
mod document;
mod list;
mod submit;
mod worker;

pub use claim::{ClaimRequest, DueTask};
pub use document::{
    Document, DocumentQuery, DocumentWrite, Duty, document_error, too_many_documents,
};
pub use list::{QueueStats, Stats, TaskFilter, TaskPage, VersionedTask};
pub use submit::{IdempotencyRequest, SubmitRequest, Submitted, When};
pub use worker::WorkerInfo;
