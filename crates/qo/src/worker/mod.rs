//! Doing tasks.

mod context;
mod handler;
mod task_error;

pub use context::{Context, StopReason};
pub use handler::{Answer, Handler, TaskHandler, TaskInput};
pub use task_error::TaskError;
