//! Operations on one task: a body under the task's path, or many items in an array.
//!
//! An operation has one body type, and [`OperationBody`] says which [`Operation`] it is. Operations without parameters have no body.

use qo_core::transition::{Failure, FailureKind, ProgressReport};
use qo_core::{Json, LeaseId, QueueName, Task, TaskId};
use qo_engine::{EngineError, Operation};
use serde::{Deserialize, Serialize};

use super::payload::{BytesPayload, one_of};
use super::problem::Problem;
use super::{REASON_MAX_BYTES, is_false};

#[cfg(feature = "openapi")]
use super::schema;

/// The body of an operation.
pub trait OperationBody {
    /// The operation, if the body is valid.
    fn into_operation(self) -> Result<Operation, EngineError>;
}

macro_rules! body {
    ($(#[$doc:meta])* $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct $name {
            /// The lease of the claim.
            #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
            pub lease_id: LeaseId,
            $($fields)*
        }
    };
}

body!(
    /// Ends the attempt and the task with success.
    CompleteBody {
        /// The output: any JSON, stored byte for byte.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::AnyJson>))]
        pub output: Option<Json>,
        /// The output, if it is bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub output_bytes: Option<BytesPayload>,
        /// What the attempt printed; its last 24 KiB are kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub log: Option<String>,
    }
);
body!(
    /// Ends the attempt without success.
    FailBody {
        /// The error message; truncated to 4 KiB.
        pub error: String,
        /// The kind of failure, which decides about retries; `retryable` by default.
        #[serde(default)]
        #[cfg_attr(feature = "openapi", schema(value_type = schema::FailureKind))]
        pub kind: FailureKind,
        /// What the attempt printed; its last 24 KiB are kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub log: Option<String>,
    }
);
body!(
    /// Returns the task to the queue. This does not count as a retry.
    ReleaseBody {
        /// What the attempt printed; its last 24 KiB are kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub log: Option<String>,
    }
);
body!(
    /// Extends the lease.
    RenewBody {
        /// How long the lease is valid from now on; the queue's setting by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2_592_000_000_u64))]
        pub lease_ms: Option<u64>,
    }
);
body!(
    /// Delays the task. This does not count as a retry.
    SnoozeBody {
        /// The delay in milliseconds.
        #[cfg_attr(feature = "openapi", schema(maximum = 31_536_000_000_u64))]
        pub delay_ms: u64,
        /// What the attempt printed; its last 24 KiB are kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub log: Option<String>,
    }
);
body!(
    /// Reports the progress of the attempt.
    ProgressBody {
        /// 0 to 100.
        #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 100))]
        pub percent: f64,
        /// The current step; truncated to 256 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message: Option<String>,
    }
);

/// Cancels the task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelBody {
    /// The reason, for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 4096))]
    pub reason: Option<String>,
}

/// Moves the task to another queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RedriveBody {
    /// The queue.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub to: QueueName,
}

impl OperationBody for RedriveBody {
    fn into_operation(self) -> Result<Operation, EngineError> {
        Ok(Operation::Redrive { to: self.to })
    }
}

impl OperationBody for CompleteBody {
    fn into_operation(self) -> Result<Operation, EngineError> {
        let operation = Operation::Complete {
            lease: self.lease_id,
            output: one_of("output", self.output, self.output_bytes)?,
        };
        Ok(operation.logged(self.log.as_deref()))
    }
}

impl OperationBody for FailBody {
    fn into_operation(self) -> Result<Operation, EngineError> {
        let operation = Operation::Fail {
            lease: self.lease_id,
            failure: Failure {
                kind: self.kind,
                error: self.error.into(),
            },
        };
        Ok(operation.logged(self.log.as_deref()))
    }
}

impl OperationBody for ReleaseBody {
    fn into_operation(self) -> Result<Operation, EngineError> {
        let lease = self.lease_id;
        Ok(Operation::Release { lease }.logged(self.log.as_deref()))
    }
}

