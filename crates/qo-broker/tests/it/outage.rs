//! A store that is unavailable for a while.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use qo_engine::Engine;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::wrap::{FaultKind, FaultPlan, FaultStore};

use super::engines::{Journal, all_tasks, job, memory};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_wait_for_a_store_that_is_unavailable_for_a_while() {
    let runtime: Arc<dyn Runtime> = TokioRuntime::shared();
    let store = Arc::new(FaultStore::new(
        memory(),
        Arc::clone(&runtime),
        FaultPlan::none(),
        1,
    ));
    let objects: Arc<dyn ObjectStore> = Arc::<FaultStore>::clone(&store);
    let engine = Journal::Json.open(objects, &runtime).await.unwrap();
    let task = engine.submit(job("a")).await.unwrap().task;
    store.set_plan(FaultPlan::always(FaultKind::Unavailable));
    let recovery = async {
        runtime.sleep(Duration::from_millis(500)).await;
        store.set_plan(FaultPlan::none());
    };
    let (submitted, ()) = futures_util::future::join(engine.submit(job("a")), recovery).await;
    submitted.unwrap();
    assert_eq!(engine.get(task.id).await.unwrap().id, task.id);
    assert_eq!(all_tasks(&engine).await.len(), 2);
    engine.close().await;
}
