//! Schedules: tasks that are submitted repeatedly, at the times of a cron line, at a fixed interval, or at listed times.
//!
//! ```
//! use qo::schedule::{ScheduleSpec, TaskTemplate};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (queue, _clock) = qo::testing::memory_queue()?;
//! let mut spec = ScheduleSpec::cron("30 2 * * *", TaskTemplate::new("nightly_report".parse()?));
//! spec.time_zone = Some("Europe/Berlin".to_owned());
//! queue.schedules().put("nightly", spec).await?;
//!
//! let info = queue.schedules().get("nightly").await?;
//! println!("next run at {:?}", info.next);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Worker`](crate::Worker) fires the schedules of its queue, and so does `qo serve`, so most programs only define them. Any number of
//! processes may do so, without a leader: `qo_core::schedule` says why each tick makes exactly one task.
//!
//! - [`Schedules`]: defines, shows and changes schedules.
//! - [`ScheduleDriver`]: fires them.

mod driver;
mod handle;
mod info;

pub use driver::ScheduleDriver;
pub use handle::Schedules;
pub use info::{BackfillReport, ScheduleInfo};
pub use qo_core::schedule::{InvalidSchedule, Overlap, Run, RunKind, ScheduleSpec, TaskTemplate};

use qo_core::document::DOCUMENT_MAX_BYTES;
use qo_core::schedule::{Firing, SCHEDULE_READER, Schedule};
use qo_core::{DocumentId, DocumentKind, DocumentName, Json, OpId, Tag};
use qo_engine::api::{Document, DocumentWrite, SubmitRequest, When};

use crate::error::Error;

/// The document of a schedule.
fn document_id(name: &DocumentName) -> DocumentId {
    DocumentId {
        kind: DocumentKind::Schedules,
        name: name.clone(),
    }
}

/// The schedule in a document.
fn read(document: &Document) -> Result<Schedule, Error> {
    let parsed: Result<Schedule, _> = document.body.to_value();
    let schedule = parsed.map_err(|error| Error::UnreadableSchedule {
        name: document.id.name.to_string(),
        detail: error.to_string(),
    })?;
    if schedule.min_reader > SCHEDULE_READER {
        return Err(Error::NewerSchedule {
            name: document.id.name.to_string(),
        });
    }
    Ok(schedule)
}

/// The body of a document.
fn body(name: &DocumentName, schedule: &Schedule) -> Result<Json, Error> {
    let body = Json::from_value(schedule)?;
    if body.size() > DOCUMENT_MAX_BYTES {
        return Err(Error::ScheduleTooLarge {
            name: name.to_string(),
            size: body.size(),
        });
    }
    Ok(body)
}

/// The change that makes a decision durable.
fn write_of(
    name: &DocumentName,
    expected: OpId,
    firing: &Firing,
    op: OpId,
) -> Result<DocumentWrite, Error> {
    let settled = body(name, &firing.settled)?;
    let first = if firing.runs.is_empty() {
        settled.clone()
    } else {
        body(name, &firing.firing)?
    };
    let submits = firing.runs.iter();
    Ok(DocumentWrite {
        submits: submits
            .map(|run| request(name, &firing.settled, run))
            .collect(),
        settled: Some(settled),
        ..DocumentWrite::new(document_id(name), Some(expected), Some(first), op)
    })
}

/// The task of a run.
fn request(name: &DocumentName, schedule: &Schedule, run: &Run) -> SubmitRequest {
    let template = &schedule.spec.task;
    let input = template.input.clone().unwrap_or_else(Json::null);
    let default = SubmitRequest::new(template.task_type.clone(), input);
    let mut tags = template.tags.clone();
    // A long name does not fit into a tag.
    tags.extend(Tag::new(&format!("schedule:{name}")).ok());
    SubmitRequest {
        id: Some(run.task),
        queue: template.queue.clone().unwrap_or(default.queue),
        priority: template.priority.unwrap_or(default.priority),
        available: When::At(schedule.due_at(run)),
        expires: template.expires_in_ms.map(When::InMillis),
        timeout_seconds: template.timeout_seconds,
        max_retries: template.max_retries,
        retry_policy: template
            .retry_policy
            .clone()
            .unwrap_or(default.retry_policy),
        tags,
        ordering: template.ordering(),
        limit_key: template.limit_key.clone(),
        fairness_group: template.fairness_group.clone(),
        ..SubmitRequest::new(template.task_type.clone(), default.input)
    }
}