impl OperationBody for RenewBody {
    fn into_operation(self) -> Result<Operation, EngineError> {
        Ok(Operation::Renew {
            lease: self.lease_id,
            lease_ms: self.lease_ms,
        })
    }
}

impl OperationBody for SnoozeBody {
    fn into_operation(self) -> Result<Operation, EngineError> {
        let operation = Operation::Snooze {
            lease: self.lease_id,
            delay_ms: self.delay_ms,
        };
        Ok(operation.logged(self.log.as_deref()))
    }
}

impl OperationBody for ProgressBody {
    fn into_operation(self) -> Result<Operation, EngineError> {
        Ok(Operation::Progress {
            lease: self.lease_id,
            report: ProgressReport {
                percent: self.percent,
                message: self.message.map(Into::into),
            },
        })
    }
}

impl OperationBody for CancelBody {
    fn into_operation(self) -> Result<Operation, EngineError> {
        let reason = self.reason;
        if reason
            .as_ref()
            .is_some_and(|text| text.len() > REASON_MAX_BYTES)
        {
            return Err(EngineError::BadRequest(format!(
                "the reason is longer than {REASON_MAX_BYTES} bytes"
            )));
        }
        Ok(Operation::Cancel { reason })
    }
}

/// One item of an array of workers' operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutcomeItem {
    /// The task.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: TaskId,
    /// Ends the attempt and the task with success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<CompleteBody>,
    /// Ends the attempt without success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<FailBody>,
    /// Returns the task to the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseBody>,
    /// Extends the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<RenewBody>,
    /// Delays the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snooze: Option<SnoozeBody>,
    /// Reports the progress of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressBody>,
    /// Omits the input from the response, because the worker that claimed the task has it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub omit_input: bool,
}

impl OutcomeItem {
    /// The item of a worker's operation. An operator's operation has none and is returned as the error.
    pub fn new(id: TaskId, operation: Operation) -> Result<Self, Operation> {
        let mut item = Self {
            id,
            complete: None,
            fail: None,
            release: None,
            renew: None,
            snooze: None,
            progress: None,
            omit_input: false,
        };
        match operation {
            Operation::Complete {
                lease: lease_id,
                output,
            } => {
                item.complete = Some(CompleteBody {
                    lease_id,
                    output,
                    output_bytes: None,
                    log: None,
                });
            }
            Operation::Fail {
                lease: lease_id,
                failure,
            } => {
                item.fail = Some(FailBody {
                    lease_id,
                    error: failure.error.into(),
                    kind: failure.kind,
                    log: None,
                });
            }
            Operation::Release { lease: lease_id } => {
                item.release = Some(ReleaseBody {
                    lease_id,
                    log: None,
                });
            }
            Operation::Renew {
                lease: lease_id,
                lease_ms,
            } => item.renew = Some(RenewBody { lease_id, lease_ms }),
            Operation::Snooze {
                lease: lease_id,
                delay_ms,
            } => {
                item.snooze = Some(SnoozeBody {
                    lease_id,
                    delay_ms,
                    log: None,
                });
            }
            Operation::Progress {
                lease: lease_id,
                report,
            } => {
                item.progress = Some(ProgressBody {
                    lease_id,
                    percent: report.percent,
                    message: report.message.map(Into::into),
                });
            }
            Operation::Logged { log, operation } => {
                item = Self::new(id, *operation)?;
                item.set_log(log.into());
            }
            operation => return Err(operation),
        }
        Ok(item)
    }

    /// Adds the log of the attempt to the operation that ends it.
    fn set_log(&mut self, log: String) {
        let log_of = [
            self.complete.as_mut().map(|body| &mut body.log),
            self.fail.as_mut().map(|body| &mut body.log),
            self.release.as_mut().map(|body| &mut body.log),
            self.snooze.as_mut().map(|body| &mut body.log),
        ];
        if let Some(place) = log_of.into_iter().flatten().next() {
            *place = Some(log);
        }
    }

