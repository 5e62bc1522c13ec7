//! `--exec TYPE=COMMAND`: a command for each attempt.
//!
//! ```text
//!   input JSON ──▶ standard input          standard output ──▶ output (JSON, or text)
//!   task facts ──▶ QO_* variables          standard error  ──▶ log, progress, the end of an error's text
//!                                          exit code       ──▶ success, retry, failure (verdict.rs)
//! ```
//!
//! | what happens | what is done |
//! | --- | --- |
//! | the command ends | helpers that still write get a second to finish; what is left of its process group is killed |
//! | timeout, cancel, lost lease, the worker's stop | SIGTERM to the group, SIGKILL after the grace; an exit code 0 after that is no success, since many programs end so when they are told to |
//! | too much output | the same, and the task fails for good |
//! | the handler is dropped, the worker ends at once | SIGKILL to the group (`group.rs`) |

mod environment;
mod group;
mod streams;
mod verdict;

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

use super::answer::printable;
use group::Group;
use streams::{Output, Progress, Remarks, feed};

/// How long a command that was asked to end may take, unless the worker is told otherwise.
pub const KILL_GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// How long the streams of a command that has ended may stay open: as long as its helpers still write, but not for ever.
const STREAMS_GRACE: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// A line for `sh -c`.
    Shell(String),
    /// A program and its arguments, run as they are.
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

    /// What to call it in an error.
    fn program(&self) -> &str {
        match self {
            Self::Shell(_) => "sh",
            Self::Program(program, _) => program,
        }
    }
}

/// What all commands of a worker share.
#[derive(Clone)]
pub struct ExecSettings {
    /// The largest output that is kept.
    pub output_max_bytes: u64,
    /// How long a command that was asked to end may take.
    pub kill_grace: Duration,
    /// The environment that commands start with.
    pub environment: BTreeMap<String, String>,
    /// The process groups that are alive.
    pub groups: Groups,
    /// For waiting.
    pub runtime: Arc<dyn Runtime>,
}

impl fmt::Debug for ExecSettings {
    /// Leaves out the environment, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSettings")
            .field("output_max_bytes", &self.output_max_bytes)
            .field("kill_grace", &self.kill_grace)
            .finish_non_exhaustive()
    }
}

/// Runs a command for each attempt of its type.
#[derive(Debug)]
pub struct ExecHandler {
    task_type: TaskType,
    command: CommandLine,
    settings: ExecSettings,
}

impl ExecHandler {
    /// A handler for one type.
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
            .envs(environment::facts(context))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.settings.groups.spawn(&mut command).map_err(|error| {
            TaskError::retryable(format!(
                "{} could not be started: {error}",
                self.command.program()
            ))
        })
    }

    fn too_much_output(&self) -> TaskError {
        TaskError::permanent(format!(
            "the command wrote more than {} bytes to standard output; raise the worker's --max-output, \
             or keep the output elsewhere and print where it is",
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
        let mut output = Output::new(self.settings.output_max_bytes);
        let (mut remarks, progress) = Remarks::new();
        let overflow = output.overflow.clone();

        let ending = {
            let streams = async {
                tokio::join!(
                    feed(stdin, &input),
                    output.read(stdout),
                    remarks.read(stderr)
                );
            };
            let running = Running {
                settings: &self.settings,
                child: &mut child,
                group: &group,
                streams: Box::pin(streams),
                streams_ended: false,
            };
            tokio::select! {
                biased;
                ending = running.run(&context, overflow.cancelled()) => ending,
                never = tell(&context, progress) => match never {},
            }
        };
        drop(group);

        match ending {
            // A command can end before it is noticed that it wrote too much.
            Ending::Exited(_) if overflow.is_cancelled() => Err(self.too_much_output()),
            Ending::TooMuchOutput => Err(self.too_much_output()),
            Ending::Exited(status) => {
                let snooze = remarks.snooze;
                verdict::verdict(status, &output.bytes, remarks.tail(), snooze)
            }
            Ending::Stopped => {
                // The task's error tells why it was stopped; what the command was doing is told here.
                let last_words = printable(remarks.tail());
                tracing::info!(target: "qo::exec", last_words, "a command was stopped");
                Err(match context.stop_reason() {
                    Some(StopReason::TimedOut) => TaskError::Timeout,
                    _ => TaskError::Cancelled,
                })
            }
            Ending::Lost(error) => Err(TaskError::retryable(format!(
                "the command's end could not be awaited: {error}"
            ))),
        }
    }
}

/// Passes on the newest progress, for as long as the command runs. A report that fails is not worth failing for.
async fn tell(
    context: &Context,
    mut progress: watch::Receiver<Option<Progress>>,
) -> std::convert::Infallible {
    while progress.changed().await.is_ok() {
        let newest = progress.borrow_and_update().clone();
        if let Some(Progress { percent, message }) = newest
            && let Err(error) = context.progress(percent, message).await
        {
            tracing::debug!(%error, "progress was not stored");
        }
    }
    std::future::pending().await
}

/// How a command came to its end.
#[derive(Debug)]
enum Ending {
    Exited(ExitStatus),
    TooMuchOutput,
    Stopped,
    Lost(std::io::Error),
}

/// A command that runs.
struct Running<'a, S> {
    settings: &'a ExecSettings,
    child: &'a mut Child,
    group: &'a Group,
    streams: std::pin::Pin<Box<S>>,
    streams_ended: bool,
}

impl<S: Future<Output = ()>> Running<'_, S> {
    /// Sees the command to its end. When this returns, nothing is left of its process group.
    async fn run(mut self, context: &Context, overflow: impl Future<Output = ()>) -> Ending {
        tokio::pin!(overflow);
        let stop = context.cancellation().cancelled();
        tokio::pin!(stop);
        let ending = loop {
            tokio::select! {
                biased;
                () = &mut self.streams, if !self.streams_ended => self.streams_ended = true,
                () = &mut overflow => break Ending::TooMuchOutput,
                status = self.child.wait() => break status.map_or_else(Ending::Lost, Ending::Exited),
                () = &mut stop => break Ending::Stopped,
            }
        };
        let ended = matches!(ending, Ending::Exited(_)) || {
            self.group.terminate();
            self.wait_for_exit().await
        };
        if ended {
            self.wait_for_streams().await;
        }
        self.group.kill();
        if let Err(error) = self.child.wait().await {
            tracing::debug!(%error, "the end of a command could not be awaited");
        }
        // Only a process that left the group can keep a stream open now.
        self.wait_for_streams().await;
        ending
    }

    /// Whether the command ended within the grace.
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
