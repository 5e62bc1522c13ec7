//! Requests per task.

use std::time::Duration;

use qo::store::wrap::Operation;
use qo::testing::memory_queue;
use qo::{Context, TaskError, Worker};
use qo_fixtures::assert_written_once;

use super::{Gate, Job, SharedBucket, job, soon, submit, while_time_passes};

const TASKS: u64 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_costs_five_puts_and_one_get() {
    async fn signals(_: Job, context: Context) -> Result<(), TaskError> {
        context.state::<Gate>().ok_or("no gate")?.open();
        Ok(())
    }
    let bucket = SharedBucket::new();
    let (queue, counting) = bucket.counted();
    let requests = (0..TASKS).map(|n| {
        let task = queue.task("job", &job(&n.to_string())).unwrap();
        task.build().unwrap()
    });
    for submitted in queue.submit_many(requests.collect()).await {
        submitted.unwrap();
    }
    let done = Gate::default();
    let worker = Worker::builder(queue)
        .handle::<Job>(signals)
        .state(done.clone())
        .concurrency(64)
        .no_maintenance()
        .build()
        .unwrap()
        .spawn();
    soon("all tasks", done.wait_for(1_000)).await;
    let report = worker.stop().await.unwrap();
    assert_eq!((report.completed, report.attempts()), (TASKS, TASKS));

    let counts = counting.counts();
    assert_written_once(&counts, TASKS);
    let of = |prefix: &str, operation| counts.of(prefix, operation).requests;
    // A list that was requested before a batch of deletions may still contain their entries, and each costs a read.
    assert!(of("tasks", Operation::Get) <= TASKS + TASKS / 2, "{counts}");
    let rest = counts.total(Operation::Put).requests - 2 * TASKS;
    assert!(rest <= TASKS / 20, "{counts}");
    assert!(
        counts.total(Operation::List).requests <= TASKS / 20,
        "{counts}"
    );
}

/// A minute of renewals, with a progress report every tenth of a second.
#[tokio::test]
async fn a_long_task_writes_renewals_and_one_progress_report_a_second() {
    async fn reports(_: Job, context: Context) -> Result<(), TaskError> {
        let runtime = context.queue().runtime();
        for step in 0..600 {
            context
                .progress(f64::from(step) / 6.0, "still here")
                .await?;
            runtime.sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
    let (queue, clock) = memory_queue().unwrap();
    let task = submit(&queue, "x").await;
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(reports)
        .build();
    let worker = worker.unwrap();
    let report = soon("the drain", while_time_passes(&clock, worker.drain())).await;
    assert_eq!(report.unwrap().completed, 1);
    let done = queue.get(task.id).await.unwrap();
    // Submit, claim and complete are three; the rest are six renewals and up to sixty reports.
    let writes = done.revision - 3;
    assert!((50..=68).contains(&writes), "{writes}");
    let percent = done.progress.unwrap().percent;
    assert!(percent > 95.0, "the newest report counts: {percent}");
}
