//! A task's stored form where people do not read it: bytes, a quarter of the size of the JSON and several times as fast.
//!
//! The broker writes a record three times in a task's life and reads every live one when it opens, so that the text of field
//! names would be most of what it writes and parses.
//!
//! ```text
//! form 1 │ flags │ what every task has │ what the flags say it also has │ events
//! ```
//!
//! Numbers are variable in length (seven bits a byte, the lowest first), times are distances from `created_at`, texts and lists
//! have their length in front. A record that holds anything that this form has no place for, such as a field of a later
//! version, is stored as JSON, whose first byte tells it apart. So nothing is ever lost, and nothing needs a second copy of the
//! rules of [`super::codec`].

use super::codec::{check, decode as decode_json, encode as encode_json};
use super::{DecodeError, Event, History, IdempotencyScope, Progress, Status, Task};
use crate::id::{LeaseId, OpId, TaskId};
use crate::json::Json;
use crate::limits::{EVENTS_MAX, RECORD_MAX_BYTES, TAGS_MAX};
use crate::payload::{PayloadRef, Sha256};
use crate::retry::RetryPolicy;
use crate::time::Timestamp;

/// The first byte of this form. JSON begins with another one.
const FORM: u8 = 1;
/// What most records take beside their payloads.
const RECORD_BYTES: usize = 320;

/// What a record may have, each a bit of its flags.
mod has {
    pub(super) const OP_ID: u32 = 1;
    pub(super) const EXPIRES_AT: u32 = 1 << 1;
    pub(super) const STARTED_AT: u32 = 1 << 2;
    pub(super) const LEASE: u32 = 1 << 3;
    pub(super) const INPUT: u32 = 1 << 4;
    pub(super) const INPUT_REF: u32 = 1 << 5;
    pub(super) const OUTPUT: u32 = 1 << 6;
    pub(super) const OUTPUT_REF: u32 = 1 << 7;
    pub(super) const RETRY_POLICY: u32 = 1 << 8;
    pub(super) const COMPLETED_AT: u32 = 1 << 9;
    pub(super) const WORKER: u32 = 1 << 10;
    pub(super) const ERROR: u32 = 1 << 11;
    pub(super) const KEY: u32 = 1 << 12;
    pub(super) const KEY_UNTIL: u32 = 1 << 13;
    pub(super) const TAGS: u32 = 1 << 14;
    pub(super) const TRACE: u32 = 1 << 15;
    pub(super) const PROGRESS: u32 = 1 << 16;
    pub(super) const CANCEL: u32 = 1 << 17;
    pub(super) const DROPPED: u32 = 1 << 18;
    pub(super) const ALL: u32 = (1 << 19) - 1;
}

/// What an event may have.
mod event_has {
    pub(super) const FROM: u8 = 1;
    pub(super) const WORKER: u8 = 1 << 1;
    pub(super) const ERROR: u8 = 1 << 2;
    pub(super) const OP_ID: u8 = 1 << 3;
    pub(super) const ALL: u8 = (1 << 4) - 1;
}

/// Writes a task, with its input or without.
pub fn encode_compact(task: &Task, with_input: bool) -> Result<Vec<u8>, DecodeError> {
    if !fits(task) {
        if with_input || task.input.is_none() {
            return encode_json(task);
        }
        let mut without = task.clone();
        without.input = None;
        return encode_json(&without);
    }
    let mut out = Writer(Vec::with_capacity(RECORD_BYTES + task.inline_bytes()));
    out.task(task, with_input);
    Ok(out.0)
}

/// Reads a task that [`encode_compact`] wrote. The bytes may be anything.
pub fn decode_compact(bytes: &[u8]) -> Result<Task, DecodeError> {
    if bytes.len() > RECORD_MAX_BYTES {
        return Err(DecodeError::TooLarge { size: bytes.len() });
    }
    let Some((&FORM, rest)) = bytes.split_first() else {
        return decode_json(bytes);
    };
    let mut reader = Reader(rest);
    let task = reader.task()?;
    if !reader.0.is_empty() {
        return Err(broken("something follows its end"));
    }
    check(&task).map_err(DecodeError::Inconsistent)?;
    Ok(task)
}

/// Whether this form has a place for all of it. What is none of qo's own making may be odd in other ways than having fields of
/// later versions.
fn fits(task: &Task) -> bool {
    let is_plain = |reference: &Option<Box<PayloadRef>>| {
        reference
            .as_ref()
            .is_none_or(|reference| reference.extra.is_empty())
    };
    let is_known = |progress: &Progress| {
        progress.extra.is_empty() && (0.0..=100.0).contains(&progress.percent)
    };
    task.extra.is_empty()
        && task.retry_policy.extra.is_empty()
        && task.events.iter().all(|event| event.extra.is_empty())
        && is_plain(&task.input_ref)
        && is_plain(&task.output_ref)
        && task.progress.as_deref().is_none_or(is_known)
        && task.lease_id.is_some() == task.lease_expires_at.is_some()
        && task.events.len() <= EVENTS_MAX
        && task.tags.len() <= TAGS_MAX
}

