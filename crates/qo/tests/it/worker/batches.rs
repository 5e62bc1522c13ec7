//! Handlers that run several tasks in one call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo::testing::memory_queue;
use qo::{Context, Error, Queue, Status, TaskError, TaskId, TaskInput, Timestamp, Worker};

use super::{Gate, Job, job, soon, submit, while_time_passes};

type Outcomes = Result<Vec<Result<String, TaskError>>, TaskError>;

/// The sizes of the batches that a handler got, and when.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<(usize, Timestamp)>>>);

impl Calls {
    fn add(&self, tasks: &[(Job, Context)]) {
        let now = tasks.first().map(|(_, context)| context.queue().now());
        self.0.lock().unwrap().push((tasks.len(), now.unwrap()));
    }

    fn sizes(&self) -> Vec<usize> {
        let calls = self.0.lock().unwrap();
        calls.iter().map(|(size, _)| *size).collect()
    }
}

/// A worker that counts its batches and completes every task.
fn counting(queue: &Queue, limit: usize, wait: Duration, concurrency: usize) -> (Worker, Calls) {
    let calls = Calls::default();
    let counted = calls.clone();
    let worker = Worker::builder(queue.clone())
        .handle_batch::<Job>(limit, wait, move |tasks: Vec<(Job, Context)>| {
            counted.add(&tasks);
            async move { greet_all(tasks).await }
        })
        .concurrency(concurrency)
        .handlers_in_runtime()
        .build();
    (worker.unwrap(), calls)
}

async fn greet_all(tasks: Vec<(Job, Context)>) -> Outcomes {
    let greetings = tasks.into_iter();
    Ok(greetings
        .map(|(job, _)| Ok(format!("hello {}", job.name)))
        .collect())
}

async fn submit_some(queue: &Queue, count: usize) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(submit(queue, &number.to_string()).await.id);
    }
    ids
}

#[tokio::test]
async fn a_drain_fills_batches_and_does_not_wait_for_the_last_one() {
    let (queue, _clock) = memory_queue().unwrap();
    let ids = submit_some(&queue, 25).await;
    let (worker, calls) = counting(&queue, 10, Duration::from_mins(1), 10);
    let report = soon("the drain", worker.drain()).await.unwrap();
    assert_eq!((report.completed, report.attempts()), (25, 25));
    assert_eq!(calls.sizes(), [10, 10, 5]);
    for (number, id) in ids.into_iter().enumerate() {
        let task = queue.get(id).await.unwrap();
        let output = queue.output(&task).await.unwrap().unwrap();
        assert_eq!(output.as_str(), format!("\"hello {number}\""));
    }
}

#[tokio::test]
async fn two_types_that_share_all_slots_do_not_block_a_drain() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Other;
    impl TaskInput for Other {
        const TYPE: &'static str = "other";
    }
    let (queue, _clock) = memory_queue().unwrap();
    for _ in 0..3 {
        submit(&queue, "x").await;
        queue.task_of(&Other).unwrap().submit().await.unwrap();
    }
    let worker = Worker::builder(queue)
        .handle_batch::<Job>(4, Duration::from_mins(1), greet_all)
        .handle_batch::<Other>(
            4,
            Duration::from_mins(1),
            async |tasks: Vec<(Other, Context)>| {
                let results: Vec<Result<(), TaskError>> = tasks.iter().map(|_| Ok(())).collect();
                Ok::<_, TaskError>(results)
            },
        )
        .concurrency(4)
        .build()
        .unwrap();
    let report = soon("the drain", worker.drain()).await.unwrap();
    assert_eq!(report.completed, 6);
}

#[tokio::test]
async fn a_batch_starts_when_it_is_full_or_its_first_task_has_waited() {
    let (queue, clock) = memory_queue().unwrap();
    let (worker, calls) = counting(&queue, 3, Duration::from_secs(2), 10);
    let ids = submit_some(&queue, 4).await;
    let submitted_at = queue.now();
    let running = worker.spawn();
    let finished = async {
        for id in &ids {
            queue.wait(*id, Duration::from_hours(1)).await.unwrap();
        }
    };
    while_time_passes(&clock, finished).await;
    let times = calls.0.lock().unwrap().clone();
    assert_eq!(calls.sizes(), [3, 1]);
    assert!(times[0].1.since(submitted_at) < Duration::from_secs(2));
    let waited = times[1].1.since(submitted_at);
    assert!((2..4).contains(&waited.as_secs()), "{waited:?}");
    while_time_passes(&clock, running.stop()).await.unwrap();
}

