//! Decoding of a record from untrusted bytes.

use super::super::{
    DecodeError, Event, EventAction, History, IdempotencyScope, KeyHold, OnFailure, Progress,
    Status, Task, TaskRetryPolicy,
};
use super::{broken, event_has, has, min_reader, newer};
use crate::id::{LeaseId, OpId, TaskId};
use crate::json::Json;
use crate::limits::{EVENTS_MAX, TAGS_MAX};
use crate::payload::{PayloadRef, Sha256};
use crate::retry::RetryPolicy;
use crate::time::Timestamp;

/// The remaining bytes.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    fn flags(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?)
            .ok()
            .filter(|flags| flags & !has::ALL == 0)
            .ok_or_else(|| newer("it has fields of a later version"))
    }

    pub(super) fn task(&mut self) -> Result<Task, DecodeError> {
        let flags = self.flags()?;
        let has = |flag: u32| flags & flag != 0;
        let id = TaskId::from_bytes(self.array()?);
        let task_type = self.parsed()?;
        let queue = self.parsed()?;
        let priority = self.byte()?;
        let status = self.status()?;
        let idempotency_scope = self.scope()?;
        let revision = self.number()?;
        let sequence = self.number()?;
        let created_at =
            i64::try_from(self.number()?).map_err(|_| broken("its creation time is invalid"))?;
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
        let ordering_key = self.maybe(has(has::ORDERING), Self::parsed)?;
        let ordering_on_failure = self.maybe(has(has::ORDERING), Self::on_failure)?;
        let ordering_turn = self.maybe(has(has::ORDERING_TURN), Self::number)?;
        let max_wait_ms = self.maybe(has(has::MAX_WAIT), Self::number)?;
        let limit_key = self.maybe(has(has::LIMIT_KEY), Self::parsed)?;
        let idempotency_hold = self.maybe(has(has::KEY_HOLD), Self::key_hold)?;
        let fairness_group = self.maybe(has(has::FAIRNESS_GROUP), Self::parsed)?;
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
            max_wait_ms,
            started_at,
            lease_expires_at,
            input,
            input_ref,
            output,
            output_ref,
            timeout_seconds,
            max_retries,
            retry_count,
            retry_policy: retry_policy.map(TaskRetryPolicy::from).unwrap_or_default(),
            created_at,
            updated_at,
            completed_at,
            worker_id,
            lease_id,
            attempt,
            log_index: None,
            last_error,
            idempotency_key,
            idempotency_scope,
            idempotency_queue: None,
            idempotency_until,
            idempotency_hold: idempotency_hold.unwrap_or_default(),
            tags: tags.unwrap_or_default(),
            traceparent,
            progress,
            cancel_requested: has(has::CANCEL),
            events: History::of(events),
            events_dropped: events_dropped.unwrap_or(0),
            min_reader: min_reader(flags),
            ordering_key,
            ordering_on_failure: ordering_on_failure.unwrap_or_default(),
            ordering_turn: ordering_turn.unwrap_or(0),
            limit_key,
            fairness_group,
            fairness_rank: None,
            logs: None,
            extra: crate::extra::Extra::default(),
        })
    }

    fn event(&mut self, created_at: Timestamp) -> Result<Event, DecodeError> {
        let flags = self.byte()?;
        if flags & !event_has::ALL != 0 {
            return Err(newer("an event has fields of a later version"));
        }
        let has = |flag: u8| flags & flag != 0;
        Ok(Event {
            at: self.time(created_at)?,
            to: self.status()?,
            attempt: self.number_of_32_bits()?,
            action: self.maybe(has(event_has::ACTION), Self::event_action)?,
            from: self.maybe(has(event_has::FROM), Self::status)?,
            worker: self.maybe(has(event_has::WORKER), Self::parsed)?,
            error: self.maybe(has(event_has::ERROR), |of| Ok(of.text()?.into()))?,
            op_id: self.maybe(has(event_has::OP_ID), |of| {
                Ok(OpId::from_bytes(of.array()?))
            })?,
            by: None,
            extra: crate::extra::Extra::default(),
        })
    }

    fn progress(&mut self, created_at: Timestamp) -> Result<Box<Progress>, DecodeError> {
        let percent = f64::from_le_bytes(self.array()?);
        if !(0.0..=100.0).contains(&percent) {
            return Err(broken("its progress is invalid"));
        }
        let at = self.time(created_at)?;
        let message = match self.byte()? {
            0 => None,
            1 => Some(self.text()?.into()),
            _ => return Err(broken("its progress is invalid")),
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
        // JSON has no other numbers, so no record contains any.
        if policy.multiplier.is_finite() && policy.jitter_percent.is_finite() {
            Ok(policy)
        } else {
            Err(broken("its retry policy contains an invalid number"))
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
            .ok_or_else(|| newer("its status is unknown"))
    }

    fn event_action(&mut self) -> Result<EventAction, DecodeError> {
        let number = self.byte()?;
        EventAction::ALL
            .into_iter()
            .find(|action| *action as u8 == number)
            .ok_or_else(|| newer("the action of an event is unknown"))
    }

    fn on_failure(&mut self) -> Result<OnFailure, DecodeError> {
        let number = self.byte()?;
        [OnFailure::Continue, OnFailure::Stop]
            .into_iter()
            .find(|policy| *policy as u8 == number)
            .ok_or_else(|| newer("its failure policy is unknown"))
    }

    fn key_hold(&mut self) -> Result<KeyHold, DecodeError> {
        let number = self.byte()?;
        KeyHold::ALL
            .into_iter()
            .find(|hold| *hold as u8 == number)
            .ok_or_else(|| newer("how long it holds its key is unknown"))
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
        .ok_or_else(|| newer("the scope of its idempotency key is unknown"))
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
            return Err(broken("a list is too long"));
        }
        (0..count).map(|_| one(self)).collect()
    }

    fn maybe<T>(
        &mut self,
        is_present: bool,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        is_present.then(|| read(self)).transpose()
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

    pub(super) fn number(&mut self) -> Result<u64, DecodeError> {
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
        std::str::from_utf8(bytes).map_err(|_| broken("a text is not UTF-8"))
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| broken("it is truncated"))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        match self.0.split_at_checked(count) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(broken("it is truncated")),
        }
    }
}