fn broken(what: &str) -> DecodeError {
    DecodeError::Syntax(what.to_owned())
}

/// What a task has, as its flags say it.
fn flags_of(task: &Task, has_input: bool, has_policy: bool) -> u32 {
    [
        (task.op_id.is_some(), has::OP_ID),
        (task.expires_at.is_some(), has::EXPIRES_AT),
        (task.started_at.is_some(), has::STARTED_AT),
        (task.lease_id.is_some(), has::LEASE),
        (has_input, has::INPUT),
        (task.input_ref.is_some(), has::INPUT_REF),
        (task.output.is_some(), has::OUTPUT),
        (task.output_ref.is_some(), has::OUTPUT_REF),
        (has_policy, has::RETRY_POLICY),
        (task.completed_at.is_some(), has::COMPLETED_AT),
        (task.worker_id.is_some(), has::WORKER),
        (task.last_error.is_some(), has::ERROR),
        (task.idempotency_key.is_some(), has::KEY),
        (task.idempotency_until.is_some(), has::KEY_UNTIL),
        (!task.tags.is_empty(), has::TAGS),
        (task.traceparent.is_some(), has::TRACE),
        (task.progress.is_some(), has::PROGRESS),
        (task.cancel_requested, has::CANCEL),
        (task.events_dropped > 0, has::DROPPED),
    ]
    .into_iter()
    .fold(
        0,
        |flags, (is_there, flag)| if is_there { flags | flag } else { flags },
    )
}

struct Writer(Vec<u8>);

impl Writer {
    fn task(&mut self, task: &Task, with_input: bool) {
        let input = task.input.as_ref().filter(|_| with_input);
        let has_policy = task.retry_policy != RetryPolicy::default();
        let flags = flags_of(task, input.is_some(), has_policy);
        let created_at = task.created_at;

        self.0.push(FORM);
        self.number(u64::from(flags));
        self.0.extend_from_slice(task.id.as_uuid().as_bytes());
        self.text(task.task_type.as_str());
        self.text(task.queue.as_str());
        self.0.push(task.priority);
        self.0.push(task.status as u8);
        self.0.push(task.idempotency_scope as u8);
        self.number(task.revision);
        self.number(task.sequence);
        self.number(created_at.as_millis().unsigned_abs());
        self.time(task.updated_at, created_at);
        self.time(task.available_at, created_at);
        self.number(task.timeout_seconds);
        self.number(u64::from(task.max_retries));
        self.number(u64::from(task.retry_count));
        self.number(u64::from(task.attempt));

        if let Some(op) = task.op_id {
            self.0.extend_from_slice(op.as_uuid().as_bytes());
        }
        for at in [task.expires_at, task.started_at].into_iter().flatten() {
            self.time(at, created_at);
        }
        if let (Some(lease), Some(until)) = (task.lease_id, task.lease_expires_at) {
            self.0.extend_from_slice(lease.as_uuid().as_bytes());
            self.time(until, created_at);
        }
        self.payload(input, task.input_ref.as_deref());
        self.payload(task.output.as_ref(), task.output_ref.as_deref());
        if has_policy {
            let policy = &task.retry_policy;
            self.number(policy.initial_interval_ms);
            self.number(policy.max_interval_ms);
            self.0.extend_from_slice(&policy.multiplier.to_le_bytes());
            self.0
                .extend_from_slice(&policy.jitter_percent.to_le_bytes());
        }
        if let Some(at) = task.completed_at {
            self.time(at, created_at);
        }
        if let Some(worker) = &task.worker_id {
            self.text(worker.as_str());
        }
        if let Some(error) = &task.last_error {
            self.text(error);
        }
        if let Some(key) = &task.idempotency_key {
            self.text(key.as_str());
        }
        if let Some(at) = task.idempotency_until {
            self.time(at, created_at);
        }
        if !task.tags.is_empty() {
            self.number(task.tags.len() as u64);
            for tag in &task.tags {
                self.text(tag.as_str());
            }
        }
        if let Some(trace) = &task.traceparent {
            self.text(trace.as_str());
        }
        if let Some(progress) = &task.progress {
            self.0.extend_from_slice(&progress.percent.to_le_bytes());
            self.time(progress.at, created_at);
            self.0.push(u8::from(progress.message.is_some()));
            if let Some(message) = &progress.message {
                self.text(message);
            }
        }
        if task.events_dropped > 0 {
            self.number(task.events_dropped);
        }
        self.number(task.events.len() as u64);
        for event in task.events.iter() {
            self.event(event, created_at);
        }
    }

