//! What a worker says of an attempt: singly under the task's path, or many in an array.

use futures_util::future::join;
use futures_util::{StreamExt, stream};
use qo_core::transition::{Failure, FailureKind, ProgressReport};
use qo_core::{Json, LeaseId, Task, TaskId};
use qo_engine::Engine;
use qo_engine::EngineError;
use qo_engine::api::Completion;
use serde::{Deserialize, Serialize};

use super::is_false;
use super::payload::{BytesPayload, one_of};
use super::problem::Problem;

#[cfg(feature = "openapi")]
use super::schema;

/// How many outcomes that are no completions are told at once.
const OUTCOMES_AT_ONCE: usize = 512;

/// Why an attempt failed, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FailureSort {
    /// It may go well next time.
    #[default]
    Retryable,
    /// It will never go well.
    Permanent,
    /// It took too long; it may go well next time.
    Timeout,
    /// The handler stopped because the task was called off.
    Cancelled,
}

impl From<FailureSort> for FailureKind {
    fn from(sort: FailureSort) -> Self {
        match sort {
            FailureSort::Retryable => Self::Retryable,
            FailureSort::Permanent => Self::Permanent,
            FailureSort::Timeout => Self::Timeout,
            FailureSort::Cancelled => Self::Cancelled,
        }
    }
}

impl From<FailureKind> for FailureSort {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Retryable => Self::Retryable,
            FailureKind::Permanent => Self::Permanent,
            FailureKind::Timeout => Self::Timeout,
            FailureKind::Cancelled => Self::Cancelled,
        }
    }
}

macro_rules! body {
    ($(#[$doc:meta])* $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct $name {
            /// The claim, as it was handed out.
            #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
            pub lease_id: LeaseId,
            $($fields)*
        }
    };
}

body!(
    /// Ends an attempt, and the task, with success.
    CompleteBody {
        /// What came of it: any JSON, kept to the byte.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::AnyJson>))]
        pub output: Option<Json>,
        /// What came of it, if it is bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub output_bytes: Option<BytesPayload>,
    }
);
body!(
    /// Ends an attempt without success.
    FailBody {
        /// What to tell a person; cut at 4 KiB.
        pub error: String,
        /// What follows from it; `retryable`, if not given.
        #[serde(default)]
        pub kind: FailureSort,
    }
);
body!(
    /// Gives a task back, not counted against its retries.
    ReleaseBody {}
);
body!(
    /// Keeps an attempt alive.
    RenewBody {
        /// How long the claim holds from now on; the queue's default, if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2_592_000_000_u64))]
        pub lease_ms: Option<u64>,
    }
);
body!(
    /// Puts a task off, not counted against its retries.
    SnoozeBody {
        /// For how long.
        #[cfg_attr(feature = "openapi", schema(maximum = 31_536_000_000_u64))]
        pub delay_ms: u64,
    }
);
body!(
    /// Says how far an attempt is.
    ProgressBody {
        /// 0 to 100.
        #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 100))]
        pub percent: f64,
        /// What it is doing; cut at 256 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message: Option<String>,
    }
);

/// What is said of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It ended well.
    Complete(CompleteBody),
    /// It did not.
    Fail(FailBody),
    /// Its task is given back.
    Release(ReleaseBody),
    /// It goes on.
    Renew(RenewBody),
    /// Its task is put off.
    Snooze(SnoozeBody),
    /// It is so far.
    Progress(ProgressBody),
}

impl Outcome {
    /// Its name in paths and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::Fail(_) => "fail",
            Self::Release(_) => "release",
            Self::Renew(_) => "renew",
            Self::Snooze(_) => "snooze",
            Self::Progress(_) => "progress",
        }
    }

    /// The claim that it is about.
    pub fn lease(&self) -> LeaseId {
        match self {
            Self::Complete(body) => body.lease_id,
            Self::Fail(body) => body.lease_id,
            Self::Release(body) => body.lease_id,
            Self::Renew(body) => body.lease_id,
            Self::Snooze(body) => body.lease_id,
            Self::Progress(body) => body.lease_id,
        }
    }

    /// Whether the attempt is over with it.
    pub fn ends_attempt(&self) -> bool {
        !matches!(self, Self::Renew(_) | Self::Progress(_))
    }

    /// Says it to an engine.
    pub async fn tell(self, engine: &dyn Engine, id: TaskId) -> Result<Task, EngineError> {
        match self {
            Self::Complete(body) => {
                let output = one_of("output", body.output, body.output_bytes)?;
                engine.complete(id, body.lease_id, output).await
            }
            Self::Fail(body) => {
                let failure = Failure {
                    kind: body.kind.into(),
                    error: body.error.into(),
                };
                engine.fail(id, body.lease_id, failure).await
            }
            Self::Release(body) => engine.release(id, body.lease_id).await,
            Self::Renew(body) => engine.renew(id, body.lease_id, body.lease_ms).await,
            Self::Snooze(body) => engine.snooze(id, body.lease_id, body.delay_ms).await,
            Self::Progress(body) => {
                let report = ProgressReport {
                    percent: body.percent,
                    message: body.message.map(Into::into),
                };
                engine.progress(id, body.lease_id, report).await
            }
        }
    }
}

