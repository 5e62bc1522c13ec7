//! A resumed queue is served again, even if the operator's process died before it sent the signal.

use qo_check::CallLog;
use qo_core::{Json, QueueName};
use qo_engine::Engine;
use qo_engine::api::SubmitRequest;
use qo_store::runtime::RuntimeExt;

use super::bucket::Bucket;
use super::process::{Process, Setting};

#[tokio::test(start_paused = true)]
async fn waiting_workers_notice_a_resume_without_its_signal() {
    let bucket = Bucket::shared();
    let log = CallLog::new(bucket.ticks.clone());
    let operator = Process::start(&bucket, &log, Setting::new("operator", 1));
    let worker = Process::start(&bucket, &log, Setting::new("worker", 2));
    let queue = QueueName::default();
    operator.engine.pause(&queue).await.unwrap();
    let mut request = SubmitRequest::new("job".parse().unwrap(), Json::null());
    request.id = Some(operator.runtime.new_task_id());
    operator.submit(request).await.unwrap();
    assert!(worker.claim(1, 5_000).await.unwrap().is_empty());

    // The process dies before it sends the signal, which nothing waits for.
    operator.engine.resume(&queue).await.unwrap();
    operator.kill();

    for _ in 0..6 {
        if !worker.claim(1, 10_000).await.unwrap().is_empty() {
            return;
        }
    }
    panic!("the worker passes the queue by for ever");
}
