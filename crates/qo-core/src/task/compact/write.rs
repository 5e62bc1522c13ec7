//! Encoding of a record.

use super::super::{Event, KeyHold, Task};
use super::{FORM, event_has, has};
use crate::json::Json;
use crate::payload::PayloadRef;
use crate::retry::RetryPolicy;
use crate::time::Timestamp;

/// A growing byte buffer.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn task(&mut self, task: &Task, with_input: bool) {
        let input = task.input.as_ref().filter(|_| with_input);
        let has_policy = *task.retry_policy != RetryPolicy::DEFAULT;
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
        if let Some(key) = &task.ordering_key {
            self.text(key.as_str());
            self.0.push(task.ordering_on_failure as u8);
        }
        if task.ordering_turn > 0 {
            self.number(task.ordering_turn);
        }
        if let Some(max_wait_ms) = task.max_wait_ms {
            self.number(max_wait_ms);
        }
        if let Some(key) = &task.limit_key {
            self.text(key.as_str());
        }
        if task.idempotency_hold != KeyHold::Kept {
            self.0.push(task.idempotency_hold as u8);
        }
        if let Some(group) = &task.fairness_group {
            self.text(group.as_str());
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
            (event.action.is_some(), event_has::ACTION),
        ]
        .into_iter()
        .fold(
            0,
            |flags, (is_present, flag)| if is_present { flags | flag } else { flags },
        );
        self.0.push(flags);
        self.time(event.at, created_at);
        self.0.push(event.to as u8);
        self.number(u64::from(event.attempt));
        if let Some(action) = event.action {
            self.0.push(action as u8);
        }
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

    /// A time may be before the submit, so the lowest bit is the sign.
    fn time(&mut self, at: Timestamp, created_at: Timestamp) {
        let distance = at.as_millis() - created_at.as_millis();
        self.number((distance.unsigned_abs() << 1) | u64::from(distance < 0));
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// The flags of the fields that older versions must not ignore.
pub(super) fn flags_of_features(task: &Task) -> u32 {
    flags_of(task, false, false)
}

/// The flags of a task's optional fields.
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
        (task.ordering_key.is_some(), has::ORDERING),
        (task.ordering_turn > 0, has::ORDERING_TURN),
        (task.max_wait_ms.is_some(), has::MAX_WAIT),
        (task.limit_key.is_some(), has::LIMIT_KEY),
        (task.idempotency_hold != KeyHold::Kept, has::KEY_HOLD),
        (task.fairness_group.is_some(), has::FAIRNESS_GROUP),
    ]
    .into_iter()
    .fold(
        0,
        |flags, (is_present, flag)| if is_present { flags | flag } else { flags },
    )
}
