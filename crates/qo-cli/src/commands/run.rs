//! `qo run`: submits a WASI job, waits for it and prints its output.

use std::path::Path;

use futures_util::TryStreamExt as _;
use qo::{Queue, Task};
use qo_blob::BlobAddress;
use qo_blob::job::{self, JobFailure, JobOutput};

use super::job::JobSource;
use super::wait;
use crate::args::RunArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::Screen;
use crate::output::text::clean_lines;
use crate::session::Session;
use crate::signals::{Signals, interrupted};

pub(super) async fn run(args: &RunArgs, session: &mut Session) -> Result<(), Failure> {
    let signals = Signals::listen(&session.runtime)?;
    let queue = session.connect().await?;
    let piped = (!session.screen.terminals().stdin).then_some(Path::new("-"));
    let source = JobSource {
        program: &args.program,
        stdin: args.stdin.as_deref().or(piped),
        arguments: &args.arguments,
    };
    let submitting = async {
        let input = source.upload(&queue, session).await?;
        let mut task = queue
            .task_with(job::TASK_TYPE, input)
            .retries(args.retries.unwrap_or(job::ATTEMPTS_DEFAULT - 1));
        if let Some(name) = &args.queue {
            task = task.queue(name);
        }
        if let Some(timeout) = args.timeout {
            task = task.timeout(timeout);
        }
        Ok::<_, Failure>(task.submit().await?.task.id)
    };
    let id = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return Err(interrupted()),
        id = submitting => id?,
    };
    if session.screen.terminals().stderr {
        session.screen.note(format_args!(
            "Submitted: {id}, waiting for a worker to run it (qo worker --wasi)"
        ));
    }
    let task = tokio::select! {
        biased;
        () = signals.stop.cancelled() => {
            if let Err(error) = queue.cancel(id, Some("interrupted")).await {
                session.screen.warn(format_args!("cannot cancel task {id}: {error}"));
            }
            return Err(interrupted());
        }
        task = wait::until_end(&queue, id, args.wait_timeout) => task?,
    };
    print(&task, &queue, &mut session.screen).await
}

/// Prints the output of a finished job, and fails as the program did.
async fn print(task: &Task, queue: &Queue, screen: &mut Screen) -> Result<(), Failure> {
    let failure = task.last_error.as_deref().map(JobFailure::parse);
    let has_failed = wait::check_success(task);
    if screen.json {
        screen.json(task)?;
    } else {
        let address = match (&has_failed, queue.output(task).await?) {
            (Ok(()), Some(output)) => {
                JobOutput::parse(&output)
                    .map_err(|error| Failure::new(FailureKind::Damaged, error.to_string()))?
                    .output_addr
            }
            (Ok(()), None) => None,
            (Err(_), _) => failure.as_ref().and_then(|failure| failure.output_addr),
        };
        if let Some(address) = address {
            print_blob(address, queue, screen).await?;
        }
    }
    has_failed.map_err(|failed| match failure {
        Some(JobFailure {
            exit_code: Some(code),
            message,
            ..
        }) => {
            if !screen.json && !message.is_empty() {
                screen.error_text(clean_lines(&message));
            }
            let text = format!("the program exited with code {code} (task {})", task.id);
            let failed = Failure::new(FailureKind::TaskFailed, text);
            match u8::try_from(code) {
                Ok(code) => failed.exit_code(code),
                Err(_) => failed,
            }
        }
        _ => failed,
    })
}

async fn print_blob(
    address: BlobAddress,
    queue: &Queue,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let blob = queue.blobs()?.get(address, None).await;
    let mut body = blob.map_err(qo::Error::from)?.body;
    while let Some(chunk) = body.try_next().await.map_err(qo::Error::from)? {
        screen.write_bytes(&chunk)?;
    }
    Ok(())
}
