//! `--wasi`: runs the program of each WASI job in a sandbox.
//!
//! ```text
//!   binary_addr ──▶ program (compiled once)
//!   input_addr  ──▶ standard input          standard output ──▶ a blob, whose address is in the task's output
//!   args        ──▶ arguments               standard error  ──▶ its end is the error text
//!                                           exit code       ──▶ success or failure
//! ```
//!
//! | end of the program | result of the attempt |
//! | --- | --- |
//! | exit code 0 | success |
//! | exit code 75 (`EX_TEMPFAIL`) | retried |
//! | any other exit code, a trap, too much memory or output | permanent failure: the same program would fail again on the same input |
//! | timeout, cancel, lost lease, worker stop | the program is ended; the queue decides, as for other handlers |
//!
//! An attempt is retried if a blob is missing or damaged, or if the store fails. A binary that is not a program is a permanent failure.
//!
//! The whole input is verified, even if the program does not read all of it, so that no result is based on damaged bytes.
//!
//! # Crashes
//!
//! | the worker dies | left behind | what follows |
//! | --- | --- | --- |
//! | while the program runs or its output is uploaded | nothing, or an incomplete upload | the lease expires and the job runs again |
//! | after the upload, before the outcome is written | a blob that no task refers to | the job runs again and stores the same blob; otherwise the garbage collection deletes it |

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{StreamExt as _, TryStreamExt as _, once, unfold};
use qo::runtime::Runtime;
use qo::{Context, Json, StopReason, TaskError, TaskHandler};
use qo_blob::job::{self, JobFailure, JobInput, JobOutput};
use qo_blob::{BlobAddress, BlobError, BlobStore, BlobStoreExt as _};
use qo_core::limits::ERROR_MAX_BYTES;
use qo_wasi::{CompileError, Ended, Exit, GetError, Input, Output, Programs, RunError};
use tokio::sync::{mpsc, oneshot};

use super::output::{cut_front, error_text, printable};

/// How many chunks of the input wait for the program.
const INPUT_CHUNKS: usize = 4;

/// The exit code of a program that wants to be run again (`EX_TEMPFAIL`).
const TRY_AGAIN: i32 = 75;

/// Room in an error for what precedes standard error: the exit code and the address of the output.
const FACTS_MAX_BYTES: usize = 128;

/// Runs WASI jobs.
#[derive(Debug)]
pub struct WasiHandler {
    programs: Arc<Programs>,
}

impl WasiHandler {
    /// Creates a handler with these programs, which are empty at first.
    pub fn new(programs: Arc<Programs>) -> Self {
        Self { programs }
    }

    async fn run(&self, job: JobInput, context: &Context) -> Result<Option<Json>, TaskError> {
        let blobs = context.queue().blobs().map_err(TaskError::permanent)?;
        // Requests belong to the worker's own runtime: see `qo::worker`.
        let home = Home {
            runtime: Arc::clone(context.queue().runtime()),
            blobs,
        };
        let sandbox = self.programs.sandbox();
        let address = job.binary_addr;
        let load = home.load(address, sandbox.limits().program_bytes);
        let program = self.programs.get(*address.digest().as_bytes(), load).await;
        let program = program.map_err(|error| unusable(address, &error))?;

        let (input, verified) = match job.input_addr {
            None => (Input::empty(), None),
            Some(address) => {
                let (input, verified) = home.input(address);
                (input, Some(verified))
            }
        };
        let mut arguments = vec![address.to_string()];
        arguments.extend(job.args);
        let run = sandbox.run(program, arguments, input);
        let mut ended = run.ended;
        let mut upload = Box::pin(home.upload(run.output));
        let (ended, stored) = tokio::select! {
            biased;
            // The upload ends before the program only if the store fails.
            stored = &mut upload => match stored {
                Err(error) => return Err(not_stored(&error)),
                Ok(stored) => (ended.await, Ok(stored)),
            },
            ended = &mut ended => (ended, upload.await),
        };
        let Ended { result, stderr } = ended;
        let stderr = printable(&stderr);
        if !stderr.is_empty() {
            context.log(&stderr);
        }
        let exit = result.map_err(|error| failed(&error, &stderr))?;
        let output_addr = stored.map_err(|error| not_stored(&error))?;
        if let Some(verified) = verified {
            verified.await.map_err(|error| {
                TaskError::retryable(format_args!("cannot read the input: {error}"))
            })?;
        }
        outcome(exit, output_addr, &stderr)
    }
}

