//! Every type in the signatures of this crate has a name in this crate, so that a program needs no other qo crate to write it down.
//!
//! The functions are compiled and never called.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use qo::runtime::Runtime;
use qo::store::client::{ClientConfig, RetryConfig};
use qo::store::{Store, StoreClient};

#[test]
fn every_type_of_the_api_has_a_name() {
    let _ = (
        connection,
        queue,
        operations,
        queries,
        administration,
        worker,
    );
    let _: fn(qo::Error) -> Option<qo::ErrorKind> = source;
    let _: fn(qo::EngineError) -> Option<qo::StoreError> = engine_source;
}

async fn connection(runtime: Arc<dyn Runtime>) -> Result<(Store, qo::Queue), qo::Error> {
    let retry: RetryConfig = RetryConfig::default();
    let mut client = ClientConfig::default();
    client.retry = retry;
    let connect: qo::Connect = qo::Connect::to("memory:")
        .options(qo::OpenOptions::new(Arc::clone(&runtime)))
        .runtime(runtime)
        .direct(qo::DirectConfig::default())
        .json(qo::JsonConfig::default())
        .client(client)
        .probe(qo::ProbeOptions::default());
    let _: qo::IndexMode = qo::DirectConfig::default().index_mode;
    let _: qo::BrokerConfig = qo::JsonConfig::default().state;
    let store = connect.open_store()?;
    Ok((store, qo::connect("memory:").await?))
}

fn queue(
    engine: qo::DirectEngine,
    runtime: Arc<dyn Runtime>,
    store: Store,
    environment: BTreeMap<String, String>,
) -> (Arc<dyn qo::Engine>, Option<StoreClient>) {
    let queue = qo::Queue::direct(engine, runtime, store, environment);
    let client = queue.direct_engine().map(|engine| engine.client().clone());
    (Arc::clone(queue.engine()), client)
}

async fn operations(queue: qo::Queue, lease: qo::LeaseId) -> Result<(), qo::Error> {
    let builder: qo::TaskBuilder = queue
        .task("t", &1)?
        .at(queue.now())
        .retry_policy(qo::RetryPolicy::default())
        .idempotency_scope(qo::IdempotencyScope::Queue);
    let request: qo::SubmitRequest = builder.build()?;
    let (_, _): (qo::When, Option<qo::IdempotencyRequest>) =
        (request.available, request.idempotency.clone());
    let submitted: qo::Submitted = queue.submit(request).await?;
    let task: qo::Task = submitted.task;
    let id: qo::TaskId = task.id;
    let failure = qo::Failure {
        kind: qo::FailureKind::Retryable,
        error: "e".into(),
    };
    queue.fail(id, lease, failure).await?;
    let report = qo::ProgressReport {
        percent: 1.0,
        message: None,
    };
    queue.progress(id, lease, report).await?;
    queue.act(id, qo::Operation::Replay).await?;
    let _: (qo::Status, qo::Shard, qo::Timestamp) = (task.status, task.shard, task.created_at);
    let _: (qo::QueueName, qo::TaskType) = (task.queue, task.task_type);
    let _: (Vec<qo::Tag>, Option<qo::TraceParent>) = (task.tags, task.traceparent);
    let _: (Option<qo::WorkerId>, Option<qo::IdempotencyKey>) =
        (task.worker_id, task.idempotency_key);
    let _: Option<qo::model::OpId> = task.op_id;
    let _: (qo::model::extra::Extra, qo::model::task::History) = (task.extra, task.events);
    Ok(())
}

