//! The effect of a handler's result on its task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use qo::async_trait;
use qo::testing::memory_queue;
use qo::{Context, Json, Status, TaskError, TaskHandler, TaskInput, Worker};

use super::{Job, SharedBucket, greet, job, submit};

#[tokio::test]
async fn the_output_of_a_success_is_stored() {
    let (queue, _clock) = memory_queue().unwrap();
    let task = submit(&queue, "Ada").await;
    let worker = Worker::builder(queue.clone()).handle::<Job>(greet).build();
    let report = worker.unwrap().drain().await.unwrap();
    assert_eq!((report.completed, report.attempts()), (1, 1));
    let done = queue.get(task.id).await.unwrap();
    assert_eq!((done.status, done.attempt), (Status::Completed, 1));
    let output = queue.output(&done).await.unwrap().unwrap();
    assert_eq!(output.as_str(), "\"hello Ada\"");
}

#[tokio::test]
async fn tasks_of_a_former_type_name_are_handled() {
    let (queue, _clock) = memory_queue().unwrap();
    let old = queue.task("old_job", &job("Grace")).unwrap();
    let old = old.submit().await.unwrap().task;
    let foreign = queue.task("other", &1).unwrap().submit().await.unwrap();
    let worker = Worker::builder(queue.clone()).handle::<Job>(greet).build();
    assert_eq!(worker.unwrap().drain().await.unwrap().completed, 1);
    let done = queue.get(old.id).await.unwrap();
    assert_eq!(done.status, Status::Completed);
    let foreign = queue.get(foreign.task.id).await.unwrap();
    assert_eq!(
        foreign.status,
        Status::Pending,
        "the worker does not claim it"
    );
}

#[tokio::test]
async fn a_panic_is_a_failed_attempt_with_its_message() {
    async fn panics(job: Job, _: Context) -> Result<(), TaskError> {
        panic!("no such table: {}", job.name);
    }
    let (queue, clock) = memory_queue().unwrap();
    let task = queue.task(Job::TYPE, &job("users")).unwrap().retries(1);
    let task = task.submit().await.unwrap().task;
    let worker = Worker::builder(queue.clone()).handle::<Job>(panics).build();
    let worker = worker.unwrap();
    let report = worker.drain().await.unwrap();
    assert_eq!((report.retried, report.attempts()), (1, 1));
    let waiting = queue.get(task.id).await.unwrap();
    assert_eq!(waiting.status, Status::Pending);
    let error = waiting.last_error.unwrap();
    assert!(error.contains("panicked: no such table: users"), "{error}");

    clock.advance(Duration::from_secs(2));
    assert_eq!(
        worker.drain().await.unwrap().failed,
        1,
        "retries are used up"
    );
    assert_eq!(queue.get(task.id).await.unwrap().status, Status::Failed);
}

#[tokio::test]
async fn each_error_has_its_effect() {
    async fn fails(job: Job, _: Context) -> Result<(), TaskError> {
        match job.name.as_str() {
            "permanent" => Err(TaskError::permanent("no such customer")),
            "timeout" => Err(TaskError::Timeout),
            "cancelled" => Err(TaskError::Cancelled),
            "question mark" => {
                let number: u8 = "twelve".parse()?;
                panic!("{number} is no number");
            }
            _ => Err(TaskError::Snooze(Duration::from_hours(1))),
        }
    }
    let (queue, clock) = memory_queue().unwrap();
    let worker = Worker::builder(queue.clone()).handle::<Job>(fails).build();
    let worker = worker.unwrap();
    for (name, status, retry_count, text) in [
        ("permanent", Status::Failed, 0, "no such customer"),
        ("timeout", Status::Pending, 1, "timeout"),
        ("cancelled", Status::Cancelled, 0, "cancel"),
        ("question mark", Status::Pending, 1, "invalid digit"),
    ] {
        let task = submit(&queue, name).await;
        assert_eq!(worker.drain().await.unwrap().attempts(), 1, "{name}");
        let task = queue.get(task.id).await.unwrap();
        assert_eq!(
            (task.status, task.retry_count),
            (status, retry_count),
            "{name}"
        );
        let error = task.last_error.unwrap();
        assert!(error.contains(text), "{name}: {error}");
    }

    let task = submit(&queue, "snooze").await;
    assert_eq!(worker.drain().await.unwrap().snoozed, 1);
    let snoozed = queue.get(task.id).await.unwrap();
    assert_eq!((snoozed.status, snoozed.retry_count), (Status::Pending, 0));
    assert_eq!(snoozed.available_at, clock.now().plus_millis(3_600_000));
}

#[tokio::test]
async fn an_invalid_input_fails_permanently() {
    let (queue, _clock) = memory_queue().unwrap();
    let task = queue.task(Job::TYPE, &serde_json::json!({ "nom": 1 }));
    let task = task.unwrap().submit().await.unwrap().task;
    let worker = Worker::builder(queue.clone()).handle::<Job>(greet).build();
    assert_eq!(worker.unwrap().drain().await.unwrap().failed, 1);
    let error = queue.get(task.id).await.unwrap().last_error.unwrap();
    assert!(
        error.contains("input for job: missing field `name`"),
        "{error}"
    );
}

