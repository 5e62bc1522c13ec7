//! Invalid workers are rejected before they run.

use std::time::Duration;

use qo::runtime::TokioRuntime;
use qo::testing::memory_queue;
use qo::{Connect, Context, Error, ErrorKind, OpenOptions, TaskError, TaskInput, Worker};

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
async fn invalid_settings_are_rejected() {
    let (queue, _clock) = memory_queue().unwrap();
    let builder = || Worker::builder(queue.clone());
    let assert_rejected = |result: Result<Worker, Error>, text: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    assert_rejected(builder().build(), "no handler");
    let twice = builder().handle::<Job>(greet).handle::<Job>(greet);
    assert_rejected(twice.build(), "two handlers have the task type \"job\"");
    let alias = builder().handle::<Job>(greet);
    let alias = alias.handle::<Renamed>(nothing::<Renamed>);
    assert_rejected(alias.build(), "\"old_job\"");
    let misnamed = builder().handle::<Misnamed>(nothing::<Misnamed>);
    assert_rejected(misnamed.build(), "no/name");

    let good = || builder().handle::<Job>(greet);
    assert_rejected(good().id("a b").build(), "worker id");
    assert_rejected(good().queues(["a/b"]).build(), "queue name");
    assert_rejected(good().concurrency(0).build(), "concurrency");
    assert_rejected(good().concurrency(1_000_000).build(), "concurrency");
    assert_rejected(good().lease(Duration::from_millis(1)).build(), "lease");
    assert_rejected(good().lease(Duration::MAX).build(), "lease");
    assert_rejected(good().grace(Duration::MAX).build(), "grace");
    assert_rejected(good().shutdown_deadline(Duration::MAX).build(), "deadline");

    let options = OpenOptions::new(TokioRuntime::shared()).with_var("QO_NO_MONITOR", "perhaps");
    let connecting = Connect::to("memory:").options(options).open();
    let unsure = Worker::builder(connecting.await.unwrap()).handle::<Job>(greet);
    assert_rejected(unsure.build(), "QO_NO_MONITOR");

    let worker = good().queues(["a", "b"]).build().unwrap();
    assert!(!worker.id().as_str().is_empty());
}