async fn queries(queue: qo::Queue, id: qo::TaskId) -> Result<(), qo::Error> {
    let page: qo::TaskPage = queue.list(&qo::TaskFilter::default(), None, 10).await?;
    let _: qo::TaskQuery<'_> = qo::TaskQuery::first(&qo::TaskFilter::default(), 10);
    let _: Vec<qo::Task> = page.tasks;
    let _: Vec<qo::Task> = queue
        .list_all(qo::TaskFilter::default())
        .try_collect()
        .await?;
    let events: Vec<qo::Event> = queue.history(id).await?;
    let _: Option<qo::EventAction> = events[0].action;
    let _: Vec<qo::VersionedTask> = queue.versions(id, 1).await?;
    let steps: Vec<qo::VersionStep> = queue.version_steps(id, 1).await?;
    let change: &qo::FieldChange = &steps[0].changes[0];
    let _: Option<qo::Json> = change.before.clone();
    let stats: qo::Stats = queue.stats().await?;
    let _: BTreeMap<qo::QueueName, qo::QueueStats> = stats.queues;
    let _: Vec<qo::WorkerInfo> = queue.workers().await?;
    let report: qo::BulkReport = queue
        .purge_older_than(Duration::ZERO, &[qo::Status::Failed], |_| ())
        .await;
    let _: Vec<(qo::TaskId, qo::Error)> = report.failed;
    Ok(())
}

async fn administration(
    store: Store,
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    engine: qo::DirectEngine,
) {
    let report: qo::InitReport =
        qo::init(&store, runtime.as_ref(), &qo::InitOptions::default()).await;
    let _: qo::direct::InitOutcome = report.steps[0].outcome;
    let report: qo::DoctorReport = qo::doctor(
        &store,
        &client,
        runtime.as_ref(),
        &qo::DoctorOptions::default(),
    )
    .await;
    let _: qo::direct::Health = report.health();
    let _: qo::MaintenanceHandle = qo::Maintenance::spawn(engine, qo::MaintenanceConfig::default());
}

struct Quiet;

#[qo::async_trait]
impl qo::Hook for Quiet {
    async fn after(&self, context: &qo::Context, _outcome: &qo::AttemptOutcome) {
        let _: Option<qo::StopReason> = context.stop_reason();
        let _: &qo::CancellationToken = context.cancellation();
    }
}

async fn worker(builder: qo::WorkerBuilder) -> Result<qo::DrainReport, qo::Error> {
    let worker: qo::Worker = builder
        .hook(Quiet)
        .maintenance(qo::MaintenanceConfig::default())
        .build()?;
    let drained = worker.drain().await?;
    let handle: qo::WorkerHandle = worker.spawn();
    let _: qo::WorkerReport = handle.stop().await?;
    Ok(drained)
}

/// Names the error inside each variant.
fn source(error: qo::Error) -> Option<qo::ErrorKind> {
    use qo::model::{id, json, names, task, time};
    use qo::store::open::{CheckError, OpenError};

    let kind = error.kind();
    match error {
        qo::Error::Open(error) => drop::<OpenError>(error),
        qo::Error::Check(error) => drop::<CheckError>(error),
        qo::Error::Probe(error) => drop::<qo::store::probe::ProbeError>(error),
        qo::Error::Setting(error) => drop::<qo::engine::environment::ConfigError>(error),
        qo::Error::Server(error) => drop::<qo::InvalidServer>(error),
        qo::Error::Leadership(error) => drop::<qo::election::ElectionError>(error),
        qo::Error::Engine(error) => drop::<qo::EngineError>(error),
        qo::Error::Name(error) => drop::<names::InvalidName>(error),
        qo::Error::Label(error) => drop::<names::InvalidLabel>(error),
        qo::Error::Id(error) => drop::<id::InvalidId>(error),
        qo::Error::Shard(error) => drop::<id::InvalidShard>(error),
        qo::Error::Status(error) => drop::<task::UnknownStatus>(error),
        qo::Error::Time(error) => drop::<time::InvalidTimestamp>(error),
        qo::Error::Json(error) => drop::<json::InvalidJson>(error),
        _ => return None,
    }
    Some(kind)
}

fn engine_source(error: qo::EngineError) -> Option<qo::StoreError> {
    match error {
        qo::EngineError::Store(error) => Some(error),
        qo::EngineError::Rejected(rejection) => {
            let _: qo::Rejection = rejection;
            None
        }
        _ => None,
    }
}
