//! Schedules. This process fires them while it serves the queue.

use qo_core::DocumentName;
use qo_remote::wire::schedule::forms::{BackfillForm, ScheduleForm, SchedulesForm};
use qo_remote::wire::{BackfillBody, ScheduleBody, TriggeredResponse, schema};
use serde::Serialize;

use crate::author::Author;
use crate::body::JsonBody;
use crate::response::{ApiResult, json};
use crate::routes::change_route::change_route;
use crate::routes::document_route::document_route;

/// Responds with the result of a change of a schedule, after it is logged.
async fn logged<T: Serialize>(
    author: &Author,
    operation: &str,
    name: &DocumentName,
    change: impl Future<Output = Result<T, qo::Error>>,
) -> ApiResult {
    let result = change.await?;
    author.log(operation, name);
    json(&result)
}

document_route!(
    /// List schedules
    ///
    /// Each with its next and last runs, ordered by name.
    list schedules, [
        path = "/v1/schedules", tag = "schedules", operation_id = "schedules",
        responses((status = 200, description = "The schedules", body = SchedulesForm))
    ]
);
document_route!(
    /// Read a schedule
    read schedules by DocumentName, [
        path = "/v1/schedules/{name}", tag = "schedules", operation_id = "schedule",
        params(("name" = schema::Name, Path, description = "The schedule")),
        responses((status = 200, description = "The schedule", body = ScheduleForm))
    ]
);
document_route!(
    /// Define a schedule
    ///
    /// Adds the schedule, or replaces the definition of the one with this name. A new definition applies from now on. If the definition is
    /// the same, nothing changes.
    put schedules by DocumentName, "define schedule", [
        path = "/v1/schedules/{name}", tag = "schedules", operation_id = "put_schedule", request_body = ScheduleBody,
        params(("name" = schema::Name, Path, description = "The schedule")),
        responses((status = 200, description = "The schedule", body = ScheduleForm))
    ],
    |body: ScheduleBody| body.into_spec()
);
document_route!(
    /// Remove a schedule
    ///
    /// Tasks that it has submitted stay.
    remove schedules by DocumentName, "remove schedule", [
        path = "/v1/schedules/{name}", tag = "schedules", operation_id = "remove_schedule",
        params(("name" = schema::Name, Path, description = "The schedule")),
        responses((status = 204, description = "The schedule is removed"))
    ]
);
change_route!(
    /// Pause a schedule
    ///
    /// It has no runs until it is resumed. Tasks that it has submitted stay.
    pause, [
        path = "/v1/schedules/{name}/pause", tag = "schedules", operation_id = "pause_schedule",
        params(("name" = schema::Name, Path, description = "The schedule")),
        responses((status = 200, description = "The schedule is paused", body = ScheduleForm))
    ],
    |app, name: DocumentName, author| logged(&author, "pause schedule", &name, app.queue.schedules().pause(name.as_str()))
);
change_route!(
    /// Resume a schedule
    ///
    /// It continues with the runs from now on. The runs during the pause are skipped.
    resume, [
        path = "/v1/schedules/{name}/resume", tag = "schedules", operation_id = "resume_schedule",
        params(("name" = schema::Name, Path, description = "The schedule")),
        responses((status = 200, description = "The schedule is not paused any more", body = ScheduleForm))
    ],
    |app, name: DocumentName, author| logged(&author, "resume schedule", &name, app.queue.schedules().resume(name.as_str()))
);
change_route!(
    /// Trigger a schedule
    ///
    /// Submits one task now, even if the schedule is paused. A repeated request submits another one.
    trigger, [
        path = "/v1/schedules/{name}/trigger", tag = "schedules", operation_id = "trigger_schedule",
        params(("name" = schema::Name, Path, description = "The schedule")),
        responses((status = 200, description = "The task is submitted", body = TriggeredResponse))
    ],
    |app, name: DocumentName, author| async {
        let task_id = app.queue.schedules().trigger(name.as_str()).await?;
        author.log("trigger schedule", &name);
        json(&TriggeredResponse { task_id })
    }
);
change_route!(
    /// Backfill a past range
    ///
    /// Submits the tasks of all ticks of a range, at most 1,000, whether they were fired before or not. A repeated request for the same range
    /// finds the tasks of the first one, as long as they are kept.
    backfill, [
        path = "/v1/schedules/{name}/backfill", tag = "schedules", operation_id = "backfill_schedule", request_body = BackfillBody,
        params(("name" = schema::Name, Path, description = "The schedule")),
        responses((status = 200, description = "The tasks are submitted", body = BackfillForm))
    ],
    |app, name: DocumentName, author, JsonBody(body): BackfillBody| logged(&author, "backfill schedule", &name, app.queue.schedules().backfill(name.as_str(), body.from, body.to))
);
