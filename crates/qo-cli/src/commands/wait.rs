//! `qo wait`, and waiting for `qo submit --wait`.

use std::time::Duration;

use qo::{Queue, Status, Task, TaskId};

use crate::args::WaitArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::{Screen, sealed, text};
use crate::session::Session;

pub(super) async fn run(args: &WaitArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let task = until_end(&queue, args.id, args.timeout).await?;
    if session.screen.json {
        session.screen.json(&task)?;
    } else {
        print_output(&queue, &task, &mut session.screen).await?;
    }
    check_success(&task)
}

/// Waits until a task finishes.
pub(super) async fn until_end(
    queue: &Queue,
    id: TaskId,
    timeout: Option<Duration>,
) -> Result<Task, Failure> {
    Ok(queue.wait(id, timeout.unwrap_or(Duration::MAX)).await?)
}

/// Prints the output, if there is one, unchanged.
pub(super) async fn print_output(
    queue: &Queue,
    task: &Task,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if let Some(output) = queue.output(task).await? {
        screen.line(output)?;
    }
    Ok(())
}

/// Fails unless the finished task succeeded.
pub(super) fn check_success(task: &Task) -> Result<(), Failure> {
    let archived_from = || task.events.iter().rev().find_map(|event| event.from);
    let is_success = match task.status {
        Status::Completed => true,
        Status::Archived => archived_from() == Some(Status::Completed),
        _ => false,
    };
    if is_success {
        return Ok(());
    }
    let why = match &task.last_error {
        // A task cancelled without a reason has its status as the reason.
        Some(error) if **error != *task.status.as_str() => format!(": {}", sealed::error(error)),
        _ => String::new(),
    };
    Err(Failure::new(
        FailureKind::TaskFailed,
        format!(
            "task {} is {} after {}{why}",
            task.id,
            task.status,
            text::count(task.attempt.into(), "attempt")
        ),
    )
    .hint(format!("`qo history {}` shows what happened", task.id)))
}
