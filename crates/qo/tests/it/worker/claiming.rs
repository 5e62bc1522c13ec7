//! How many tasks a worker claims, and which.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use qo::{Context, Shard, Status, TaskError, TaskFilter, Worker};
use qo_store::wrap::Operation;

use super::{Gate, Job, SharedBucket, greet, soon, submit};
use qo_fixtures::until;

#[derive(Default)]
struct Gauge {
    running: AtomicUsize,
    most: AtomicUsize,
    done: Gate,
}

async fn measured(_: Job, context: Context) -> Result<(), TaskError> {
    let gauge = context.state::<Arc<Gauge>>().ok_or("no gauge")?;
    let running = gauge.running.fetch_add(1, Ordering::SeqCst) + 1;
    gauge.most.fetch_max(running, Ordering::SeqCst);
    tokio::time::timeout(Duration::from_millis(30), std::future::pending::<()>())
        .await
        .ok();
    gauge.running.fetch_sub(1, Ordering::SeqCst);
    gauge.done.open();
    Ok(())
}

#[tokio::test]
async fn concurrency_is_limited() {
    let queue = SharedBucket::new().queue();
    for n in 0..20 {
        submit(&queue, &n.to_string()).await;
    }
    let gauge = Arc::new(Gauge::default());
    let worker = Worker::builder(queue)
        .handle::<Job>(measured)
        .state(Arc::clone(&gauge))
        .concurrency(3)
        .build()
        .unwrap()
        .spawn();
    soon("all tasks", gauge.done.wait_for(20)).await;
    let report = worker.stop().await.unwrap();
    assert_eq!((report.completed, report.attempts()), (20, 20));
    let most = gauge.most.load(Ordering::SeqCst);
    assert!((2..=3).contains(&most), "{most}");
}

#[tokio::test]
async fn a_worker_of_some_shards_reads_no_other_task() {
    let bucket = SharedBucket::new();
    let (queue, counting) = bucket.counted();
    for n in 0..64 {
        submit(&queue, &n.to_string()).await;
    }
    let low: Vec<Shard> = Shard::all().take(8).collect();
    let high: Vec<Shard> = Shard::all().skip(8).collect();
    let before = counting.counts();
    let worker = |shards: &[Shard]| {
        let builder = Worker::builder(queue.clone()).handle::<Job>(greet);
        builder.shards(shards.iter().copied()).build().unwrap()
    };
    let report = worker(&low).drain().await.unwrap();
    let pending = TaskFilter {
        statuses: vec![Status::Pending],
        ..TaskFilter::default()
    };
    let reads = counting.counts().since(&before).of("tasks", Operation::Get);
    assert_eq!(reads.requests, report.completed, "only those that it took");
    let left = queue.list(&pending, None, 100).await.unwrap().tasks;
    assert_eq!(left.len() as u64, 64 - report.completed);
    assert!(report.completed > 0 && !left.is_empty());
    assert!(left.iter().all(|task| high.contains(&task.shard)));
    assert_eq!(
        worker(&high).drain().await.unwrap().completed,
        left.len() as u64
    );
}

#[tokio::test]
async fn a_worker_waits_for_a_paused_queue() {
    let queue = SharedBucket::new().queue();
    let name = "default".parse().unwrap();
    queue.pause(&name).await.unwrap();
    let task = submit(&queue, "patient").await;
    let worker = Worker::builder(queue.clone()).handle::<Job>(greet).build();
    let worker = worker.unwrap().spawn();
    until("the worker says that it is there", async || {
        let workers = queue.workers().await.unwrap();
        (!workers.is_empty()).then_some(())
    })
    .await;
    assert_eq!(queue.get(task.id).await.unwrap().status, Status::Pending);
    queue.resume(&name).await.unwrap();
    let done = queue
        .wait(task.id, crate::test_queue::WAIT_MAX)
        .await
        .unwrap();
    assert_eq!(done.status, Status::Completed);
    assert_eq!(worker.stop().await.unwrap().completed, 1);
}

#[tokio::test]
async fn a_worker_registers_its_settings() {
    let queue = SharedBucket::new().queue();
    let (started, go) = (Gate::default(), Gate::default());
    let (begun, leave) = (started.clone(), go.clone());
    let waits = move |_: Job, _: Context| {
        let (begun, leave) = (begun.clone(), leave.clone());
        async move {
            begun.open();
            leave.wait_for(1).await;
            Ok::<_, TaskError>(())
        }
    };
    let task = submit(&queue, "x").await;
    let worker = Worker::builder(queue.clone())
        .id("w-7")
        .concurrency(5)
        .handle::<Job>(waits)
        .build()
        .unwrap()
        .spawn();
    soon("the handler", started.wait_for(1)).await;
    let record = queue.workers().await.unwrap().remove(0);
    assert_eq!(record.worker_id.as_str(), "w-7");
    assert_eq!(record.slots, 5);
    let types: Vec<_> = record.types.iter().map(qo::TaskType::as_str).collect();
    assert_eq!(types, ["job", "old_job"]);
    let running = queue.get(task.id).await.unwrap();
    assert_eq!(running.worker_id.unwrap().as_str(), "w-7");
    go.open();
    worker.stop().await.unwrap();
    assert_eq!(
        queue.workers().await.unwrap(),
        [],
        "the stopped worker is still registered"
    );
}
