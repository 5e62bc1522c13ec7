//! The end of a worker: graceful, past its deadline, immediate, by signals, by a drop.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo::{Context, Error, Queue, Status, StopReason, TaskError, Worker, WorkerBuilder};

use super::{Gate, Job, SharedBucket, soon, submit};
use crate::test_store::until;

#[derive(Clone, Default)]
struct Probe {
    started: Gate,
    go: Gate,
    reason: Arc<Mutex<Option<StopReason>>>,
}

async fn observed(job: Job, context: Context) -> Result<String, TaskError> {
    let probe = context.state::<Probe>().ok_or("no probe")?;
    probe.started.open();
    match job.name.as_str() {
        "waits" => probe.go.wait_for(1).await,
        "listens" => {
            context.cancellation().cancelled().await;
            *probe.reason.lock().unwrap() = context.stop_reason();
            return Err("interrupted".into());
        }
        _ => std::future::pending().await,
    }
    Ok("finished".to_owned())
}

fn worker(queue: &Queue, probe: &Probe) -> WorkerBuilder {
    Worker::builder(queue.clone())
        .handle::<Job>(observed)
        .state(probe.clone())
        .concurrency(2)
}

#[tokio::test]
async fn running_tasks_finish_and_no_new_task_starts() {
    let queue = SharedBucket::new().queue();
    let probe = Probe::default();
    let task = submit(&queue, "waits").await;
    let handle = worker(&queue, &probe).build().unwrap().spawn();
    soon("the handler", probe.started.wait_for(1)).await;
    handle.stopper().cancel();
    // A claim under way may take one more task, which is then released.
    let late = submit(&queue, "waits").await;
    probe.go.open();
    let report = soon("the stop", handle.stop()).await.unwrap();
    assert_eq!((report.completed, report.abandoned), (1, 0));
    assert_eq!(queue.get(task.id).await.unwrap().status, Status::Completed);
    let late = queue.get(late.id).await.unwrap();
    assert_eq!((late.status, late.retry_count), (Status::Pending, 0));
    assert_eq!(probe.started.opened(), 1, "the late task was not started");
    assert_eq!(queue.workers().await.unwrap(), []);
}

#[tokio::test]
async fn at_the_deadline_tasks_are_stopped_and_released() {
    let queue = SharedBucket::new().queue();
    let probe = Probe::default();
    let tasks = [
        submit(&queue, "listens").await,
        submit(&queue, "deaf").await,
    ];
    let handle = worker(&queue, &probe)
        .shutdown_deadline(Duration::from_secs(2))
        .grace(Duration::from_secs(1))
        .build()
        .unwrap()
        .spawn();
    soon("both handlers", probe.started.wait_for(2)).await;
    let report = soon("the stop", handle.stop()).await.unwrap();
    assert_eq!((report.released, report.attempts()), (2, 2));
    assert_eq!(*probe.reason.lock().unwrap(), Some(StopReason::Stopping));
    for task in tasks {
        let task = queue.get(task.id).await.unwrap();
        assert_eq!((task.status, task.attempt), (Status::Pending, 1));
        assert_eq!(task.retry_count, 0, "a release uses no retry");
    }
}

#[tokio::test]
async fn a_second_stop_abandons_all_tasks() {
    let queue = SharedBucket::new().queue();
    let probe = Probe::default();
    let task = submit(&queue, "deaf").await;
    let handle = worker(&queue, &probe).build().unwrap().spawn();
    soon("the handler", probe.started.wait_for(1)).await;
    handle.stopper().cancel();
    let stopped = soon("the stop", handle.stop_now()).await;
    assert_eq!(stopped, Err(Error::StoppedAtOnce { running: 1 }));
    let task = queue.get(task.id).await.unwrap();
    assert_eq!(
        task.status,
        Status::Running,
        "it waits for its lease to expire"
    );
}

#[tokio::test]
async fn a_dropped_handle_stops_the_worker_gracefully() {
    let queue = SharedBucket::new().queue();
    let probe = Probe::default();
    let task = submit(&queue, "waits").await;
    let handle = worker(&queue, &probe).build().unwrap().spawn();
    soon("the handler", probe.started.wait_for(1)).await;
    drop(handle);
    probe.go.open();
    let done = queue
        .wait(task.id, crate::test_store::TIMEOUT)
        .await
        .unwrap();
    assert_eq!(done.status, Status::Completed);
    until(&queue, "the worker has deregistered", async || {
        queue.workers().await.unwrap().is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_worker_runs_until_a_future_is_ready() {
    let queue = SharedBucket::new().queue();
    let probe = Probe::default();
    submit(&queue, "waits").await;
    let worker = worker(&queue, &probe).build().unwrap();
    let stop = {
        let probe = probe.clone();
        async move {
            probe.started.wait_for(1).await;
            probe.go.open();
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

/// One test, because a signal reaches all listeners of the process.
#[cfg(unix)]
#[tokio::test]
async fn the_first_signal_stops_gracefully_and_the_second_immediately() {
    let queue = SharedBucket::new().queue();
    let probe = Probe::default();
    submit(&queue, "waits").await;
    let running = worker(&queue, &probe).build().unwrap().run_until_signal();
    let acting = async {
        probe.started.wait_for(1).await;
        send("TERM");
        probe.go.open();
    };
    let (report, ()) = soon("the stop", async { tokio::join!(running, acting) }).await;
    assert_eq!(report.unwrap().completed, 1);

    let probe = Probe::default();
    submit(&queue, "deaf").await;
    let running = worker(&queue, &probe).build().unwrap().run_until_signal();
    let acting = async {
        probe.started.wait_for(1).await;
        send("INT");
        // Signals that arrive before the first is handled are merged, so more are sent until the worker stops.
        until(&queue, "the worker has stopped", async || {
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
