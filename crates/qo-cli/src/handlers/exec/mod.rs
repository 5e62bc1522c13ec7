//! `--exec TYPE=COMMAND`: runs a command for each attempt.
//!
//! ```text
//!   input JSON ──▶ standard input          standard output ──▶ output (JSON, or text)
//!   task       ──▶ QO_* variables          standard error  ──▶ log, progress, error text
//!                                          exit code       ──▶ success, retry, failure (exit_code.rs)
//! ```
//!
//! | event | reaction |
//! | --- | --- |
//! | the command exits | its child processes get a second to finish writing; then the process group is killed |
//! | timeout, cancel, lost lease, worker stop | SIGTERM to the group, SIGKILL after the grace period; exit code 0 then does not mean success, since many programs exit so on SIGTERM |
//! | too much output | the same, and the task fails permanently |
//! | the handler is dropped, the worker stops at once or is killed | SIGKILL to the group (`group.rs`, `watchdog.rs`) |

mod environment;
mod exit_code;
mod group;
mod streams;
mod watchdog;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use qo::{Context, Json, StopReason, TaskError, TaskHandler, TaskType};
use qo_store::runtime::Runtime;
use tokio::process::{Child, Command};
use tokio::sync::watch;

pub use environment::Inheritance;
pub use group::Groups;

use super::output::printable;
use group::Group;
use streams::{ReportedProgress, StderrReader, StdoutReader, write_input};

/// Default time between SIGTERM and SIGKILL.
pub const KILL_GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// How much of standard output is part of the log of an attempt without success.
const STDOUT_LOG_MAX_BYTES: usize = 4 * 1024;

/// How long child processes of an exited command may keep its streams open.
const STREAMS_GRACE: Duration = Duration::from_secs(1);

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// A line for `sh -c`.
    Shell(String),
    /// A program and its arguments, without a shell.
    Program(String, Vec<String>),
}

impl CommandLine {
    fn command(&self) -> Command {
        match self {
            Self::Shell(line) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(line);
                command
            }
            Self::Program(program, arguments) => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
        }
    }

    /// The program name for error messages.
    fn program(&self) -> &str {
        match self {
            Self::Shell(_) => "sh",
            Self::Program(program, _) => program,
        }
    }
}

/// Settings shared by all commands of a worker.
#[derive(Clone)]
pub struct ExecSettings {
    /// Maximum size of an output.
    pub output_max_bytes: u64,
    /// Time between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// The inherited environment.
    pub environment: BTreeMap<String, String>,
    /// The live process groups.
    pub groups: Groups,
    /// The clock.
    pub runtime: Arc<dyn Runtime>,
}

impl fmt::Debug for ExecSettings {
    /// Omits the environment, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSettings")
            .field("output_max_bytes", &self.output_max_bytes)
            .field("kill_grace", &self.kill_grace)
            .finish_non_exhaustive()
    }
}

/// Runs a command for each attempt of a task type.
#[derive(Debug)]
pub struct ExecHandler {
    task_type: TaskType,
    command: CommandLine,
    settings: ExecSettings,
}

impl ExecHandler {
    /// Creates a handler for one type.
    pub fn new(task_type: TaskType, command: CommandLine, settings: ExecSettings) -> Self {
        Self {
            task_type,
            command,
            settings,
        }
    }

    fn start(&self, context: &Context) -> Result<(Child, Group), TaskError> {
        let mut command = self.command.command();
        command
            .env_clear()
            .envs(&self.settings.environment)
            .envs(environment::task_variables(context))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.settings.groups.spawn(&mut command).map_err(|error| {
            TaskError::retryable(format!("cannot start {}: {error}", self.command.program()))
        })
    }

    fn too_much_output(&self) -> TaskError {
        TaskError::permanent(format!(
            "the command wrote more than {} bytes to standard output; raise the worker's --max-output, \
             or store the output elsewhere and print its location",
            self.settings.output_max_bytes
        ))
    }
}

#[async_trait]
impl TaskHandler for ExecHandler {
    fn task_type(&self) -> &str {
        self.task_type.as_str()
    }

    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        let (mut child, group) = self.start(&context)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut stdout_reader = StdoutReader::new(self.settings.output_max_bytes);
        let (mut stderr_reader, progress) = StderrReader::new(Some(context.clone()));
        let overflow = stdout_reader.overflow.clone();

        let end = {
            let streams = async {
                tokio::join!(
                    write_input(stdin, &input),
                    stdout_reader.read(stdout),
                    stderr_reader.read(stderr)
                );
            };
            let running = RunningCommand {
                settings: &self.settings,
                child: &mut child,
                group: &group,
                streams: Box::pin(streams),
                streams_ended: false,
            };
            tokio::select! {
                biased;
                end = running.run(&context, overflow.cancelled()) => end,
                never = report_progress(&context, progress) => match never {},
            }
        };
        drop(group);

