//! `qo submit --many`: a task for each line, in chunks, with bounded memory.
//!
//! A thread reads lines and hands them over; what it has read and nobody has submitted yet is bounded in bytes. Each chunk takes what is
//! there, so that lines that come slowly are not held back. A crash in the middle leaves the chunks before it submitted; whoever wants to run the
//! file again without adding tasks twice gives each line an id or an idempotency key.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use qo::{IdempotencyScope, Json, Queue, RetryPolicy, SubmitRequest, Tag, TaskId, TaskType};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::submit;
use crate::args::{SubmitArgs, TaskArgs, submit::scope, values};
use crate::failure::{Failure, FailureKind};
use crate::output::progress::Progress;
use crate::output::style::{BOLD, RED};
use crate::output::{Screen, text};
use crate::session::Session;

/// How many tasks are submitted at once.
const CHUNK_TASKS: usize = 500;
/// The longest line.
const LINE_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// How many bytes of lines are held at once.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How many failures are told one by one, and after how many the rest is not tried.
const FAILURES_TOLD: u64 = 20;
const FAILURES_MAX: u64 = 1_000;

pub(super) async fn run(
    args: &SubmitArgs,
    file: &Path,
    session: &mut Session,
) -> Result<(), Failure> {
    let source: Box<dyn BufRead + Send> = if file == Path::new("-") {
        session.screen.take_stdin()
    } else {
        let path = session.environment.directory.join(file);
        Box::new(BufReader::new(submit::open(&path)?))
    };
    let queue = session.connect().await?;
    let mut lines = read_lines(source);
    let mut run = Run {
        queue: &queue,
        args,
        progress: Progress::new(&session.screen, "submitting", None),
        screen: &mut session.screen,
        counts: Counts::default(),
    };
    let outcome = run.all(&mut lines).await;
    let counts = run.counts;
    drop(run);
    queue.close().await;
    session.screen.note(counts.summary());
    outcome?;
    counts.judge()
}

/// A line with its number, or why there are no more.
struct Line {
    number: u64,
    text: Result<String, Failure>,
    /// Frees the room of the line when it is done with.
    _room: Option<OwnedSemaphorePermit>,
}