    fn payload(&mut self, inline: Option<&Json>, stored: Option<&PayloadRef>) {
        if let Some(json) = inline {
            self.text(json.as_str());
        }
        if let Some(reference) = stored {
            self.number(reference.size);
            self.0.extend_from_slice(reference.sha256.as_bytes());
        }
    }

    fn event(&mut self, event: &Event, created_at: Timestamp) {
        let flags = [
            (event.from.is_some(), event_has::FROM),
            (event.worker.is_some(), event_has::WORKER),
            (event.error.is_some(), event_has::ERROR),
            (event.op_id.is_some(), event_has::OP_ID),
        ]
        .into_iter()
        .fold(
            0,
            |flags, (is_there, flag)| if is_there { flags | flag } else { flags },
        );
        self.0.push(flags);
        self.time(event.at, created_at);
        self.0.push(event.to as u8);
        self.number(u64::from(event.attempt));
        if let Some(from) = event.from {
            self.0.push(from as u8);
        }
        if let Some(worker) = &event.worker {
            self.text(worker.as_str());
        }
        if let Some(error) = &event.error {
            self.text(error);
        }
        if let Some(op) = event.op_id {
            self.0.extend_from_slice(op.as_uuid().as_bytes());
        }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    /// A time may lie before the submit, so that the lowest bit is the sign.
    fn time(&mut self, at: Timestamp, created_at: Timestamp) {
        let distance = at.as_millis() - created_at.as_millis();
        self.number((distance.unsigned_abs() << 1) | u64::from(distance < 0));
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn task(&mut self) -> Result<Task, DecodeError> {
        let flags = u32::try_from(self.number()?)
            .ok()
            .filter(|flags| flags & !has::ALL == 0)
            .ok_or_else(|| broken("it has parts of a later form; use a newer version of qo"))?;
        let has = |flag: u32| flags & flag != 0;
        let id = TaskId::from_bytes(self.array()?);
        let task_type = self.parsed()?;
        let queue = self.parsed()?;
        let priority = self.byte()?;
        let status = self.status()?;
        let idempotency_scope = self.scope()?;
        let revision = self.number()?;
        let sequence = self.number()?;
        let created_at = i64::try_from(self.number()?).map_err(|_| broken("its time is none"))?;
        let created_at = Timestamp::from_millis(created_at);
        let updated_at = self.time(created_at)?;
        let available_at = self.time(created_at)?;
        let timeout_seconds = self.number()?;
        let max_retries = self.number_of_32_bits()?;
        let retry_count = self.number_of_32_bits()?;
        let attempt = self.number_of_32_bits()?;
        let op_id = self.maybe(has(has::OP_ID), |of| Ok(OpId::from_bytes(of.array()?)))?;
        let expires_at = self.maybe(has(has::EXPIRES_AT), |of| of.time(created_at))?;
        let started_at = self.maybe(has(has::STARTED_AT), |of| of.time(created_at))?;
        let lease_id = self.maybe(has(has::LEASE), |of| Ok(LeaseId::from_bytes(of.array()?)))?;
        let lease_expires_at = self.maybe(has(has::LEASE), |of| of.time(created_at))?;
        let input = self.maybe(has(has::INPUT), Self::json)?;
        let input_ref = self.maybe(has(has::INPUT_REF), Self::reference)?;
        let output = self.maybe(has(has::OUTPUT), Self::json)?;
        let output_ref = self.maybe(has(has::OUTPUT_REF), Self::reference)?;
        let retry_policy = self.maybe(has(has::RETRY_POLICY), Self::policy)?;
        let completed_at = self.maybe(has(has::COMPLETED_AT), |of| of.time(created_at))?;
        let worker_id = self.maybe(has(has::WORKER), Self::parsed)?;
        let last_error = self.maybe(has(has::ERROR), |of| Ok(of.text()?.into()))?;
        let idempotency_key = self.maybe(has(has::KEY), Self::parsed)?;
        let idempotency_until = self.maybe(has(has::KEY_UNTIL), |of| of.time(created_at))?;
        let tags = self.maybe(has(has::TAGS), |of| of.list(TAGS_MAX, Self::parsed))?;
        let traceparent = self.maybe(has(has::TRACE), Self::parsed)?;
        let progress = self.maybe(has(has::PROGRESS), |of| of.progress(created_at))?;
        let events_dropped = self.maybe(has(has::DROPPED), Self::number)?;
        let events = self.list(EVENTS_MAX, |of| of.event(created_at))?;
        Ok(Task {
            id,
            task_type,
            shard: id.shard(),
            queue,
            priority,
            status,
            revision,
            op_id,
            sequence,
            available_at,
            expires_at,
            started_at,
            lease_expires_at,
            input,
            input_ref,
            output,
            output_ref,
            timeout_seconds,
            max_retries,
            retry_count,
            retry_policy: retry_policy.unwrap_or_default(),
            created_at,
            updated_at,
            completed_at,
            worker_id,
            lease_id,
            attempt,
            last_error,
            idempotency_key,
            idempotency_scope,
            idempotency_until,
            tags: tags.unwrap_or_default(),
            traceparent,
            progress,
            cancel_requested: has(has::CANCEL),
            events: History::of(events),
            events_dropped: events_dropped.unwrap_or(0),
            extra: crate::extra::Extra::default(),
        })
    }

    fn event(&mut self, created_at: Timestamp) -> Result<Event, DecodeError> {
        let flags = self.byte()?;
        if flags & !event_has::ALL != 0 {
            return Err(broken(
                "an event has parts of a later form; use a newer version of qo",
            ));
        }
        let has = |flag: u8| flags & flag != 0;
        Ok(Event {
            at: self.time(created_at)?,
            to: self.status()?,
            attempt: self.number_of_32_bits()?,
            from: self.maybe(has(event_has::FROM), Self::status)?,
            worker: self.maybe(has(event_has::WORKER), Self::parsed)?,
            error: self.maybe(has(event_has::ERROR), |of| Ok(of.text()?.into()))?,
            op_id: self.maybe(has(event_has::OP_ID), |of| {
                Ok(OpId::from_bytes(of.array()?))
            })?,
            extra: crate::extra::Extra::default(),
        })
    }

    fn progress(&mut self, created_at: Timestamp) -> Result<Box<Progress>, DecodeError> {
        let percent = f64::from_le_bytes(self.array()?);
        if !(0.0..=100.0).contains(&percent) {
            return Err(broken("its progress is none"));
        }
        let at = self.time(created_at)?;
        let message = match self.byte()? {
            0 => None,
            1 => Some(self.text()?.into()),
            _ => return Err(broken("its progress is none")),
        };
        Ok(Box::new(Progress {
            percent,
            message,
            at,
            extra: crate::extra::Extra::default(),
        }))
    }

    fn policy(&mut self) -> Result<RetryPolicy, DecodeError> {
        let policy = RetryPolicy {
            initial_interval_ms: self.number()?,
            max_interval_ms: self.number()?,
            multiplier: f64::from_le_bytes(self.array()?),
            jitter_percent: f64::from_le_bytes(self.array()?),
            extra: crate::extra::Extra::default(),
        };
        // JSON has no place for other numbers, so that no record holds any.
        if policy.multiplier.is_finite() && policy.jitter_percent.is_finite() {
            Ok(policy)
        } else {
            Err(broken("its retry policy holds what is no number"))
        }
    }

    fn reference(&mut self) -> Result<Box<PayloadRef>, DecodeError> {
        let size = self.number()?;
        Ok(Box::new(PayloadRef::new(
            size,
            Sha256::from_bytes(self.array()?),
        )))
    }

    fn json(&mut self) -> Result<Json, DecodeError> {
        Json::parse(self.text()?).map_err(|error| DecodeError::Syntax(error.to_string()))
    }

    fn status(&mut self) -> Result<Status, DecodeError> {
        let number = self.byte()?;
        Status::ALL
            .into_iter()
            .find(|status| *status as u8 == number)
            .ok_or_else(|| broken("its status is none"))
    }

    fn scope(&mut self) -> Result<IdempotencyScope, DecodeError> {
        let number = self.byte()?;
        [
            IdempotencyScope::Queue,
            IdempotencyScope::Type,
            IdempotencyScope::Global,
        ]
        .into_iter()
        .find(|scope| *scope as u8 == number)
        .ok_or_else(|| broken("the scope of its key is none"))
    }

    fn parsed<T>(&mut self) -> Result<T, DecodeError>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        let text = self.text()?;
        text.parse()
            .map_err(|error: T::Err| DecodeError::Syntax(error.to_string()))
    }

    fn list<T>(
        &mut self,
        max: usize,
        mut one: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count > max {
            return Err(broken("one of its lists is too long"));
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn maybe<T>(
        &mut self,
        is_there: bool,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        is_there.then(|| read(self)).transpose()
    }

    fn time(&mut self, created_at: Timestamp) -> Result<Timestamp, DecodeError> {
        let number = self.number()?;
        let distance = number >> 1;
        Ok(if number & 1 == 1 {
            created_at.minus_millis(distance)
        } else {
            created_at.plus_millis(distance)
        })
    }

    fn number_of_32_bits(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?).map_err(|_| broken("a number is too large"))
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(broken("a number is too large"))
    }

    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| broken("a text is none"))
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| broken("it is cut off"))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        match self.0.split_at_checked(count) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(broken("it is cut off")),
        }
    }
}
