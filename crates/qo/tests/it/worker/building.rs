//! What cannot be a worker is said before it runs.

use std::time::Duration;

use qo::testing::memory_queue;
use qo::{Connect, Context, Error, ErrorKind, OpenOptions, TaskError, TaskInput, Worker};
use qo_store::runtime::TokioRuntime;

use super::{Job, greet};

#[derive(serde::Deserialize)]
struct Renamed;

impl TaskInput for Renamed {
    const TYPE: &'static str = "old_job";
}

#[derive(serde::Deserialize)]
struct Misnamed;

impl TaskInput for Misnamed {
    const TYPE: &'static str = "no/name";
}

async fn nothing<T>(_: T, _: Context) -> Result<(), TaskError> {
    Ok(())
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let (queue, _clock) = memory_queue().unwrap();
    let builder = || Worker::builder(queue.clone());
    let refused = |result: Result<Worker, Error>, text: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    refused(builder().build(), "no task type");
    let twice = builder().handle::<Job>(greet).handle::<Job>(greet);
    refused(twice.build(), "two handlers do the task type \"job\"");
    let alias = builder().handle::<Job>(greet);
    let alias = alias.handle::<Renamed>(nothing::<Renamed>);
    refused(alias.build(), "\"old_job\"");
    let misnamed = builder().handle::<Misnamed>(nothing::<Misnamed>);
    refused(misnamed.build(), "no/name");

    let good = || builder().handle::<Job>(greet);
    refused(good().id("a b").build(), "worker id");
    refused(good().queues(["a/b"]).build(), "queue name");
    refused(good().concurrency(0).build(), "concurrency");
    refused(good().concurrency(1_000_000).build(), "concurrency");
    refused(good().lease(Duration::from_millis(1)).build(), "lease");
    refused(good().lease(Duration::MAX).build(), "lease");
    refused(good().grace(Duration::MAX).build(), "grace");
    refused(good().shutdown_deadline(Duration::MAX).build(), "deadline");

    let options = OpenOptions::new(TokioRuntime::shared()).with_var("QO_NO_MONITOR", "perhaps");
    let connecting = Connect::to("memory:").options(options).open();
    let unsure = Worker::builder(connecting.await.unwrap()).handle::<Job>(greet);
    refused(unsure.build(), "QO_NO_MONITOR");

    let worker = good().queues(["a", "b"]).build().unwrap();
    assert!(!worker.id().as_str().is_empty());
}