/// One outcome of an array: a task, and one thing that is said of its attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutcomeItem {
    /// The task.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: TaskId,
    /// It ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<CompleteBody>,
    /// It did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<FailBody>,
    /// Its task is given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseBody>,
    /// It goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<RenewBody>,
    /// Its task is put off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snooze: Option<SnoozeBody>,
    /// It is so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressBody>,
    /// Leave the input out of the answer: whoever claimed the task knows it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub omit_input: bool,
}

/// Says many outcomes to an engine; what became of each, in order. Completions, which most are, go to it together.
pub async fn tell_many(
    engine: &dyn Engine,
    outcomes: Vec<(TaskId, Outcome)>,
) -> Vec<Result<Task, EngineError>> {
    let mut results: Vec<Result<Task, EngineError>> = Vec::with_capacity(outcomes.len());
    let (mut completions, mut completed) = (Vec::new(), Vec::new());
    let mut others = Vec::new();
    for (index, (id, outcome)) in outcomes.into_iter().enumerate() {
        // What is not overwritten below is what was wrong with it.
        results.push(Err(EngineError::Closed));
        match outcome {
            Outcome::Complete(body) => match one_of("output", body.output, body.output_bytes) {
                Ok(output) => {
                    completed.push(index);
                    completions.push(Completion {
                        id,
                        lease: body.lease_id,
                        output,
                    });
                }
                Err(error) => results[index] = Err(error),
            },
            outcome => others.push((index, id, outcome)),
        }
    }
    let others = stream::iter(others)
        .map(|(index, id, outcome)| async move { (index, outcome.tell(engine, id).await) })
        .buffer_unordered(OUTCOMES_AT_ONCE)
        .collect::<Vec<_>>();
    let (ended, others) = join(engine.complete_many(completions), others).await;
    for (index, result) in completed.into_iter().zip(ended).chain(others) {
        results[index] = result;
    }
    results
}

impl OutcomeItem {
    /// The form of the API.
    pub fn new(id: TaskId, outcome: Outcome) -> Self {
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
        match outcome {
            Outcome::Complete(body) => item.complete = Some(body),
            Outcome::Fail(body) => item.fail = Some(body),
            Outcome::Release(body) => item.release = Some(body),
            Outcome::Renew(body) => item.renew = Some(body),
            Outcome::Snooze(body) => item.snooze = Some(body),
            Outcome::Progress(body) => item.progress = Some(body),
        }
        item
    }

    /// The one thing that is said.
    pub fn into_outcome(self) -> Result<(TaskId, Outcome), EngineError> {
        let said = [
            self.complete.map(Outcome::Complete),
            self.fail.map(Outcome::Fail),
            self.release.map(Outcome::Release),
            self.renew.map(Outcome::Renew),
            self.snooze.map(Outcome::Snooze),
            self.progress.map(Outcome::Progress),
        ];
        let mut said = said.into_iter().flatten();
        match (said.next(), said.next()) {
            (Some(outcome), None) => Ok((self.id, outcome)),
            _ => Err(EngineError::BadRequest(
                "an outcome has exactly one of complete, fail, release, renew, snooze and progress"
                    .to_owned(),
            )),
        }
    }
}

/// What became of one outcome of an array: the task, or why not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutcomeAnswer {
    /// The task as it is now, if the outcome was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::TaskRecord>))]
    pub task: Option<Task>,
    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl From<Result<Task, Box<Problem>>> for OutcomeAnswer {
    fn from(result: Result<Task, Box<Problem>>) -> Self {
        let (task, problem) = match result {
            Ok(task) => (Some(task), None),
            Err(problem) => (None, Some(*problem)),
        };
        Self { task, problem }
    }
}

/// Calls a task off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelBody {
    /// Why, for a person to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 4096))]
    pub reason: Option<String>,
}

/// Reads a field that is there as what it says, `null` included: `null` is an output like any other.
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
    fn outcomes_come_back_as_they_were() {
        let outcomes = [
            Outcome::Complete(CompleteBody {
                lease_id: lease(),
                output: Some(Json::null()),
                output_bytes: None,
            }),
            Outcome::Complete(CompleteBody {
                lease_id: lease(),
                output: None,
                output_bytes: None,
            }),
            Outcome::Fail(FailBody {
                lease_id: lease(),
                error: "e".to_owned(),
                kind: FailureSort::Timeout,
            }),
            Outcome::Release(ReleaseBody { lease_id: lease() }),
            Outcome::Renew(RenewBody {
                lease_id: lease(),
                lease_ms: Some(1),
            }),
            Outcome::Snooze(SnoozeBody {
                lease_id: lease(),
                delay_ms: 2,
            }),
            Outcome::Progress(ProgressBody {
                lease_id: lease(),
                percent: 12.5,
                message: Some("m".to_owned()),
            }),
        ];
        for outcome in outcomes {
            let id = TaskId::from_random(1);
            let text = serde_json::to_string(&OutcomeItem::new(id, outcome.clone())).unwrap();
            let item: OutcomeItem = serde_json::from_str(&text).unwrap();
            assert_eq!(item.into_outcome().unwrap(), (id, outcome), "{text}");
        }
    }

    #[test]
    fn exactly_one_thing_is_said() {
        let id = TaskId::from_random(1);
        let release = ReleaseBody { lease_id: lease() };
        let mut item = OutcomeItem::new(id, Outcome::Release(release.clone()));
        item.renew = Some(RenewBody {
            lease_id: lease(),
            lease_ms: None,
        });
        assert!(item.clone().into_outcome().is_err());
        item.renew = None;
        item.release = None;
        assert!(item.into_outcome().is_err());
    }
}