#[async_trait]
impl TaskHandler for WasiHandler {
    fn task_type(&self) -> &str {
        job::TASK_TYPE
    }

    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        let job = JobInput::parse(&input).map_err(TaskError::permanent)?;
        tokio::select! {
            biased;
            // Dropping the other future ends the program.
            () = context.cancellation().cancelled() => Err(match context.stop_reason() {
                Some(StopReason::TimedOut) => TaskError::Timeout,
                _ => TaskError::Cancelled,
            }),
            result = self.run(job, &context) => result,
        }
    }
}

/// The result of a program that exited.
fn outcome(
    exit: Exit,
    output_addr: Option<BlobAddress>,
    stderr: &str,
) -> Result<Option<Json>, TaskError> {
    let exit_code = Some(exit.code);
    if exit.code == 0 {
        let output = JobOutput {
            output_addr,
            exit_code,
        };
        return output.to_json().map(Some).map_err(TaskError::permanent);
    }
    let failure = JobFailure {
        exit_code,
        output_addr,
        message: cut_front(stderr, ERROR_MAX_BYTES - FACTS_MAX_BYTES).to_owned(),
    };
    Err(if exit.code == TRY_AGAIN {
        TaskError::retryable(failure)
    } else {
        TaskError::permanent(failure)
    })
}

/// The error of a program that did not exit by itself.
fn failed(error: &RunError, stderr: &str) -> TaskError {
    let hint = match error {
        RunError::MemoryLimit { .. } => "; the worker's --wasi-memory sets the limit",
        RunError::OutputLimit { .. } => "; the worker's --wasi-output sets the limit",
        _ => "",
    };
    let text = error_text(&format!("{error}{hint}"), stderr);
    match error {
        RunError::Trap { .. } | RunError::MemoryLimit { .. } | RunError::OutputLimit { .. } => {
            TaskError::permanent(text)
        }
        _ => TaskError::retryable(text),
    }
}

/// The error of a binary that cannot be loaded or compiled.
fn unusable(address: BlobAddress, error: &GetError<BlobError>) -> TaskError {
    match error {
        GetError::Load(BlobError::TooLarge { max_bytes }) => TaskError::permanent(format_args!(
            "the program {address} has more than {max_bytes} bytes, which is the limit"
        )),
        GetError::Load(error) => {
            TaskError::retryable(format_args!("cannot load the program: {error}"))
        }
        GetError::Compile(CompileError::Bad(bad)) => {
            TaskError::permanent(format_args!("blob {address} is not a program: {bad}"))
        }
        GetError::Compile(error) => TaskError::retryable(error),
        error => TaskError::retryable(error),
    }
}

fn not_stored(error: &BlobError) -> TaskError {
    match error {
        BlobError::TooLarge { max_bytes } => TaskError::permanent(format_args!(
            "the output has more than {max_bytes} bytes, the limit of the store for a blob"
        )),
        error => TaskError::retryable(format_args!("cannot store the output: {error}")),
    }
}

/// The blobs, and the runtime in which requests to them run.
struct Home {
    runtime: Arc<dyn Runtime>,
    blobs: Arc<dyn BlobStore>,
}

impl Home {
    /// Reads a whole blob.
    fn load(
        &self,
        address: BlobAddress,
        max_bytes: u64,
    ) -> impl Future<Output = Result<Bytes, BlobError>> + use<> {
        let blobs = Arc::clone(&self.blobs);
        // Nothing is read unless the program is not in memory.
        let runtime = Arc::clone(&self.runtime);
        async move {
            let reading = async move { blobs.read_all(address, max_bytes).await };
            spawn(&runtime, reading).await
        }
    }