fn read_lines(mut source: Box<dyn BufRead + Send>) -> mpsc::Receiver<Line> {
    let (sender, lines) = mpsc::channel(CHUNK_TASKS);
    let room = Arc::new(Semaphore::new(HELD_BYTES_MAX));
    let handle = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        for number in 1.. {
            let text = match read_line(&mut *source) {
                None => return,
                Some(Ok(text)) if text.trim().is_empty() => continue,
                Some(text) => text,
            };
            let size = text.as_ref().map_or(0, String::len);
            let size = u32::try_from(size).unwrap_or(LINE_BYTES_MAX);
            let is_last = text.is_err();
            // The semaphore is never closed; without a permit the line would only not be counted.
            let permit = handle
                .block_on(Arc::clone(&room).acquire_many_owned(size))
                .ok();
            let line = Line {
                number,
                text,
                _room: permit,
            };
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// The next line, or why it cannot be read. After an error there is no next one.
fn read_line(source: &mut dyn BufRead) -> Option<Result<String, Failure>> {
    let mut bytes = Vec::new();
    let read = source
        .take(u64::from(LINE_BYTES_MAX) + 1)
        .read_until(b'\n', &mut bytes);
    match read {
        Ok(0) => None,
        Ok(_) if bytes.len() > LINE_BYTES_MAX as usize => Some(Err(Failure::bad_input(format!(
            "the line has more than {LINE_BYTES_MAX} bytes; nothing after it was read"
        )))),
        Ok(_) => {
            Some(String::from_utf8(bytes).map_err(|_| {
                Failure::bad_input("the line is not UTF-8; nothing after it was read")
            }))
        }
        Err(error) => Some(Err(Failure::bad_input(format!("cannot read on: {error}")))),
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    submitted: u64,
    duplicates: u64,
    failed: u64,
    kind: Option<FailureKind>,
}

impl Counts {
    fn fail(&mut self, kind: FailureKind) {
        self.failed += 1;
        self.kind = Some(match self.kind {
            None => kind,
            Some(before) if before == kind => kind,
            Some(_) => FailureKind::Other,
        });
    }

    fn summary(&self) -> String {
        let mut parts = vec![format!("{} submitted", text::count(self.submitted, "task"))];
        if self.duplicates > 0 {
            parts.push(format!("{} there already", text::grouped(self.duplicates)));
        }
        if self.failed > 0 {
            parts.push(format!("{} failed", text::grouped(self.failed)));
        }
        parts.join(", ")
    }

    fn judge(&self) -> Result<(), Failure> {
        match self.kind {
            None => Ok(()),
            Some(kind) => Err(Failure::new(
                kind,
                format!(
                    "{} could not be submitted",
                    text::count(self.failed, "line")
                ),
            )),
        }
    }
}

struct Run<'a> {
    queue: &'a Queue,
    args: &'a SubmitArgs,
    screen: &'a mut Screen,
    progress: Progress,
    counts: Counts,
}

impl Run<'_> {
    async fn all(&mut self, lines: &mut mpsc::Receiver<Line>) -> Result<(), Failure> {
        let mut chunk = Vec::new();
        while lines.recv_many(&mut chunk, CHUNK_TASKS).await > 0 {
            self.chunk(std::mem::take(&mut chunk)).await?;
            let done = self.counts.submitted + self.counts.duplicates + self.counts.failed;
            self.progress.set(done);
            if self.counts.failed >= FAILURES_MAX {
                return Err(Failure::new(
                    self.counts.kind.unwrap_or(FailureKind::Other),
                    format!(
                        "stopped after {} failures; the lines after that were not submitted",
                        self.counts.failed
                    ),
                ));
            }
        }
        Ok(())
    }

    async fn chunk(&mut self, lines: Vec<Line>) -> Result<(), Failure> {
        let mut requests = Vec::new();
        // What each line came to, in their order; a request stands for the next answer.
        let mut plan = Vec::new();
        for line in &lines {
            let request = match &line.text {
                Ok(text) => request(self.queue, self.args, text),
                Err(failure) => Err(failure.clone()),
            };
            plan.push((line.number, request.map(|request| requests.push(request))));
        }
        let sent = requests.len();
        let mut answers = self.queue.submit_many(requests).await.into_iter();
        let mut hopeless = 0;
        for (number, planned) in plan {
            let answer = match planned {
                Ok(()) => match answers.next() {
                    Some(answer) => answer.map_err(Failure::from),
                    None => Err(Failure::new(FailureKind::Other, "the queue gave no answer")),
                },
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(submitted) => self.tell_done(number, submitted.task.id, submitted.duplicate)?,
                Err(failure) => {
                    hopeless += usize::from(matches!(
                        failure.kind,
                        FailureKind::Unavailable | FailureKind::Denied | FailureKind::Unsupported
                    ));
                    self.tell_failed(number, &failure)?;
                }
            }
        }
        // Lines stay in memory until here, so that their room is freed only now.
        drop(lines);
        if sent > 0 && hopeless == sent {
            return Err(Failure::new(
                self.counts.kind.unwrap_or(FailureKind::Other),
                "the store does not take any task; the lines after that were not submitted",
            ));
        }
        Ok(())
    }

    fn tell_done(&mut self, line: u64, id: TaskId, duplicate: bool) -> Result<(), Failure> {
        if duplicate {
            self.counts.duplicates += 1;
        } else {
            self.counts.submitted += 1;
        }
        if self.screen.json {
            let value = serde_json::json!({ "line": line, "id": id, "duplicate": duplicate });
            return self.screen.json(&value);
        }
        if !self.screen.terminals().stdout {
            self.screen.line(id)?;
        }
        Ok(())
    }

    fn tell_failed(&mut self, line: u64, failure: &Failure) -> Result<(), Failure> {
        self.counts.fail(failure.kind);
        if self.screen.json {
            let value = serde_json::json!({ "line": line, "error": failure.to_json_body() });
            return self.screen.json(&value);
        }
        if self.counts.failed <= FAILURES_TOLD {
            let place = self.screen.paint_notes.paint(RED, &format!("line {line}:"));
            self.screen.note(format_args!("{place} {failure}"));
        } else if self.counts.failed == FAILURES_TOLD + 1 {
            let more = self
                .screen
                .paint_notes
                .paint(BOLD, "further failures are only counted");
            self.screen.note(more);
        }
        Ok(())
    }
}

/// The fields of a line of `--full`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FullLine {
    #[serde(rename = "type")]
    task_type: Option<String>,
    #[serde(default)]
    input: Option<Json>,
    id: Option<TaskId>,
    queue: Option<String>,
    priority: Option<u8>,
    delay: Option<Amount>,
    at: Option<String>,
    expires_in: Option<Amount>,
    expires_at: Option<String>,
    timeout: Option<Amount>,
    retries: Option<u32>,
    retry_policy: Option<RetryPolicy>,
    #[serde(default)]
    tags: Vec<String>,
    idempotency_key: Option<String>,
    idempotency_scope: Option<String>,
    idempotency_window: Option<Amount>,
}