    /// The one operation of the item.
    pub fn into_operation(self) -> Result<(TaskId, Operation), EngineError> {
        let bodies = [
            self.complete.map(OperationBody::into_operation),
            self.fail.map(OperationBody::into_operation),
            self.release.map(OperationBody::into_operation),
            self.renew.map(OperationBody::into_operation),
            self.snooze.map(OperationBody::into_operation),
            self.progress.map(OperationBody::into_operation),
        ];
        let mut bodies = bodies.into_iter().flatten();
        match (bodies.next(), bodies.next()) {
            (Some(operation), None) => Ok((self.id, operation?)),
            _ => Err(EngineError::BadRequest(
                "an outcome has exactly one of complete, fail, release, renew, snooze and progress"
                    .to_owned(),
            )),
        }
    }
}

/// The result of one item of an array: the task, or a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutcomeResult {
    /// The task as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::TaskRecord>))]
    pub task: Option<Task>,
    /// Why it was not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl From<Result<Task, Box<Problem>>> for OutcomeResult {
    fn from(result: Result<Task, Box<Problem>>) -> Self {
        let (task, problem) = match result {
            Ok(task) => (Some(task), None),
            Err(problem) => (None, Some(*problem)),
        };
        Self { task, problem }
    }
}

/// Reads a field that is present, including `null`: `null` is a valid output.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> LeaseId {
        LeaseId::from_random(7)
    }

    #[test]
    fn items_round_trip() {
        let lease = lease();
        let operations = [
            Operation::Complete {
                lease,
                output: Some(Json::null()),
            },
            Operation::Complete {
                lease,
                output: None,
            },
            Operation::Fail {
                lease,
                failure: Failure {
                    kind: FailureKind::Timeout,
                    error: "e".into(),
                },
            },
            Operation::Release { lease },
            Operation::Renew {
                lease,
                lease_ms: Some(1),
            },
            Operation::Snooze { lease, delay_ms: 2 },
            Operation::Progress {
                lease,
                report: ProgressReport {
                    percent: 12.5,
                    message: Some("m".into()),
                },
            },
        ];
        for operation in operations {
            let id = TaskId::from_random(1);
            let item = OutcomeItem::new(id, operation.clone()).unwrap();
            let text = serde_json::to_string(&item).unwrap();
            let item: OutcomeItem = serde_json::from_str(&text).unwrap();
            assert_eq!(item.into_operation().unwrap(), (id, operation), "{text}");
        }
    }

    #[test]
    fn an_item_has_exactly_one_operation() {
        let id = TaskId::from_random(1);
        let mut item = OutcomeItem::new(id, Operation::Release { lease: lease() }).unwrap();
        item.renew = Some(RenewBody {
            lease_id: lease(),
            lease_ms: None,
        });
        assert!(item.clone().into_operation().is_err());
        item.renew = None;
        item.release = None;
        assert!(item.into_operation().is_err());
    }

    #[test]
    fn operators_operations_are_not_items() {
        let id = TaskId::from_random(1);
        let given_back = OutcomeItem::new(id, Operation::Replay).unwrap_err();
        assert_eq!(given_back, Operation::Replay);
    }

    #[test]
    fn the_log_of_an_attempt_is_part_of_the_operation_that_ends_it() {
        let lease = LeaseId::from_random(1);
        let failure = Failure {
            kind: FailureKind::Permanent,
            error: "broken".into(),
        };
        let output = None;
        for operation in [
            Operation::Complete { lease, output },
            Operation::Fail { lease, failure },
            Operation::Release { lease },
            Operation::Snooze { lease, delay_ms: 7 },
        ] {
            let logged = operation.logged(Some("line\n"));
            let item = OutcomeItem::new(TaskId::from_random(2), logged.clone()).unwrap();
            let text = serde_json::to_string(&item).unwrap();
            let again: OutcomeItem = serde_json::from_str(&text).unwrap();
            assert_eq!(again.into_operation().unwrap().1, logged);
        }
    }

    #[test]
    fn a_long_reason_is_rejected() {
        let reason = Some("x".repeat(REASON_MAX_BYTES + 1));
        assert!(CancelBody { reason }.into_operation().is_err());
    }
}
