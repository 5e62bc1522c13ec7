//! `qo status`: one task in detail.

use std::fmt::Write as _;

use anstyle::Style;
use qo::{KeyHold, OnFailure, Queue, Status, Task, Timestamp, WaitReason};
use qo_core::Payload;

use crate::args::StatusArgs;
use crate::failure::Failure;
use crate::output::style::{BOLD, DIM, Paint, RED, of_status};
use crate::output::watch::watch;
use crate::output::{Screen, pretty, sealed, text, time};
use crate::session::Session;

/// Maximum lines and characters of an input, output or error without `--full`.
const LINES_MAX: usize = 20;
const CHARACTERS_MAX: usize = 2_000;

pub(super) async fn run(args: &StatusArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    if let Some(interval) = args.watch.watch {
        let title = format!("qo status {}", args.id);
        return watch(screen, &queue, interval, &title, async |screen| {
            render(args, &queue, screen).await
        })
        .await;
    }
    let text = render(args, &queue, screen).await?;
    Ok(screen.write(&text)?)
}

async fn render(args: &StatusArgs, queue: &Queue, screen: &mut Screen) -> Result<String, Failure> {
    let task = queue.get(args.id).await?;
    let waits_for = queue.waits_for(&task).await?;
    if screen.json {
        let record = as_json(&task, waits_for.as_ref(), queue, args.full).await?;
        return Ok(format!("{record}\n"));
    }
    let mut card = Card::new(screen.paint, screen.width(), args.full);
    card.head(&task);
    card.facts(&task, waits_for.as_ref(), queue.now());
    let input = task.input();
    let opened = match &input {
        payload if needs_reading(payload, args.full) => Some(queue.input(&task).await),
        _ => None,
    };
    card.read_payload("input", &input, opened)?;
    if let Some(output) = task.output() {
        let opened = match &output {
            payload if needs_reading(payload, args.full) => {
                let output = queue.output(&task).await;
                Some(output.map(|output| output.unwrap_or_else(qo::Json::null)))
            }
            _ => None,
        };
        card.read_payload("output", &output, opened)?;
    }
    Ok(card.text)
}

/// Whether a payload has to be read to show it, or to say why it cannot be decrypted.
fn needs_reading(payload: &Payload, full: bool) -> bool {
    match payload {
        Payload::Stored(_) => full,
        Payload::Inline(json) => sealed::payload(json).is_some(),
    }
}

/// A payload as it is stored, if it cannot be decrypted.
async fn readable<T>(
    read: Result<T, qo::Error>,
    stored: impl Future<Output = Result<T, qo::EngineError>>,
) -> Result<T, Failure> {
    match read {
        Err(qo::Error::Encryption(_)) => Ok(stored.await.map_err(qo::Error::from)?),
        read => Ok(read?),
    }
}

/// The stored record, and what the task waits for. With `full`, payloads stored outside the record are included.
async fn as_json(
    task: &Task,
    waits_for: Option<&WaitReason>,
    queue: &Queue,
    full: bool,
) -> Result<String, Failure> {
    let mut record = serde_json::to_string(task)?;
    if let Some(reason) = waits_for {
        // The text of the payloads must not change, so the record is not parsed.
        record.truncate(record.len() - 1);
        let reason = serde_json::to_string(reason)?;
        let _ = write!(record, ",\"waits_for\":{reason}}}");
    }
    if !full {
        return Ok(record);
    }
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&record)?;
    if matches!(task.input(), Payload::Stored(_)) {
        let input = readable(queue.input(task).await, queue.engine().input(task)).await?;
        fields.insert("input".to_owned(), input.to_value()?);
    }
    if matches!(task.output(), Some(Payload::Stored(_)))
        && let Some(output) =
            readable(queue.output(task).await, queue.engine().output(task)).await?
    {
        fields.insert("output".to_owned(), output.to_value()?);
    }
    Ok(serde_json::to_string(&fields)?)
}