/// A duration as a number of seconds, or as a text such as `5m`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Amount {
    Seconds(f64),
    Text(String),
}

impl Amount {
    fn duration(self) -> Result<Duration, String> {
        match self {
            Self::Seconds(seconds) => values::duration(&seconds.to_string()),
            Self::Text(text) => values::duration(&text),
        }
    }
}

/// The request of a line.
pub(crate) fn request(
    queue: &Queue,
    args: &SubmitArgs,
    line: &str,
) -> Result<SubmitRequest, Failure> {
    let line = line.trim();
    if !args.many.full {
        let input = Json::parse(line)?;
        return Ok(submit::describe(queue, &args.task, &args.policy, input)?.build()?);
    }
    let mut full: FullLine = serde_json::from_str(line).map_err(|error| {
        Failure::bad_input(format!("not an object with the fields of a task: {error}"))
    })?;
    let input = full.input.take().unwrap_or_else(Json::null);
    let policy = full.retry_policy.take();
    let mut task = args.task.clone();
    overlay(&mut task, full).map_err(Failure::bad_input)?;
    let mut task = submit::describe(queue, &task, &args.policy, Json::parse(input.as_str())?)?;
    if let Some(policy) = policy {
        task = task.retry_policy(policy);
    }
    Ok(task.build()?)
}

/// Puts what a line says over what the flags say.
fn overlay(task: &mut TaskArgs, line: FullLine) -> Result<(), String> {
    fn over<T>(place: &mut Option<T>, value: Option<T>) {
        if value.is_some() {
            *place = value;
        }
    }
    fn parsed<T, V>(
        field: &str,
        value: Option<V>,
        parse: impl FnOnce(V) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let value = value.map(parse).transpose();
        value.map_err(|problem| format!("{field}: {problem}"))
    }
    let name = parsed("type", line.task_type, |text| {
        TaskType::new(&text).map_err(|error| error.to_string())
    })?;
    over(&mut task.task_type, name);
    over(&mut task.id, line.id);
    over(&mut task.queue, line.queue);
    over(&mut task.priority, line.priority);
    if line.delay.is_some() || line.at.is_some() {
        (task.delay, task.at) = (None, None);
    }
    if line.expires_in.is_some() || line.expires_at.is_some() {
        (task.expires_in, task.expires_at) = (None, None);
    }
    over(
        &mut task.delay,
        parsed("delay", line.delay, Amount::duration)?,
    );
    over(
        &mut task.at,
        parsed("at", line.at, |text| values::timestamp(&text))?,
    );
    let expires_in = parsed("expires_in", line.expires_in, Amount::duration)?;
    over(&mut task.expires_in, expires_in);
    let expires_at = parsed("expires_at", line.expires_at, |text| {
        values::timestamp(&text)
    })?;
    over(&mut task.expires_at, expires_at);
    over(
        &mut task.timeout,
        parsed("timeout", line.timeout, Amount::duration)?,
    );
    over(&mut task.retries, line.retries);
    over(&mut task.idempotency_key, line.idempotency_key);
    let key_scope: Option<IdempotencyScope> =
        parsed("idempotency_scope", line.idempotency_scope, |text| {
            scope(&text)
        })?;
    over(&mut task.idempotency_scope, key_scope);
    let window = parsed(
        "idempotency_window",
        line.idempotency_window,
        Amount::duration,
    )?;
    over(&mut task.idempotency_window, window);
    for tag in &line.tags {
        task.tag
            .push(Tag::new(tag).map_err(|error| format!("tags: {error}"))?);
    }
    if task.delay.is_some() && task.at.is_some() {
        return Err("delay and at exclude each other".to_owned());
    }
    if task.expires_in.is_some() && task.expires_at.is_some() {
        return Err("expires_in and expires_at exclude each other".to_owned());
    }
    Ok(())
}
