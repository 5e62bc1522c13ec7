//! `qo submit`: one task.

use std::io::Read;
use std::path::Path;

use qo::{Json, Queue, Submitted, TaskBuilder, TaskType};
use qo_blob::job;
use qo_core::limits::STORED_PAYLOAD_MAX_BYTES;

use super::job::JobSource;
use super::wait;
use crate::args::{PolicyArgs, SubmitArgs, TaskArgs, WasiJobArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::Screen;
use crate::output::style::{BOLD, CYAN};
use crate::session::Session;

pub(super) async fn run(args: &SubmitArgs, session: &mut Session) -> Result<(), Failure> {
    let (queue, task, input);
    if let Some(program) = &args.wasi.wasi {
        queue = session.connect().await?;
        input = job_source(program, &args.wasi)
            .upload(&queue, session)
            .await?;
        task = job_task(&args.task)?;
    } else {
        input = read_input(args.task.input.as_deref(), session)?;
        queue = session.connect().await?;
        task = args.task.clone();
    }
    let submitted = build(&queue, &task, &args.policy, input)?.submit().await?;
    let screen = &mut session.screen;
    if !args.wait {
        return print(&submitted, screen);
    }
    let id = submitted.task.id;
    if !screen.json {
        let result = if submitted.duplicate {
            "Already exists"
        } else {
            "Submitted"
        };
        screen.note(format_args!("{result}: {id}, waiting for it to finish"));
    }
    let task = wait::until_end(&queue, id, args.wait_timeout).await?;
    if screen.json {
        let duplicate = submitted.duplicate;
        screen.json(&serde_json::json!({ "id": id, "duplicate": duplicate, "task": task }))?;
    } else {
        wait::print_output(&queue, &task, screen).await?;
    }
    wait::check_success(&task)
}

fn job_source<'a>(program: &'a Path, args: &'a WasiJobArgs) -> JobSource<'a> {
    JobSource {
        program,
        stdin: args.stdin.as_deref(),
        arguments: &args.arg,
    }
}

/// The task of a WASI job.
fn job_task(args: &TaskArgs) -> Result<TaskArgs, Failure> {
    let task_type = TaskType::new(job::TASK_TYPE).map_err(qo::Error::from)?;
    Ok(TaskArgs {
        task_type: Some(task_type),
        retries: args.retries.or(Some(job::ATTEMPTS_DEFAULT - 1)),
        ..args.clone()
    })
}

fn print(submitted: &Submitted, screen: &mut Screen) -> Result<(), Failure> {
    let Submitted { task, duplicate } = submitted;
    if screen.json {
        let id = task.id;
        return screen.json(&serde_json::json!({ "id": id, "duplicate": duplicate, "task": task }));
    }
    if !screen.terminals().stdout {
        screen.line(task.id)?;
        if *duplicate {
            screen.note(format_args!(
                "task {} already exists; nothing was added",
                task.id
            ));
        }
        return Ok(());
    }
    let id = screen.paint.paint(BOLD, &task.id.to_string());
    let result = if *duplicate {
        "Already exists, nothing was added"
    } else {
        "Submitted"
    };
    let next = screen.paint.paint(CYAN, &format!("qo status {}", task.id));
    screen.line(format_args!(
        "{result}: {id} (type {}, queue {})",
        task.task_type, task.queue
    ))?;
    screen.line(format_args!("Next: {next}"))?;
    Ok(())
}

/// Builds the task described by the flags.
pub(super) fn build(
    queue: &Queue,
    args: &TaskArgs,
    retries: &PolicyArgs,
    input: Json,
) -> Result<TaskBuilder, Failure> {
    let Some(task_type) = &args.task_type else {
        return Err(Failure::bad_input("the task has no type: add --type"));
    };
    let mut task = queue.task_with(task_type.as_str(), input);
    if let Some(id) = args.id {
        task = task.id(id);
    }
    if let Some(name) = &args.queue {
        task = task.queue(name);
    }
    if let Some(priority) = args.priority {
        task = task.priority(priority);
    }
    if let Some(delay) = args.delay {
        task = task.delay(delay);
    }
    if let Some(at) = args.at {
        task = task.at(at);
    }
    if let Some(expires_in) = args.expires_in {
        task = task.expires_in(expires_in);
    }
    if let Some(expires_at) = args.expires_at {
        task = task.expires_at(expires_at);
    }
    if let Some(timeout) = args.timeout {
        task = task.timeout(timeout);
    }
    if let Some(retries) = args.retries {
        task = task.retries(retries);
    }
    if let Some(policy) = retries.policy() {
        task = task.retry_policy(policy);
    }
    if let Some(key) = &args.idempotency_key {
        task = task.idempotency_key(key);
    }
    if let Some(scope) = args.idempotency_scope {
        task = task.idempotency_scope(scope);
    }
    if let Some(hold) = args.idempotency_hold {
        task = task.idempotency_hold(hold);
    }
    if let Some(on_conflict) = args.on_conflict {
        task = task.on_conflict(on_conflict);
    }
    if let Some(window) = args.idempotency_window {
        task = task.idempotency_window(window);
    }
    if let Some(key) = &args.ordering_key {
        task = task.ordering_key(key);
    }
    if let Some(on_failure) = args.on_failure {
        task = task.on_failure(on_failure);
    }
    if let Some(key) = &args.limit_key {
        task = task.limit_key(key);
    }
    if let Some(group) = &args.group {
        task = task.group(group);
    }
    for tag in &args.tag {
        task = task.tag(tag.as_str());
    }
    Ok(task)
}

/// Reads the input: JSON, `@file`, `-` for standard input, or `null`.
pub(super) fn read_input(input: Option<&str>, session: &mut Session) -> Result<Json, Failure> {
    let (text, source) = match input {
        None => return Ok(Json::null()),
        Some("-") => (
            read_bounded(session.screen.stdin(), "standard input")?,
            "standard input".to_owned(),
        ),
        Some(text) => match text.strip_prefix('@') {
            None => (text.to_owned(), "--input".to_owned()),
            Some(file) => {
                let path = session.environment.directory.join(file);
                let name = path.display().to_string();
                (read_bounded(open(&path)?, &name)?, name)
            }
        },
    };
    Json::parse(text.trim()).map_err(|error| {
        Failure::bad_input(format!("{source}: {error}"))
            .hint("a JSON string needs double quotes inside the shell's quotes: --input '\"text\"'; use @FILE to read a file, - to read standard input")
    })
}

/// Opens a file for reading.
pub(super) fn open(path: &Path) -> Result<std::fs::File, Failure> {
    std::fs::File::open(path)
        .map_err(|error| Failure::bad_input(format!("cannot open {}: {error}", path.display())))
}

fn read_bounded(source: impl Read, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    source
        .take(STORED_PAYLOAD_MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| {
            Failure::new(
                FailureKind::BadInput,
                format!("cannot read {name}: {error}"),
            )
        })?;
    if text.len() as u64 > STORED_PAYLOAD_MAX_BYTES {
        return Err(Failure::bad_input(format!(
            "{name} is larger than the maximum input size of {STORED_PAYLOAD_MAX_BYTES} bytes"
        )));
    }
    Ok(text)
}