    /// Reads a blob as the input of a program. The second result says whether the bytes were those of the blob; it waits until the
    /// program has read all of them, or has ended.
    fn input(
        &self,
        address: BlobAddress,
    ) -> (Input, impl Future<Output = Result<(), BlobError>> + use<>) {
        let (chunks, received) = mpsc::channel(INPUT_CHUNKS);
        let blobs = Arc::clone(&self.blobs);
        let reading = spawn(&self.runtime, async move {
            let read = async {
                let mut body = blobs.get(address, None).await?.body;
                while let Some(chunk) = body.try_next().await? {
                    // The program may have ended. The rest is still verified.
                    let _ = chunks.send(Ok(Some(chunk))).await;
                }
                Ok(())
            };
            let result: Result<(), BlobError> = read.await;
            let end = match &result {
                Ok(()) => Ok(None),
                Err(error) => Err(io::Error::other(error.clone())),
            };
            let _ = chunks.send(end).await;
            result
        });
        let stream = unfold(Some(received), |received| async move {
            let mut received = received?;
            match received.recv().await {
                Some(Ok(Some(chunk))) => Some((Ok(chunk), Some(received))),
                Some(Ok(None)) => None,
                Some(Err(error)) => Some((Err(error), None)),
                // Not the end of the input, but of its reader.
                None => Some((Err(io::Error::other(stopped())), None)),
            }
        });
        (Input::stream(stream), reading)
    }

    /// Stores the output as a blob, unless it is empty.
    fn upload(
        &self,
        mut output: Output,
    ) -> impl Future<Output = Result<Option<BlobAddress>, BlobError>> + use<> {
        let blobs = Arc::clone(&self.blobs);
        spawn(&self.runtime, async move {
            let Some(first) = output.next().await else {
                return Ok(None);
            };
            let body = once(async { first }).chain(output.into_stream());
            let body = body.map_err(|error| BlobError::Upload {
                detail: error.to_string(),
            });
            let stored = blobs.put(body.boxed(), None).await?;
            Ok(Some(stored.address))
        })
    }
}

/// Runs a future in a runtime until it ends or the result is dropped.
fn spawn<T, F>(
    runtime: &Arc<dyn Runtime>,
    future: F,
) -> impl Future<Output = Result<T, BlobError>> + use<T, F>
where
    T: Send + 'static,
    F: Future<Output = Result<T, BlobError>> + Send + 'static,
{
    let (done, result) = oneshot::channel();
    let (abort, registration) = AbortHandle::new_pair();
    runtime.spawn(Box::pin(async move {
        if let Ok(value) = Abortable::new(future, registration).await {
            // The receiver is gone if the attempt is over.
            let _ = done.send(value);
        }
    }));
    let guard = AbortOnDrop(abort);
    async move {
        let _guard = guard;
        result.await.unwrap_or_else(|_| Err(stopped()))
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn stopped() -> BlobError {
    BlobError::Upload {
        detail: "the worker is stopping".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_map_as_documented() {
        let end = |code| outcome(Exit { code }, None, "why");
        assert_eq!(end(0).unwrap().unwrap().as_str(), r#"{"exit_code":0}"#);
        assert_eq!(end(75), Err(TaskError::retryable("exit code 75\nwhy")));
        for code in [1, 2, 64, 255, -1] {
            let expected = TaskError::permanent(format!("exit code {code}\nwhy"));
            assert_eq!(end(code), Err(expected));
        }
    }

    #[test]
    fn a_long_standard_error_keeps_its_end() {
        let address = Some(qo_blob::address_of(b"x"));
        let stderr = format!("{}end", "x".repeat(8_000));
        let Err(TaskError::Permanent(text)) = outcome(Exit { code: 1 }, address, &stderr) else {
            panic!("a permanent failure")
        };
        assert!(
            text.len() <= ERROR_MAX_BYTES && text.ends_with("xend"),
            "{text}"
        );
        assert_eq!(JobFailure::parse(&text).output_addr, address);
    }

    #[test]
    fn only_faults_of_the_worker_are_retried() {
        let detail = || "d".to_owned();
        let is_retried = |error: &RunError| matches!(failed(error, ""), TaskError::Retryable(_));
        assert!(is_retried(&RunError::Input { detail: detail() }));
        assert!(is_retried(&RunError::Setup { detail: detail() }));
        assert!(is_retried(&RunError::OutputDropped));
        assert!(!is_retried(&RunError::Trap { detail: detail() }));
        assert!(!is_retried(&RunError::OutputLimit { limit: 1 }));
        let text = failed(&RunError::OutputLimit { limit: 1 }, "x").to_string();
        assert!(text.contains("--wasi-output"), "{text}");
    }
}