#[tokio::test]
async fn a_stop_runs_what_was_gathered_at_once() {
    let (queue, clock) = memory_queue().unwrap();
    let (worker, calls) = counting(&queue, 10, Duration::from_hours(1), 10);
    let ids = submit_some(&queue, 3).await;
    let running = worker.spawn();
    let all_run = async {
        for id in &ids {
            while queue.get(*id).await.unwrap().status != Status::Running {
                tokio::task::yield_now().await;
            }
        }
    };
    while_time_passes(&clock, all_run).await;
    let stopped_at = queue.now();
    let report = while_time_passes(&clock, running.stop()).await.unwrap();
    assert_eq!(report.completed, 3);
    assert_eq!(calls.sizes(), [3]);
    assert!(queue.now().since(stopped_at) < Duration::from_secs(20));
}

#[tokio::test]
async fn each_task_has_its_own_outcome() {
    async fn mixed(tasks: Vec<(Job, Context)>) -> Outcomes {
        let outcomes = tasks
            .into_iter()
            .map(|(job, context)| match job.name.as_str() {
                "retry" => Err(TaskError::retryable("later")),
                "fail" => Err(TaskError::permanent("never")),
                "snooze" => Err(TaskError::Snooze(Duration::from_mins(1))),
                _ => Ok(format!("attempt {}", context.attempt())),
            });
        Ok(outcomes.collect())
    }
    let (queue, _clock) = memory_queue().unwrap();
    let mut ids = Vec::new();
    for name in ["ok", "retry", "fail", "snooze"] {
        ids.push(submit(&queue, name).await.id);
    }
    // An input that does not deserialize fails alone.
    let invalid = queue.task(Job::TYPE, &7).unwrap().submit().await.unwrap();
    let worker = Worker::builder(queue.clone())
        .handle_batch::<Job>(10, Duration::from_mins(1), mixed)
        .build()
        .unwrap();
    let report = soon("the drain", worker.drain()).await.unwrap();
    assert_eq!((report.completed, report.retried), (1, 1));
    assert_eq!((report.failed, report.snoozed), (2, 1));
    let statuses = [
        Status::Completed,
        Status::Pending,
        Status::Failed,
        Status::Pending,
    ];
    for (id, status) in ids.into_iter().zip(statuses) {
        assert_eq!(queue.get(id).await.unwrap().status, status);
    }
    let invalid = queue.get(invalid.task.id).await.unwrap();
    assert!(
        invalid
            .last_error
            .unwrap()
            .contains("invalid input for job")
    );
}

#[tokio::test]
async fn an_error_a_panic_and_a_wrong_number_of_results_count_for_each_task() {
    async fn refuses(_: Vec<(Job, Context)>) -> Outcomes {
        Err(TaskError::retryable("the mail server is down"))
    }
    async fn panics(_: Vec<(Job, Context)>) -> Outcomes {
        panic!("no such table");
    }
    async fn forgets(tasks: Vec<(Job, Context)>) -> Outcomes {
        Ok(tasks.iter().skip(1).map(|_| Ok(String::new())).collect())
    }
    fn panics_at_once(_: Vec<(Job, Context)>) -> std::future::Ready<Outcomes> {
        panic!("no such function");
    }
    let (queue, _clock) = memory_queue().unwrap();
    let wait = Duration::from_mins(1);
    for (number, expected, status) in [
        (0, "the mail server is down", Status::Pending),
        (1, "panicked: no such table", Status::Pending),
        (2, "returned 2 results for 3 tasks", Status::Failed),
        (3, "panicked: no such function", Status::Pending),
    ] {
        let ids = submit_some(&queue, 3).await;
        let builder = Worker::builder(queue.clone());
        let builder = match number {
            0 => builder.handle_batch::<Job>(10, wait, refuses),
            1 => builder.handle_batch::<Job>(10, wait, panics),
            2 => builder.handle_batch::<Job>(10, wait, forgets),
            _ => builder.handle_batch::<Job>(10, wait, panics_at_once),
        };
        let report = soon("the drain", builder.build().unwrap().drain()).await;
        assert_eq!(report.unwrap().attempts(), 3, "{expected}");
        for id in ids {
            let task = queue.get(id).await.unwrap();
            assert_eq!(task.status, status, "{expected}");
            let error = task.last_error.unwrap();
            assert!(error.contains(expected), "{error}");
            queue.cancel(id, None).await.ok();
        }
    }
}

#[tokio::test]
async fn a_cancelled_task_leaves_a_batch_that_gathers() {
    let (queue, clock) = memory_queue().unwrap();
    let (worker, calls) = counting(&queue, 10, Duration::from_mins(2), 10);
    let ids = submit_some(&queue, 3).await;
    let running = worker.spawn();
    let cancelled = async {
        while queue.get(ids[0]).await.unwrap().status != Status::Running {
            tokio::task::yield_now().await;
        }
        queue.cancel(ids[0], None).await.unwrap();
        for id in &ids {
            queue.wait(*id, Duration::from_hours(1)).await.unwrap();
        }
    };
    while_time_passes(&clock, cancelled).await;
    assert_eq!(queue.get(ids[0]).await.unwrap().status, Status::Cancelled);
    assert_eq!(calls.sizes(), [2]);
    let report = while_time_passes(&clock, running.stop()).await.unwrap();
    assert_eq!((report.completed, report.cancelled), (2, 1));
}

