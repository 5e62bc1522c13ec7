//! Stopping a worker: gracefully, after the deadline, at once, by signals, and by dropping it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo::{Context, Error, Queue, Status, StopReason, TaskError, Worker, WorkerBuilder};

use super::{Gate, Job, SharedBucket, soon, submit};
use qo_fixtures::until;

#[derive(Clone, Default)]
struct Stage {
    started: Gate,
    go: Gate,
    reason: Arc<Mutex<Option<StopReason>>>,
}

async fn plays(job: Job, context: Context) -> Result<String, TaskError> {
    let stage = context.state::<Stage>().ok_or("no stage")?;
    stage.started.open();
    match job.name.as_str() {
        "waits" => stage.go.wait_for(1).await,
        "listens" => {
            context.cancellation().cancelled().await;
            *stage.reason.lock().unwrap() = context.stop_reason();
            return Err("interrupted".into());
        }
        _ => std::future::pending().await,
    }
    Ok("finished".to_owned())
}

fn worker(queue: &Queue, stage: &Stage) -> WorkerBuilder {
    Worker::builder(queue.clone())
        .handle::<Job>(plays)
        .state(stage.clone())
        .concurrency(2)
}

#[tokio::test]
async fn running_tasks_finish_and_no_new_ones_start() {
    let queue = SharedBucket::new().queue();
    let stage = Stage::default();
    let task = submit(&queue, "waits").await;
    let handle = worker(&queue, &stage).build().unwrap().spawn();
    soon("the handler", stage.started.wait_for(1)).await;
    handle.stopper().cancel();
    // A claim in flight may get one more task, which the worker then releases.
    let late = submit(&queue, "waits").await;
    stage.go.open();
    let report = soon("the stop", handle.stop()).await.unwrap();
    assert_eq!((report.completed, report.abandoned), (1, 0));
    assert_eq!(queue.get(task.id).await.unwrap().status, Status::Completed);
    let late = queue.get(late.id).await.unwrap();
    assert_eq!((late.status, late.retry_count), (Status::Pending, 0));
    assert_eq!(stage.started.opened(), 1, "the late one was not begun");
    assert_eq!(queue.workers().await.unwrap(), []);
}

#[tokio::test]
async fn after_the_deadline_tasks_are_stopped_and_released() {
    let queue = SharedBucket::new().queue();
    let stage = Stage::default();
    let tasks = [
        submit(&queue, "listens").await,
        submit(&queue, "deaf").await,
    ];
    let handle = worker(&queue, &stage)
        .shutdown_deadline(Duration::from_secs(2))
        .grace(Duration::from_secs(1))
        .build()
        .unwrap()
        .spawn();
    soon("both handlers", stage.started.wait_for(2)).await;
    let report = soon("the stop", handle.stop()).await.unwrap();
    assert_eq!((report.released, report.attempts()), (2, 2));
    assert_eq!(*stage.reason.lock().unwrap(), Some(StopReason::Stopping));
    for task in tasks {
        let task = queue.get(task.id).await.unwrap();
        assert_eq!((task.status, task.attempt), (Status::Pending, 1));
        assert_eq!(task.retry_count, 0, "a release is not a retry");
    }
}

#[tokio::test]
async fn a_second_stop_abandons_running_tasks() {
    let queue = SharedBucket::new().queue();
    let stage = Stage::default();
    let task = submit(&queue, "deaf").await;
    let handle = worker(&queue, &stage).build().unwrap().spawn();
    soon("the handler", stage.started.wait_for(1)).await;
    handle.stopper().cancel();
    let stopped = soon("the stop", handle.stop_now()).await;
    assert_eq!(stopped, Err(Error::StoppedAtOnce { running: 1 }));
    let task = queue.get(task.id).await.unwrap();
    assert_eq!(task.status, Status::Running, "its lease expires by itself");
}

#[tokio::test]
async fn a_dropped_handle_stops_the_worker_gracefully() {
    let queue = SharedBucket::new().queue();
    let stage = Stage::default();
    let task = submit(&queue, "waits").await;
    let handle = worker(&queue, &stage).build().unwrap().spawn();
    soon("the handler", stage.started.wait_for(1)).await;
    drop(handle);
    stage.go.open();
    let done = queue
        .wait(task.id, crate::test_queue::WAIT_MAX)
        .await
        .unwrap();
    assert_eq!(done.status, Status::Completed);
    until("the worker is gone", async || {
        queue.workers().await.unwrap().is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_worker_runs_until_a_future_is_ready() {
    let queue = SharedBucket::new().queue();
    let stage = Stage::default();
    submit(&queue, "waits").await;
    let worker = worker(&queue, &stage).build().unwrap();
    let stop = {
        let stage = stage.clone();
        async move {
            stage.started.wait_for(1).await;
            stage.go.open();
        }
    };
    let report = soon("the run", worker.run_until(stop)).await.unwrap();
    assert_eq!(report.completed, 1);
}

/// Sends this process a signal.
#[cfg(unix)]
fn send(signal: &str) {
    let pid = std::process::id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-s", signal, &pid])
        .status();
    assert!(killed.unwrap().success());
}

/// A single test, because a signal reaches all tests of the process.
#[cfg(unix)]
#[tokio::test]
async fn the_first_signal_stops_gracefully_and_the_second_at_once() {
    let queue = SharedBucket::new().queue();
    let stage = Stage::default();
    submit(&queue, "waits").await;
    let running = worker(&queue, &stage).build().unwrap().run_until_signal();
    let acting = async {
        stage.started.wait_for(1).await;
        send("TERM");
        stage.go.open();
    };
    let (report, ()) = soon("the stop", async { tokio::join!(running, acting) }).await;
    assert_eq!(report.unwrap().completed, 1);

    let stage = Stage::default();
    submit(&queue, "deaf").await;
    let running = worker(&queue, &stage).build().unwrap().run_until_signal();
    let acting = async {
        stage.started.wait_for(1).await;
        send("INT");
        // Signals that arrive before the first one is handled count as one. A stopping worker claims no new task.
        until("the worker has heard", async || {
            send("INT");
            None::<()>
        })
        .await;
    };
    let stopped = soon("the second stop", async {
        tokio::select! {
            stopped = running => stopped,
            () = acting => unreachable!("it never ends"),
        }
    });
    assert_eq!(stopped.await, Err(Error::StoppedAtOnce { running: 1 }));
}
