//! `qo submit --many`: one task per line, in batches, with bounded memory.
//!
//! A thread reads the lines; the bytes read but not yet submitted are bounded. Each batch contains the lines available at that
//! moment, so slow input is not held back. After a crash, earlier batches stay submitted. To submit the file again without
//! duplicates, give each line an id or an idempotency key.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use qo::{IdempotencyScope, Json, Queue, RetryPolicy, SubmitRequest, Tag, TaskId, TaskType};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::submit;
use crate::args::submit::{hold, on_conflict, on_failure, scope};
use crate::args::{SubmitArgs, TaskArgs, values};
use crate::failure::{Failure, FailureKind};
use crate::output::progress::Progress;
use crate::output::style::{BOLD, RED};
use crate::output::{Screen, text};
use crate::session::Session;

/// Maximum number of tasks per batch.
const BATCH_TASKS_MAX: usize = 500;
/// Maximum length of a line.
const LINE_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Maximum number of bytes read but not yet submitted.
const BUFFERED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum number of failures to print one by one, and number of failures after which the command gives up.
const FAILURES_PRINTED_MAX: u64 = 20;
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
    let mut batches = BatchSubmitter {
        queue: &queue,
        args,
        progress: Progress::new(&session.screen, "submitting", None),
        screen: &mut session.screen,
        counts: Counts::default(),
    };
    let result = batches.submit_all(&mut lines).await;
    let counts = batches.counts;
    drop(batches);
    queue.close().await;
    session.screen.note(counts.summary());
    result?;
    counts.into_result()
}

/// A line with its number, or the error that ended the input.
struct Line {
    number: u64,
    text: Result<String, Failure>,
    /// Returns the line's bytes to the budget when dropped.
    _permit: Option<OwnedSemaphorePermit>,
}

fn read_lines(mut source: Box<dyn BufRead + Send>) -> mpsc::Receiver<Line> {
    let (sender, lines) = mpsc::channel(BATCH_TASKS_MAX);
    let budget = Arc::new(Semaphore::new(BUFFERED_BYTES_MAX));
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
            // The semaphore is never closed, so there is always a permit.
            let permit = handle
                .block_on(Arc::clone(&budget).acquire_many_owned(size))
                .ok();
            let line = Line {
                number,
                text,
                _permit: permit,
            };
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// Reads the next line. After an error, reading stops.
fn read_line(source: &mut dyn BufRead) -> Option<Result<String, Failure>> {
    let mut bytes = Vec::new();
    let read = source
        .take(u64::from(LINE_BYTES_MAX) + 1)
        .read_until(b'\n', &mut bytes);
    match read {
        Ok(0) => None,
        Ok(_) if bytes.len() > LINE_BYTES_MAX as usize => Some(Err(Failure::bad_input(format!(
            "the line is longer than {LINE_BYTES_MAX} bytes; the rest was not read"
        )))),
        Ok(_) => {
            Some(String::from_utf8(bytes).map_err(|_| {
                Failure::bad_input("the line is not valid UTF-8; the rest was not read")
            }))
        }
        Err(error) => Some(Err(Failure::bad_input(format!(
            "cannot read the next line: {error}"
        )))),
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    submitted: u64,
    duplicates: u64,
    failed: u64,
    /// Tasks that may be stored although the store did not confirm it.
    doubtful: u64,
    kind: Option<FailureKind>,
}

/// Why a line was not submitted, as far as this process knows.
struct LineFailure {
    failure: Failure,
    is_doubtful: bool,
}

impl From<Failure> for LineFailure {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            is_doubtful: false,
        }
    }
}

impl From<qo::Error> for LineFailure {
    fn from(error: qo::Error) -> Self {
        Self {
            is_doubtful: error.is_in_doubt(),
            failure: error.into(),
        }
    }
}

impl Counts {
    /// All lines that were not confirmed.
    fn unconfirmed(&self) -> u64 {
        self.failed + self.doubtful
    }

    fn add_failure(&mut self, kind: FailureKind, is_doubtful: bool) {
        if is_doubtful {
            self.doubtful += 1;
        } else {
            self.failed += 1;
        }
        self.kind = Some(match self.kind {
            None => kind,
            Some(before) if before == kind => kind,
            Some(_) => FailureKind::Other,
        });
    }

    fn summary(&self) -> String {
        let mut parts = vec![format!("{} submitted", text::count(self.submitted, "task"))];
        if self.duplicates > 0 {
            parts.push(format!(
                "{} already existed",
                text::grouped(self.duplicates)
            ));
        }
        if self.failed > 0 {
            parts.push(format!("{} failed", text::grouped(self.failed)));
        }
        if self.doubtful > 0 {
            parts.push(format!(
                "{} unconfirmed (they may be stored)",
                text::grouped(self.doubtful)
            ));
        }
        parts.join(", ")
    }