#[tokio::test]
async fn a_task_that_is_over_during_the_call_does_not_affect_the_others() {
    // The first task times out during the call, the second one loses its lease, and the third one completes.
    async fn slow(tasks: Vec<(Job, Context)>) -> Outcomes {
        for (job, context) in &tasks {
            if job.name == "second" && context.attempt() == 1 {
                let lease = context.task().lease_id.unwrap();
                context.queue().release(context.id(), lease).await?;
            }
        }
        let runtime = Arc::clone(tasks[0].1.queue().runtime());
        runtime.sleep(Duration::from_mins(1)).await;
        greet_all(tasks).await
    }
    let (queue, clock) = memory_queue().unwrap();
    let first = queue.task_of(&job("first")).unwrap().priority(0);
    let first = first.timeout(Duration::from_secs(20)).retries(0);
    let first = first.submit().await.unwrap().task.id;
    let second = queue.task_of(&job("second")).unwrap().priority(1);
    let second = second.submit().await.unwrap().task.id;
    let third = queue.task_of(&job("third")).unwrap().priority(2);
    let third = third.submit().await.unwrap().task.id;
    let worker = Worker::builder(queue.clone())
        .handle_batch::<Job>(3, Duration::from_secs(1), slow)
        .concurrency(3)
        .handlers_in_runtime()
        .build()
        .unwrap();
    let running = worker.spawn();
    let done = queue.wait(third, Duration::from_hours(1));
    let done = while_time_passes(&clock, done).await.unwrap();
    assert_eq!((done.status, done.attempt), (Status::Completed, 1));
    let failed = queue.get(first).await.unwrap();
    assert_eq!(failed.status, Status::Failed);
    assert!(failed.last_error.unwrap().contains("timed out"));
    let events = queue.history(second).await.unwrap();
    let completed = events.iter().find(|event| event.to == Status::Completed);
    assert!(
        completed.is_none_or(|event| event.attempt > 1),
        "{events:?}"
    );
    drop(running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_run_on_handler_threads() {
    let queue = qo::connect("memory:").await.unwrap();
    let ids = submit_some(&queue, 50).await;
    let calls = Calls::default();
    let (counted, done) = (calls.clone(), Gate::default());
    let opened = done.clone();
    let worker = Worker::builder(queue.clone())
        .handle_batch::<Job>(
            8,
            Duration::from_millis(50),
            move |tasks: Vec<(Job, Context)>| {
                counted.add(&tasks);
                let opened = opened.clone();
                async move {
                    // Blocks its thread, as handlers may.
                    std::thread::sleep(Duration::from_millis(2));
                    for _ in &tasks {
                        opened.open();
                    }
                    greet_all(tasks).await
                }
            },
        )
        .concurrency(16)
        .build()
        .unwrap();
    let running = worker.spawn();
    soon("all tasks", done.wait_for(50)).await;
    let report = soon("the stop", running.stop()).await.unwrap();
    assert_eq!((report.completed, report.attempts()), (50, 50));
    assert_eq!(calls.sizes().iter().sum::<usize>(), 50);
    assert!(
        calls.sizes().iter().all(|size| *size <= 8),
        "{:?}",
        calls.sizes()
    );
    for id in ids {
        assert_eq!(queue.get(id).await.unwrap().status, Status::Completed);
    }
}

#[tokio::test]
async fn limits_are_checked() {
    let (queue, _clock) = memory_queue().unwrap();
    let hour = Duration::from_hours(1);
    for (limit, wait, concurrency, setting) in [
        (0, hour, 10, Some("limit of a batch")),
        (11, hour, 10, Some("limit of a batch")),
        (1_001, hour, 2_000, Some("limit of a batch")),
        (10, hour * 2, 10, Some("wait for a batch")),
        (10, hour, 10, None),
        (1, Duration::ZERO, 10, None),
    ] {
        let builder = Worker::builder(queue.clone()).concurrency(concurrency);
        let built = builder.handle_batch::<Job>(limit, wait, greet_all).build();
        let found = match built {
            Ok(_) => None,
            Err(Error::WorkerSetting { setting, .. }) => Some(setting),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found, setting);
    }
    let twice = Worker::builder(queue)
        .handle::<Job>(super::greet)
        .handle_batch::<Job>(2, hour, greet_all)
        .build();
    assert!(matches!(twice, Err(Error::DuplicateHandler { .. })));
}
