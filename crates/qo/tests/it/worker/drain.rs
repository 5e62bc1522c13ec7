//! Draining a queue, with a manual clock.

use std::time::Duration;

use qo::testing::memory_queue;
use qo::{Context, RetryPolicy, Status, TaskError, TaskInput, Worker};

use super::{Job, greet, job, submit};

#[tokio::test]
async fn retries_wait_for_the_clock() {
    async fn third_time(_: Job, context: Context) -> Result<u32, TaskError> {
        match context.attempt() {
            3 => Ok(3),
            attempt => Err(TaskError::retryable(format!("attempt {attempt}"))),
        }
    }
    let (queue, clock) = memory_queue().unwrap();
    let policy = RetryPolicy {
        jitter_percent: 0.0,
        ..RetryPolicy::default()
    };
    let task = queue
        .task(Job::TYPE, &job("x"))
        .unwrap()
        .retry_policy(policy);
    let task = task.submit().await.unwrap().task;
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(third_time)
        .build();
    let worker = worker.unwrap();
    for (wait_ms, attempt) in [(1_000, 1), (2_000, 2)] {
        assert_eq!(worker.drain().await.unwrap().retried, 1);
        assert_eq!(queue.get(task.id).await.unwrap().attempt, attempt);
        clock.advance(Duration::from_millis(wait_ms - 1));
        assert_eq!(worker.drain().await.unwrap().attempts(), 0, "not due yet");
        clock.advance(Duration::from_millis(1));
    }
    assert_eq!(worker.drain().await.unwrap().completed, 1);
    assert_eq!(queue.get(task.id).await.unwrap().status, Status::Completed);
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Tree {
    depth: u32,
}

impl TaskInput for Tree {
    const TYPE: &'static str = "tree";
}

async fn grow(tree: Tree, context: Context) -> Result<(), TaskError> {
    if tree.depth > 0 {
        let branch = Tree {
            depth: tree.depth - 1,
        };
        for _ in 0..2 {
            context.queue().task(Tree::TYPE, &branch)?.submit().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn tasks_that_handlers_submit_run_too() {
    let (queue, _clock) = memory_queue().unwrap();
    let seed = queue.task(Tree::TYPE, &Tree { depth: 6 }).unwrap();
    seed.submit().await.unwrap();
    let worker = Worker::builder(queue.clone()).handle::<Tree>(grow).build();
    let worker = worker.unwrap();
    assert_eq!(worker.drain().await.unwrap().completed, 127);
    assert_eq!(worker.drain().await.unwrap().attempts(), 0);
    assert_eq!(
        queue.workers().await.unwrap(),
        [],
        "a drain does not register a worker"
    );
}

#[tokio::test]
async fn delayed_tasks_and_paused_or_other_queues_are_left_alone() {
    let (queue, clock) = memory_queue().unwrap();
    let delayed = queue.task(Job::TYPE, &job("later")).unwrap();
    let delayed = delayed.delay(Duration::from_mins(1));
    delayed.submit().await.unwrap();
    let mail = queue.task(Job::TYPE, &job("mail")).unwrap().queue("mail");
    mail.submit().await.unwrap();
    let builder = || Worker::builder(queue.clone()).handle::<Job>(greet);
    let default = builder().build().unwrap();
    let everywhere = builder().queues(Vec::<String>::new()).build().unwrap();
    assert_eq!(default.drain().await.unwrap().attempts(), 0);
    queue.pause(&"mail".parse().unwrap()).await.unwrap();
    assert_eq!(everywhere.drain().await.unwrap().attempts(), 0);
    queue.resume(&"mail".parse().unwrap()).await.unwrap();
    assert_eq!(everywhere.drain().await.unwrap().completed, 1);
    clock.advance(Duration::from_mins(1));
    assert_eq!(default.drain().await.unwrap().completed, 1);
    queue.pause(&"default".parse().unwrap()).await.unwrap();
    submit(&queue, "paused").await;
    assert_eq!(default.drain().await.unwrap().attempts(), 0);
}