    fn into_result(self) -> Result<(), Failure> {
        match self.kind {
            None => Ok(()),
            Some(kind) if self.doubtful == 0 => Err(Failure::new(
                kind,
                format!(
                    "{} could not be submitted",
                    text::count(self.failed, "line")
                ),
            )),
            Some(kind) => Err(Failure::new(
                kind,
                format!(
                    "{} could not be submitted, and for {} the store did not confirm whether they are stored",
                    text::count(self.failed, "line"),
                    text::count(self.doubtful, "line")
                ),
            )
            .hint("`qo list` shows what is stored; lines with an id or an idempotency key can be submitted again")),
        }
    }
}

struct BatchSubmitter<'a> {
    queue: &'a Queue,
    args: &'a SubmitArgs,
    screen: &'a mut Screen,
    progress: Progress,
    counts: Counts,
}

impl BatchSubmitter<'_> {
    async fn submit_all(&mut self, lines: &mut mpsc::Receiver<Line>) -> Result<(), Failure> {
        let mut batch = Vec::new();
        while lines.recv_many(&mut batch, BATCH_TASKS_MAX).await > 0 {
            self.submit_batch(std::mem::take(&mut batch)).await?;
            let done = self.counts.submitted + self.counts.duplicates + self.counts.unconfirmed();
            self.progress.set(done);
            if self.counts.unconfirmed() >= FAILURES_MAX {
                return Err(Failure::new(
                    self.counts.kind.unwrap_or(FailureKind::Other),
                    format!(
                        "stopped after {} failures; the remaining lines were not submitted",
                        self.counts.unconfirmed()
                    ),
                ));
            }
        }
        Ok(())
    }

    async fn submit_batch(&mut self, lines: Vec<Line>) -> Result<(), Failure> {
        let mut requests = Vec::new();
        // One entry per line, in order: `Ok` takes the next result of the submit.
        let mut plan = Vec::new();
        for line in &lines {
            let request = match &line.text {
                Ok(text) => request(self.queue, self.args, text),
                Err(failure) => Err(failure.clone()),
            };
            plan.push((line.number, request.map(|request| requests.push(request))));
        }
        let sent = requests.len();
        let mut results = self.queue.submit_many(requests).await.into_iter();
        let mut store_failures = 0;
        for (number, planned) in plan {
            let result = match planned {
                Ok(()) => results.next().map_or_else(
                    || Err(Failure::new(FailureKind::Other, "the queue returned no result").into()),
                    |result| result.map_err(LineFailure::from),
                ),
                Err(failure) => Err(failure.into()),
            };
            match result {
                Ok(submitted) => {
                    self.report_submitted(number, submitted.task.id, submitted.duplicate)?;
                }
                Err(failure) => {
                    store_failures += usize::from(matches!(
                        failure.failure.kind,
                        FailureKind::Unavailable | FailureKind::Denied | FailureKind::Unsupported
                    ));
                    self.report_failed(number, &failure)?;
                }
            }
        }
        // The lines stay in memory until here, so their bytes return to the budget only now.
        drop(lines);
        if sent > 0 && store_failures == sent {
            return Err(Failure::new(
                self.counts.kind.unwrap_or(FailureKind::Other),
                if self.counts.doubtful > 0 {
                    "the store does not respond; the remaining lines were not submitted"
                } else {
                    "the store accepts no tasks; the remaining lines were not submitted"
                },
            ));
        }
        Ok(())
    }

    fn report_submitted(&mut self, line: u64, id: TaskId, duplicate: bool) -> Result<(), Failure> {
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

    fn report_failed(&mut self, line: u64, failure: &LineFailure) -> Result<(), Failure> {
        let LineFailure {
            failure,
            is_doubtful,
        } = failure;
        self.counts.add_failure(failure.kind, *is_doubtful);
        if self.screen.json {
            let value = serde_json::json!({ "line": line, "error": failure.to_json_body() });
            return self.screen.json(&value);
        }
        if self.counts.unconfirmed() <= FAILURES_PRINTED_MAX {
            let label = self.screen.paint_notes.paint(RED, &format!("line {line}:"));
            self.screen.note(format_args!("{label} {failure}"));
        } else if self.counts.unconfirmed() == FAILURES_PRINTED_MAX + 1 {
            let more = self
                .screen
                .paint_notes
                .paint(BOLD, "further failures are counted but not printed");
            self.screen.note(more);
        }
        Ok(())
    }
}

/// A line with `--full`.
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
    delay: Option<LineDuration>,
    at: Option<String>,
    expires_in: Option<LineDuration>,
    expires_at: Option<String>,
    timeout: Option<LineDuration>,
    retries: Option<u32>,
    retry_policy: Option<RetryPolicy>,
    #[serde(default)]
    tags: Vec<String>,
    idempotency_key: Option<String>,
    idempotency_scope: Option<String>,
    idempotency_window: Option<LineDuration>,
    idempotency_hold: Option<String>,
    on_conflict: Option<String>,
    ordering_key: Option<String>,
    on_failure: Option<String>,
    limit_key: Option<String>,
    group: Option<String>,
}

/// A duration: a number of seconds, or a string such as `5m`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum LineDuration {
    Seconds(f64),
    Text(String),
}