/// A task as lines of labels and values.
struct Card {
    text: String,
    paint: Paint,
    width: Option<usize>,
    full: bool,
}

impl Card {
    fn new(paint: Paint, width: Option<usize>, full: bool) -> Self {
        Self {
            text: String::new(),
            paint,
            width,
            full,
        }
    }

    fn head(&mut self, task: &Task) {
        let id = self.paint.paint(BOLD, &task.id.to_string());
        let status = self
            .paint
            .paint(of_status(task.status), task.status.as_str());
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.text, "{id}  {status}\n");
    }

    fn fact(&mut self, name: &str, value: &str) {
        self.styled(name, value, Style::new());
    }

    fn styled(&mut self, name: &str, value: &str, style: Style) {
        let name = self.paint.paint(DIM, &format!("{name:<10}"));
        let room = self.width.map(|width| width.saturating_sub(13).max(20));
        let mut value = text::clean(value);
        if let Some(room) = room
            && !self.full
        {
            value = text::cut(&value, room);
        }
        let _ = writeln!(self.text, "  {name} {}", self.paint.paint(style, &value));
    }

    fn facts(&mut self, task: &Task, waits_for: Option<&WaitReason>, now: Timestamp) {
        let priority = match task.priority {
            qo_core::task::PRIORITY_DEFAULT => String::new(),
            other => format!(", priority {other}"),
        };
        self.fact("type", task.task_type.as_str());
        self.fact("queue", &format!("{}{priority}", task.queue));
        self.fact("attempts", &attempts(task));
        self.fact("submitted", &time::both(task.created_at, now));
        self.times(task, now);
        if let Some(reason) = waits_for {
            self.fact("waits", &reason.to_string());
        }
        if task.stops_line() {
            self.styled(
                "stops",
                "the tasks with the same ordering key; replay or cancel this task to let them run",
                RED,
            );
        }
        if let Some(progress) = &task.progress {
            let message = progress
                .message
                .as_deref()
                .map(|text| format!(" {text}"))
                .unwrap_or_default();
            let reported = time::relative(progress.at, now);
            self.fact(
                "progress",
                &format!("{:.0}%{message} ({reported})", progress.percent),
            );
        }
        if task.cancel_requested {
            self.styled(
                "cancel",
                "requested; the worker sees it at its next lease renewal",
                RED,
            );
        }
        if let Some(error) = &task.last_error {
            self.block("error", &text::clean_lines(&sealed::error(error)), RED);
        }
        if !task.tags.is_empty() {
            let tags: Vec<&str> = task.tags.iter().map(qo::Tag::as_str).collect();
            self.fact("tags", &tags.join(", "));
        }
        if let Some(key) = &task.idempotency_key {
            let until = match task.idempotency_until {
                Some(until) if until > now => {
                    format!(", valid for {}", time::short(until.since(now)))
                }
                Some(_) => ", expired".to_owned(),
                None => String::new(),
            };
            let held = match (task.idempotency_hold, task.key_holds(now)) {
                (KeyHold::Kept, _) => "",
                (KeyHold::Unfinished, true) => ", held until it is finished",
                (KeyHold::Waiting, true) => ", held until it is started",
                (_, false) => ", no longer held",
            };
            self.fact("key", &format!("{key}{held}{until}"));
        }
        if let Some(key) = &task.ordering_key {
            let policy = match task.ordering_on_failure {
                OnFailure::Continue => "",
                OnFailure::Stop => ", stops on failure",
            };
            self.fact("order", &format!("{key}{policy}"));
        }
        if let Some(key) = &task.limit_key {
            self.fact("limit key", key.as_str());
        }
        if let Some(group) = &task.fairness_group {
            self.fact("group", group.as_str());
        }
        self.text.push('\n');
    }

    fn times(&mut self, task: &Task, now: Timestamp) {
        match task.status {
            Status::Pending => {
                self.fact("due", &time::both(task.available_at, now));
                if let Some(expires_at) = task.expires_at {
                    self.fact("expires", &time::both(expires_at, now));
                }
                if let Some(max_wait_ms) = task.max_wait_ms {
                    let until = task.available_at.plus_millis(max_wait_ms);
                    self.fact(
                        "fails",
                        &format!("{}, if it still waits", time::both(until, now)),
                    );
                }
            }
            Status::Running => {
                if let Some(worker) = &task.worker_id {
                    self.fact("worker", worker.as_str());
                }
                if let Some(started_at) = task.started_at {
                    self.fact("started", &time::both(started_at, now));
                }
                if let Some(end) = task.lease_expires_at {
                    let left = if end > now {
                        format!(
                            "{} left ({})",
                            time::duration(end.since(now)),
                            time::absolute(end)
                        )
                    } else {
                        format!(
                            "expired {} ago; the task will be recovered soon",
                            time::duration(now.since(end))
                        )
                    };
                    self.fact("lease", &left);
                }
                self.fact(
                    "timeout",
                    &time::duration(std::time::Duration::from_secs(task.timeout_seconds)),
                );
            }
            _ => {
                if let Some(worker) = &task.worker_id {
                    self.fact("worker", worker.as_str());
                }
                let ended = task.completed_at.unwrap_or(task.updated_at);
                let took = task.started_at.map_or(String::new(), |started_at| {
                    format!(", took {}", time::duration(ended.since(started_at)))
                });
                self.fact("finished", &format!("{}{took}", time::both(ended, now)));
            }
        }
    }

    /// Shows a payload, or why it cannot be decrypted. `read` is its content, if it had to be read.
    fn read_payload(
        &mut self,
        name: &str,
        payload: &Payload,
        read: Option<Result<qo::Json, qo::Error>>,
    ) -> Result<(), Failure> {
        match read {
            None => self.payload(name, payload),
            Some(Ok(json)) => self.payload(name, &Payload::Inline(json)),
            Some(Err(qo::Error::Encryption(error))) => self.styled(name, &error.to_string(), DIM),
            Some(Err(error)) => return Err(error.into()),
        }
        Ok(())
    }

    fn payload(&mut self, name: &str, payload: &Payload) {
        match payload {
            Payload::Inline(json) => {
                let shown = text::clean_lines(&pretty::pretty(json.as_str()));
                self.block(name, &shown, Style::new());
            }
            Payload::Stored(reference) => {
                let size = text::bytes(reference.size);
                self.styled(
                    name,
                    &format!("{size}, stored outside the record; show it with --full"),
                    DIM,
                );
            }
        }
    }

    /// A value of several lines, indented and truncated.
    fn block(&mut self, name: &str, value: &str, style: Style) {
        let name = self.paint.paint(DIM, &format!("{name:<10}"));
        let mut left = CHARACTERS_MAX;
        let mut lines = value.lines().peekable();
        let mut shown = 0;
        let mut label = format!("  {name} ");
        while let Some(line) = lines.next() {
            let line = if self.full {
                line.to_owned()
            } else {
                text::cut(line, left.max(1))
            };
            left = left.saturating_sub(line.chars().count());
            let _ = writeln!(self.text, "{label}{}", self.paint.paint(style, &line));
            label = " ".repeat(13);
            shown += 1;
            if !self.full && lines.peek().is_some() && (shown == LINES_MAX || left == 0) {
                let more = self
                    .paint
                    .paint(DIM, "… truncated; show all of it with --full");
                let _ = writeln!(self.text, "{label}{more}");
                break;
            }
        }
    }
}

fn attempts(task: &Task) -> String {
    match (task.attempt, task.retry_count) {
        (0, _) => format!("0 (max {} retries)", task.max_retries),
        (attempt, retries) => {
            format!("{attempt} ({retries} of {} retries used)", task.max_retries)
        }
    }
}
