//! One hour of a queue, as the objects in its bucket: the data of the dashboard's tests and screenshots.
//!
//! `cargo run --example dashboard_story -- NOW_MS` prints one JSON line per object, `{"key": ..., "body": ...}`, in the order in
//! which to write them. All tasks come from the core's transitions, so that only valid tasks occur. The same time gives the same
//! output.

mod scenes;

use std::error::Error;
use std::io::Write as _;

use qo::model::keys::{IndexEntry, Key};
use qo::model::task::encode;
use qo::model::transition::{Action, Command, Submission, submit};
use qo::model::{Jitter, LeaseId, OpId, Payload, Status};
use qo::{Failure, FailureKind, Json, Task, TaskId, Timestamp};

type StoryResult<T> = Result<T, Box<dyn Error>>;

fn main() -> StoryResult<()> {
    let now = std::env::args()
        .nth(1)
        .ok_or("the time in milliseconds is missing")?;
    let mut story = Story::new(Timestamp::from_millis(now.parse()?));
    story.build()?;
    let mut out = std::io::stdout().lock();
    for (key, body) in story.objects {
        writeln!(out, "{}", serde_json::json!({ "key": key, "body": body }))?;
    }
    Ok(())
}

struct Story {
    now: Timestamp,
    random: u64,
    objects: Vec<(String, String)>,
}

/// A task to submit.
struct PlannedTask {
    task_type: &'static str,
    queue: &'static str,
    input: String,
    at: Timestamp,
    tags: Vec<&'static str>,
    priority: u8,
    retries: u32,
}

impl Story {
    fn new(now: Timestamp) -> Self {
        Self {
            now,
            random: 0x2545_F491_4F6C_DD1D,
            objects: Vec::new(),
        }
    }

    /// The next of a fixed sequence of numbers below `limit` (xorshift).
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.below(u64::MAX)) << 64 | u128::from(self.below(u64::MAX))
    }

    fn ago(&self, millis: i64) -> Timestamp {
        Timestamp::from_millis(self.now.as_millis() - millis)
    }

    fn submitted(&mut self, plan: PlannedTask) -> StoryResult<Task> {
        self.submitted_for(plan, None)
    }

    fn submitted_for(&mut self, plan: PlannedTask, due: Option<Timestamp>) -> StoryResult<Task> {
        let id = TaskId::from_random(self.wide());
        let input = Payload::Inline(Json::parse(plan.input)?);
        let mut submission = Submission::new(id, plan.task_type.parse()?, input);
        submission.queue = plan.queue.parse()?;
        submission.priority = plan.priority;
        submission.max_retries = Some(plan.retries);
        submission.available_at = due;
        for tag in plan.tags {
            submission.tags.push(tag.parse()?);
        }
        Ok(submit(submission, OpId::from_random(self.wide()), plan.at)?)
    }

    fn apply(&mut self, task: &mut Task, action: Action, at: i64) -> StoryResult<()> {
        let op = OpId::from_random(self.wide());
        Ok(task.apply(Command { op, action }, Timestamp::from_millis(at))?)
    }

    fn claim(&mut self, task: &mut Task, at: i64) -> StoryResult<()> {
        let worker = if task.queue.as_str() == "billing" {
            "worker-billing"
        } else {
            "worker-eu-1"
        };
        self.claim_as(task, worker, at, 30_000)
    }

    fn claim_as(
        &mut self,
        task: &mut Task,
        worker: &str,
        at: i64,
        lease_ms: u64,
    ) -> StoryResult<()> {
        let action = Action::Claim {
            worker: worker.parse()?,
            lease: LeaseId::from_random(self.wide()),
            lease_ms,
        };
        self.apply(task, action, at)
    }

    fn fail(
        &mut self,
        task: &mut Task,
        kind: FailureKind,
        error: &str,
        at: i64,
    ) -> StoryResult<()> {
        let lease = task.lease_id.ok_or("only a running task can fail")?;
        let failure = Failure {
            kind,
            error: error.into(),
        };
        self.apply(
            task,
            Action::Fail {
                lease,
                failure,
                jitter: Jitter::NONE,
            },
            at,
        )
    }

    fn complete(&mut self, task: &mut Task, output: &str, at: i64) -> StoryResult<()> {
        let lease = task
            .lease_id
            .ok_or("only a running task can be completed")?;
        let output = Some(Payload::Inline(Json::parse(output)?));
        self.apply(task, Action::Complete { lease, output }, at)
    }

    fn store(&mut self, task: &Task) -> StoryResult<()> {
        let body = String::from_utf8(encode(task)?)?;
        self.objects.push((Key::Task(task.id).to_string(), body));
        Ok(())
    }

    /// Stores a task and its index entry.
    fn keep(&mut self, task: &Task) -> StoryResult<()> {
        self.store(task)?;
        let entry = match (task.status, task.lease_expires_at) {
            (Status::Pending, _) => Some(IndexEntry::of(task).key(self.now)),
            (Status::Running, Some(expires_at)) => Some(Key::Lease {
                minute: expires_at.minute(),
                id: task.id,
                attempt: task.attempt,
            }),
            _ => None,
        };
        self.objects
            .extend(entry.map(|key| (key.to_string(), String::new())));
        Ok(())
    }
}

fn planned(
    task_type: &'static str,
    queue: &'static str,
    input: &str,
    at: Timestamp,
) -> PlannedTask {
    PlannedTask {
        task_type,
        queue,
        input: input.to_owned(),
        at,
        tags: Vec::new(),
        priority: 5,
        retries: 3,
    }
}