impl LineDuration {
    fn parse(self) -> Result<Duration, String> {
        match self {
            Self::Seconds(seconds) => values::duration(&seconds.to_string()),
            Self::Text(text) => values::duration(&text),
        }
    }
}

/// Builds the submit request for a line.
pub(crate) fn request(
    queue: &Queue,
    args: &SubmitArgs,
    line: &str,
) -> Result<SubmitRequest, Failure> {
    let line = line.trim();
    if !args.many.full {
        let input = Json::parse(line)?;
        return Ok(submit::build(queue, &args.task, &args.policy, input)?.build()?);
    }
    let mut full: FullLine = serde_json::from_str(line).map_err(|error| {
        Failure::bad_input(format!("expected a JSON object with task fields: {error}"))
    })?;
    let input = full.input.take().unwrap_or_else(Json::null);
    let policy = full.retry_policy.take();
    let mut task = args.task.clone();
    override_with(&mut task, full).map_err(Failure::bad_input)?;
    let mut task = submit::build(queue, &task, &args.policy, Json::parse(input.as_str())?)?;
    if let Some(policy) = policy {
        task = task.retry_policy(policy);
    }
    Ok(task.build()?)
}

/// Overrides the flags with the fields of a line.
fn override_with(task: &mut TaskArgs, line: FullLine) -> Result<(), String> {
    fn set<T>(field: &mut Option<T>, value: Option<T>) {
        if value.is_some() {
            *field = value;
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
    set(&mut task.task_type, name);
    set(&mut task.id, line.id);
    set(&mut task.queue, line.queue);
    set(&mut task.priority, line.priority);
    if line.delay.is_some() || line.at.is_some() {
        (task.delay, task.at) = (None, None);
    }
    if line.expires_in.is_some() || line.expires_at.is_some() {
        (task.expires_in, task.expires_at) = (None, None);
    }
    set(
        &mut task.delay,
        parsed("delay", line.delay, LineDuration::parse)?,
    );
    set(
        &mut task.at,
        parsed("at", line.at, |text| values::timestamp(&text))?,
    );
    let expires_in = parsed("expires_in", line.expires_in, LineDuration::parse)?;
    set(&mut task.expires_in, expires_in);
    let expires_at = parsed("expires_at", line.expires_at, |text| {
        values::timestamp(&text)
    })?;
    set(&mut task.expires_at, expires_at);
    set(
        &mut task.timeout,
        parsed("timeout", line.timeout, LineDuration::parse)?,
    );
    set(&mut task.retries, line.retries);
    set(&mut task.idempotency_key, line.idempotency_key);
    let key_scope: Option<IdempotencyScope> =
        parsed("idempotency_scope", line.idempotency_scope, |text| {
            scope(&text)
        })?;
    set(&mut task.idempotency_scope, key_scope);
    let window = parsed(
        "idempotency_window",
        line.idempotency_window,
        LineDuration::parse,
    )?;
    set(&mut task.idempotency_window, window);
    let key_hold = parsed("idempotency_hold", line.idempotency_hold, |text| {
        hold(&text)
    })?;
    set(&mut task.idempotency_hold, key_hold);
    let conflict = parsed("on_conflict", line.on_conflict, |text| on_conflict(&text))?;
    set(&mut task.on_conflict, conflict);
    set(&mut task.ordering_key, line.ordering_key);
    let policy = parsed("on_failure", line.on_failure, |text| on_failure(&text))?;
    set(&mut task.on_failure, policy);
    set(&mut task.limit_key, line.limit_key);
    set(&mut task.group, line.group);
    for tag in &line.tags {
        task.tag
            .push(Tag::new(tag).map_err(|error| format!("tags: {error}"))?);
    }
    if task.delay.is_some() && task.at.is_some() {
        return Err("delay and at are mutually exclusive".to_owned());
    }
    if task.expires_in.is_some() && task.expires_at.is_some() {
        return Err("expires_in and expires_at are mutually exclusive".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use qo::{EngineError, StoreError};

    use super::*;

    fn unavailable(in_doubt: bool) -> LineFailure {
        LineFailure::from(qo::Error::from(EngineError::Store(
            StoreError::Unavailable {
                key: "tasks/0/x.json".to_owned(),
                detail: "no response".to_owned(),
                attempts: 3,
                elapsed: Duration::from_secs(40),
                in_doubt,
            },
        )))
    }

    #[test]
    fn a_task_that_may_be_stored_is_not_counted_as_failed() {
        let mut counts = Counts::default();
        for failure in [unavailable(true), unavailable(true), unavailable(false)] {
            counts.add_failure(failure.failure.kind, failure.is_doubtful);
        }
        assert_eq!((counts.failed, counts.doubtful), (1, 2));
        let summary = counts.summary();
        assert!(
            summary.contains("1 failed") && summary.contains("2 unconfirmed"),
            "{summary}"
        );
        let failure = counts.into_result().unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert!(failure.message.contains("2 lines"), "{failure}");
    }
}