        let result = match end {
            // A command can exit before the overflow is noticed.
            CommandEnd::Exited(_) if overflow.is_cancelled() => Err(self.too_much_output()),
            CommandEnd::TooMuchOutput => Err(self.too_much_output()),
            CommandEnd::Exited(status) => {
                let snooze = stderr_reader.snooze;
                exit_code::attempt_result(
                    status,
                    &stdout_reader.bytes,
                    stderr_reader.tail(),
                    snooze,
                )
            }
            CommandEnd::Stopped => {
                // The task's error gives the reason of the stop. The log gets the command's last output.
                let stderr = printable(stderr_reader.tail());
                tracing::info!(target: "qo::exec", stderr, "command stopped");
                Err(match context.stop_reason() {
                    Some(StopReason::TimedOut) => TaskError::Timeout,
                    _ => TaskError::Cancelled,
                })
            }
            CommandEnd::Lost(error) => Err(TaskError::retryable(format!(
                "cannot wait for the command: {error}"
            ))),
        };
        if result.is_err() && !stdout_reader.bytes.is_empty() {
            log_stdout(&context, &stdout_reader.bytes);
        }
        result
    }
}

/// Adds the end of standard output to the log of an attempt without success, because it is no output of the task.
fn log_stdout(context: &Context, bytes: &[u8]) {
    let end = &bytes[bytes.len().saturating_sub(STDOUT_LOG_MAX_BYTES)..];
    let mark = if end.len() < bytes.len() { "…" } else { "" };
    context.log(format!("standard output:\n{mark}{}", printable(end)));
}

/// Stores the newest progress while the command runs. A failed report does not fail the attempt.
async fn report_progress(
    context: &Context,
    mut progress: watch::Receiver<Option<ReportedProgress>>,
) -> std::convert::Infallible {
    while progress.changed().await.is_ok() {
        let newest = progress.borrow_and_update().clone();
        if let Some(ReportedProgress { percent, message }) = newest
            && let Err(error) = context.progress(percent, message).await
        {
            tracing::debug!(%error, "cannot store progress");
        }
    }
    std::future::pending().await
}

/// How a command ended.
#[derive(Debug)]
enum CommandEnd {
    Exited(ExitStatus),
    TooMuchOutput,
    Stopped,
    Lost(std::io::Error),
}

/// A running command.
struct RunningCommand<'a, S> {
    settings: &'a ExecSettings,
    child: &'a mut Child,
    group: &'a Group,
    streams: std::pin::Pin<Box<S>>,
    streams_ended: bool,
}

impl<S: Future<Output = ()>> RunningCommand<'_, S> {
    /// Waits until the command ends, and stops it if necessary. On return, no process of the group is left.
    async fn run(mut self, context: &Context, overflow: impl Future<Output = ()>) -> CommandEnd {
        tokio::pin!(overflow);
        let stop = context.cancellation().cancelled();
        tokio::pin!(stop);
        let end = loop {
            tokio::select! {
                biased;
                () = &mut self.streams, if !self.streams_ended => self.streams_ended = true,
                () = &mut overflow => break CommandEnd::TooMuchOutput,
                status = self.child.wait() => break status.map_or_else(CommandEnd::Lost, CommandEnd::Exited),
                () = &mut stop => break CommandEnd::Stopped,
            }
        };
        let exited = matches!(end, CommandEnd::Exited(_)) || {
            self.group.terminate();
            self.wait_for_exit().await
        };
        if exited {
            self.wait_for_streams().await;
        }
        self.group.kill();
        if let Err(error) = self.child.wait().await {
            tracing::debug!(%error, "cannot wait for a command");
        }
        // Only a process that left the group can still keep a stream open.
        self.wait_for_streams().await;
        end
    }

    /// Waits for the command to exit. Returns false if the grace period passes first.
    async fn wait_for_exit(&mut self) -> bool {
        let grace = self.settings.runtime.sleep(self.settings.kill_grace);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                biased;
                _ = self.child.wait() => return true,
                () = &mut self.streams, if !self.streams_ended => self.streams_ended = true,
                () = &mut grace => return false,
            }
        }
    }

    async fn wait_for_streams(&mut self) {
        if self.streams_ended {
            return;
        }
        let grace = self.settings.runtime.sleep(STREAMS_GRACE);
        tokio::select! {
            biased;
            () = &mut self.streams => self.streams_ended = true,
            () = grace => {}
        }
    }
}