#[tokio::test]
async fn an_output_that_cannot_be_stored_fails_permanently() {
    async fn nests(_: Job, _: Context) -> Result<serde_json::Value, TaskError> {
        let mut value = serde_json::json!(1);
        for _ in 0..200 {
            value = serde_json::json!([value]);
        }
        Ok(value)
    }
    let (queue, _clock) = memory_queue().unwrap();
    let task = submit(&queue, "deep").await;
    let worker = Worker::builder(queue.clone()).handle::<Job>(nests).build();
    assert_eq!(worker.unwrap().drain().await.unwrap().failed, 1);
    let error = queue.get(task.id).await.unwrap().last_error.unwrap();
    assert!(
        error.contains("output of job") && error.contains("nested"),
        "{error}"
    );
}

#[tokio::test]
async fn an_output_that_is_too_large_fails_permanently() {
    async fn talks(_: Job, _: Context) -> Result<String, TaskError> {
        Ok("x".repeat(2_000))
    }
    let bucket = SharedBucket::new();
    let queue = bucket.queue_with(bucket.store.clone(), 1_000);
    let task = submit(&queue, "large").await;
    let worker = Worker::builder(queue.clone()).handle::<Job>(talks).build();
    assert_eq!(worker.unwrap().drain().await.unwrap().failed, 1);
    let error = queue.get(task.id).await.unwrap().last_error.unwrap();
    assert!(
        error.contains("output was rejected") && error.contains("2002"),
        "{error}"
    );
}

#[tokio::test]
async fn a_snooze_that_is_too_long_fails_permanently() {
    async fn sleeps(_: Job, _: Context) -> Result<(), TaskError> {
        Err(TaskError::Snooze(Duration::MAX))
    }
    let (queue, _clock) = memory_queue().unwrap();
    let task = submit(&queue, "long").await;
    let worker = Worker::builder(queue.clone()).handle::<Job>(sleeps).build();
    assert_eq!(worker.unwrap().drain().await.unwrap().failed, 1);
    let error = queue.get(task.id).await.unwrap().last_error.unwrap();
    assert!(error.contains("snooze was rejected"), "{error}");
}

#[tokio::test]
async fn handlers_share_values_by_type() {
    struct Tally(AtomicU32);
    async fn counts(_: Job, context: Context) -> Result<Option<u32>, TaskError> {
        let tally = context.state::<Tally>().ok_or("no tally")?;
        assert!(context.state::<String>().is_none(), "none was added");
        Ok(Some(tally.0.fetch_add(1, Ordering::SeqCst) + 1))
    }
    let (queue, _clock) = memory_queue().unwrap();
    for name in ["a", "b", "c"] {
        submit(&queue, name).await;
    }
    let worker = Worker::builder(queue).state(Tally(AtomicU32::new(10)));
    let worker = worker.handle::<Job>(counts).concurrency(1).build().unwrap();
    assert_eq!(worker.drain().await.unwrap().completed, 3);
}

/// A handler whose type is known only at run time.
struct Echo {
    task_type: String,
    calls: Arc<AtomicU32>,
}

#[async_trait]
impl TaskHandler for Echo {
    fn task_type(&self) -> &str {
        &self.task_type
    }

    fn aliases(&self) -> Vec<String> {
        vec![format!("{}_v1", self.task_type)]
    }

    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        assert_eq!(context.task().attempt, context.attempt());
        assert!(context.remaining() <= Duration::from_mins(5));
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(Some(input))
    }
}

#[tokio::test]
async fn a_handler_can_be_an_object() {
    let (queue, _clock) = memory_queue().unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let handler: Box<dyn TaskHandler> = Box::new(Echo {
        task_type: "echo".to_owned(),
        calls: Arc::clone(&calls),
    });
    let mut ids = Vec::new();
    for task_type in ["echo", "echo_v1"] {
        let task = queue.task(task_type, &[1, 2]).unwrap();
        ids.push(task.submit().await.unwrap().task.id);
    }
    let worker = Worker::builder(queue.clone()).handler(handler).build();
    assert_eq!(worker.unwrap().drain().await.unwrap().completed, 2);
    for id in ids {
        let output = queue.output(&queue.get(id).await.unwrap()).await.unwrap();
        assert_eq!(output.unwrap().as_str(), "[1,2]");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_handlers_log_is_stored_with_the_outcome_of_their_attempt() {
    async fn chatty(job: Job, context: Context) -> Result<(), TaskError> {
        context.log(format!("attempt {} of {}", context.attempt(), job.name));
        context.log("x".repeat(20_000));
        context.log("the end");
        match context.attempt() {
            1 => Err(TaskError::retryable("not yet")),
            2 => Err(TaskError::Snooze(Duration::from_secs(1))),
            _ => Ok(()),
        }
    }
    let (queue, clock) = memory_queue().unwrap();
    let task = submit(&queue, "Ada").await;
    let silent = queue.task("silent", &1).unwrap().submit().await.unwrap();
    let worker = |limit| {
        let worker = Worker::builder(queue.clone()).handle::<Job>(chatty);
        worker.log_limit(limit).build().unwrap()
    };
    for _ in 0..3 {
        worker(100_000).drain().await.unwrap();
        clock.advance(Duration::from_mins(2));
    }
    let done = queue.get(task.id).await.unwrap();
    assert_eq!((done.status, done.logs().len()), (Status::Completed, 3));
    for (log, attempt) in done.logs().iter().zip(1..) {
        assert_eq!(log.attempt, attempt);
        assert!(log.text.len() <= 16 * 1024 && log.text.starts_with('…'));
        assert!(log.text.ends_with("xx\nthe end\n"));
    }
    assert!(queue.get(silent.task.id).await.unwrap().logs().is_empty());
    let off = submit(&queue, "Grace").await;
    worker(0).drain().await.unwrap();
    assert!(queue.get(off.id).await.unwrap().logs().is_empty());
}
