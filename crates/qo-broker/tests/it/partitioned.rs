//! A queue that is divided over several brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use object_store::ObjectStore;
use proptest::prelude::*;
use qo_broker::{BrokerEngine, JsonConfig, SlateConfig};
use qo_core::task::IdempotencyScope;
use qo_core::{Status, TaskId, Timestamp};
use qo_engine::api::{
    ClaimRequest, Duty, IdempotencyRequest, SubmitRequest, TaskFilter, TaskQuery,
};
use qo_engine::conformance::{Harness, run};
use qo_engine::watch::Watcher;
use qo_engine::{
    ChangeCall, Engine, EngineError, ForwardingEngine, Operation, PARTITIONS_MAX,
    PartitionedEngine, ReadCall,
};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, RuntimeExt, TokioRuntime};
use qo_store::wrap::{Delay, LatencyStore};
use tokio::sync::OnceCell;

use super::engines::{Journal, WAIT_MAX, all_tasks, claim_request, job, memory};

/// Small, so that the largest payload is cheap.
const PAYLOAD_MAX_BYTES: u64 = 256 * 1024;

/// Brokers on a store each.
#[derive(Debug)]
struct PartitionedHarness {
    journal: Journal,
    stores: Vec<Arc<dyn ObjectStore>>,
    runtime: Arc<dyn Runtime>,
    /// The engines that run maintenance. SlateDB allows only one on a store.
    first: OnceCell<Vec<BrokerEngine>>,
}

impl PartitionedHarness {
    fn new(journal: Journal, partitions: usize) -> Self {
        Self {
            journal,
            stores: (0..partitions).map(|_| memory()).collect(),
            runtime: TokioRuntime::shared(),
            first: OnceCell::new(),
        }
    }

    async fn open(&self) -> Vec<BrokerEngine> {
        let mut engines = Vec::new();
        for store in &self.stores {
            let (store, runtime) = (Arc::clone(store), Arc::clone(&self.runtime));
            let (clock, client) = (Arc::new(StoreClock::new()), ClientConfig::default());
            engines.push(match self.journal {
                Journal::Json => {
                    let mut config = JsonConfig::local();
                    config.state.payload_max_bytes = PAYLOAD_MAX_BYTES;
                    BrokerEngine::json(store, clock, runtime, client, config)
                }
                Journal::Slate => {
                    let mut config = SlateConfig::default();
                    config.state.payload_max_bytes = PAYLOAD_MAX_BYTES;
                    let engine = BrokerEngine::slate(store, clock, runtime, client, config);
                    engine.await.unwrap()
                }
            });
        }
        engines
    }

    async fn first(&self) -> &[BrokerEngine] {
        self.first.get_or_init(|| self.open()).await
    }
}

#[async_trait]
impl Harness for PartitionedHarness {
    fn has_queue_settings(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        format!("{} partitions of {:?}", self.stores.len(), self.journal)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        let engines = match self.journal {
            Journal::Json => self.open().await,
            Journal::Slate => self.first().await.to_vec(),
        };
        Arc::new(partitioned(engines, &self.runtime))
    }

    async fn maintain(&self) {
        for engine in self.first().await {
            engine.maintain().await.unwrap();
        }
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime)
    }

    fn payload_max_bytes(&self) -> u64 {
        PAYLOAD_MAX_BYTES
    }

    fn foreign_tasks(&self) -> usize {
        3_000
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_partitions_conform() {
    run(&PartitionedHarness::new(Journal::Json, 3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_partitions_conform() {
    run(&PartitionedHarness::new(Journal::Slate, 16)).await;
}

fn partitioned(engines: Vec<impl Engine>, runtime: &Arc<dyn Runtime>) -> PartitionedEngine {
    let engines = engines.into_iter().map(|one| Arc::new(one) as _).collect();
    PartitionedEngine::new(engines, Arc::clone(runtime)).unwrap()
}

/// Three brokers on stores with this latency, and the queue over them.
async fn three(delay: Duration) -> (Vec<BrokerEngine>, PartitionedEngine) {
    let runtime = TokioRuntime::shared();
    let mut engines = Vec::new();
    for seed in 0..3 {
        let store = LatencyStore::new(memory(), Arc::clone(&runtime), Delay::Fixed(delay), seed);
        let engine = Journal::Slate.open(Arc::new(store), &runtime);
        engines.push(engine.await.unwrap());
    }
    let queue = partitioned(engines.clone(), &runtime);
    (engines, queue)
}

async fn pause(duration: Duration) {
    TokioRuntime::shared().sleep(duration).await;
}

fn keyed(key: &str) -> SubmitRequest {
    SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            key: key.parse().unwrap(),
            scope: IdempotencyScope::Queue,
            window_ms: None,
        }),
        ..job("a")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_task_is_in_one_partition_and_found_by_its_id() {
    let (engines, queue) = three(Duration::ZERO).await;
    let chosen = SubmitRequest {
        id: Some("550e8400-e29b-41d4-a716-446655440000".parse().unwrap()),
        ..job("a")
    };
    let mut requests: Vec<_> = (0..60).map(|_| job("a")).collect();
    requests.extend((0..60).map(|n| keyed(&format!("order {n}"))));
    requests.push(chosen);
    let results = queue.submit_many(requests.clone()).await;
    let ids: Vec<TaskId> = results
        .into_iter()
        .map(|one| one.unwrap().task.id)
        .collect();
    let mut shares = BTreeMap::new();
    for id in &ids {
        let mut holders = Vec::new();
        for (partition, engine) in engines.iter().enumerate() {
            holders.extend(engine.get(*id).await.is_ok().then_some(partition));
        }
        assert_eq!(holders, [queue.partition_of(*id)]);
        *shares.entry(holders[0]).or_insert(0) += 1;
        assert_eq!(queue.get(*id).await.unwrap().id, *id);
    }
    assert!(
        shares.len() == 3 && shares.values().all(|share| *share > 15),
        "{shares:?}"
    );
    // The same keys and ids again, in another order, from another client.
    let again = partitioned(engines, &TokioRuntime::shared());
    let (mut repeated, mut expected): (Vec<SubmitRequest>, Vec<&TaskId>) =
        requests.into_iter().zip(&ids).skip(60).unzip();
    repeated.reverse();
    expected.reverse();
    for (result, id) in again.submit_many(repeated).await.into_iter().zip(expected) {
        let submitted = result.unwrap();
        assert_eq!((submitted.duplicate, submitted.task.id), (true, *id));
    }
    assert_eq!(all_tasks(&again).await.len(), ids.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_id_that_contradicts_its_key_is_refused() {
    let (_, queue) = three(Duration::ZERO).await;
    let key = keyed("order 17");
    let route = key.scoped_key().unwrap().route();
    let runtime = TokioRuntime::shared();
    let (mut accepted, mut refused) = (0, 0);
    for n in 0..30 {
        let id = runtime.new_task_id();
        let request = SubmitRequest {
            id: Some(id),
            ..keyed(&format!("order {n}"))
        };
        let matches = request.scoped_key().unwrap().route().partition(3) == id.route().partition(3);
        match queue.submit(request).await {
            Ok(submitted) => {
                assert!(matches);
                assert_eq!(submitted.task.id, id);
                accepted += 1;
            }
            Err(EngineError::BadRequest(message)) => {
                assert!(
                    !matches && message.contains("different partitions"),
                    "{message}"
                );
                assert!(queue.get(id).await.unwrap_err().is_not_found());
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(accepted > 0 && refused > 0);
    let id = runtime.new_task_id().with_route(route);
    let request = SubmitRequest {
        id: Some(id),
        ..keyed("order 18")
    };
    // Its route is that of another key.
    let _ = queue.submit(request).await;
    let request = SubmitRequest {
        id: Some(id),
        ..key
    };
    queue.submit(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_takes_the_most_urgent_tasks_of_all_partitions_and_no_more() {
    let (engines, queue) = three(Duration::from_millis(2)).await;
    let requests = (0..90).map(|n| SubmitRequest {
        priority: n % 10,
        ..job("a")
    });
    for result in queue.submit_many(requests.collect()).await {
        result.unwrap();
    }
    let mut priorities = Vec::new();
    for max in [1, 2, 5, 10, 30, 100] {
        let claimed = queue.claim(&claim_request("a", max, 5_000)).await.unwrap();
        assert!(claimed.len() <= max);
        priorities.extend(claimed.iter().map(|task| task.priority));
        let mut running = 0;
        for engine in &engines {
            let stats = engine.stats().await.unwrap();
            running += stats.queues[&"default".parse().unwrap()]
                .statuses
                .get(&Status::Running)
                .copied()
                .unwrap_or(0);
        }
        assert_eq!(
            running,
            priorities.len() as u64,
            "only returned tasks are claimed"
        );
    }
    assert_eq!(priorities.len(), 90);
    assert!(priorities.is_sorted(), "{priorities:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_claims_share_tasks_that_come_one_by_one() {
    let (_, queue) = three(Duration::from_millis(5)).await;
    let waiting = (0..12).map(|n| {
        let queue = queue.clone();
        async move {
            let request = ClaimRequest {
                worker: format!("w-{n}").parse().unwrap(),
                ..claim_request("a", 3, 60_000)
            };
            queue.claim(&request).await.unwrap()
        }
    });
    let mut claims = tokio::task::JoinSet::new();
    for claim in waiting {
        claims.spawn(claim);
    }
    pause(Duration::from_millis(100)).await;
    let mut submitted = BTreeSet::new();
    for _ in 0..12 {
        submitted.insert(queue.submit(job("a")).await.unwrap().task.id);
        pause(Duration::from_millis(20)).await;
    }
    let mut claimed = BTreeSet::new();
    loop {
        // A claim may get several tasks; the others then wait for more.
        tokio::select! {
            next = claims.join_next() => match next {
                None => break,
                Some(tasks) => {
                    for task in tasks.unwrap() {
                        assert!(claimed.insert(task.id), "claimed twice");
                    }
                }
            },
            () = pause(Duration::from_millis(50)) => {
                submitted.insert(queue.submit(job("a")).await.unwrap().task.id);
            }
        }
    }
    assert!(claimed.is_subset(&submitted));
    let rest = queue.claim(&claim_request("a", 1_000, 0)).await.unwrap();
    claimed.extend(rest.iter().map(|task| task.id));
    assert_eq!(claimed, submitted, "no task is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_of_a_cancelled_claim_go_to_the_next_one() {
    let (_, queue) = three(Duration::from_millis(30)).await;
    for result in queue.submit_many(vec![job("a"); 30]).await {
        result.unwrap();
    }
    for wait_ms in [0, 5, 20, 40, 60, 80] {
        let hasty = claim_request("a", 30, 0);
        let claim = tokio::time::timeout(Duration::from_millis(wait_ms), queue.claim(&hasty));
        if let Ok(Ok(tasks)) = claim.await {
            let releases = tasks.iter().map(|task| {
                let lease = task.lease_id.unwrap();
                (task.id, Operation::Release { lease })
            });
            for result in queue.act_many(releases.collect()).await {
                result.unwrap();
            }
        }
    }
    // Leases last ten minutes here, so a task that is claimed in time was released before.
    let all = async {
        let mut claimed = BTreeSet::new();
        while claimed.len() < 30 {
            let tasks = queue.claim(&claim_request("a", 30, 1_000)).await.unwrap();
            claimed.extend(tasks.iter().map(|task| task.id));
        }
    };
    tokio::time::timeout(WAIT_MAX, all).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_closed_partition_does_not_stop_the_others() {
    let (engines, queue) = three(Duration::ZERO).await;
    for result in queue.submit_many(vec![job("a"); 60]).await {
        result.unwrap();
    }
    let held = all_tasks(&engines[1]).await.len();
    engines[1].close().await;
    let mut claimed = 0;
    while claimed < 60 - held {
        let tasks = queue.claim(&claim_request("a", 10, 1_000)).await.unwrap();
        assert!(!tasks.is_empty());
        claimed += tasks.len();
    }
    assert_eq!(queue.claim(&claim_request("a", 10, 50)).await.unwrap(), []);
    assert!(
        queue.stats().await.is_err(),
        "counts are never partial in silence"
    );
    // A waiting claim still gets what the others offer.
    let waiting = claim_request("a", 1, 60_000);
    let claim = queue.claim(&waiting);
    let submit = async {
        pause(Duration::from_millis(100)).await;
        while queue.submit(job("a")).await.is_err() {}
    };
    let (claimed, ()) = futures_util::future::join(claim, submit).await;
    assert_eq!(claimed.unwrap().len(), 1);
    engines[0].close().await;
    engines[2].close().await;
    let error = queue.claim(&claim_request("a", 1, 0)).await.unwrap_err();
    assert_eq!(error, EngineError::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_list_shows_each_task_once_in_pages_of_any_size() {
    let (_, queue) = three(Duration::ZERO).await;
    for result in queue.submit_many(vec![job("a"); 50]).await {
        result.unwrap();
    }
    for limit in [1, 7, 49, 50, 51, 5_000] {
        let (mut ids, mut cursor) = (BTreeSet::new(), None::<String>);
        for page_number in 0.. {
            let filter = TaskFilter::default();
            let page = queue
                .list(TaskQuery::first(&filter, limit).at(cursor.as_deref()))
                .await
                .unwrap();
            assert!(page.tasks.len() <= limit && page_number <= 55);
            for task in page.tasks {
                assert!(ids.insert(task.id));
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(ids.len(), 50);
    }
}

/// An engine that cannot tell what is due, as servers of other versions cannot.
#[derive(Debug, Clone)]
struct Silent {
    engine: BrokerEngine,
    changes: Arc<AtomicUsize>,
}

impl ForwardingEngine for Silent {
    fn now(&self) -> Timestamp {
        self.engine.now()
    }

    async fn read<'a, T: Send + 'a>(
        &'a self,
        call: impl ReadCall<'a, T>,
    ) -> Result<T, EngineError> {
        call(Arc::new(self.engine.clone())).await
    }

    async fn change<'a, T: Send + 'a>(
        &'a self,
        call: impl ChangeCall<'a, T>,
    ) -> Result<T, EngineError> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        call(Arc::new(self.engine.clone())).await
    }

    fn forwards_due(&self) -> bool {
        false
    }

    fn duty(&self) -> Duty {
        self.engine.duty()
    }

    fn watch(&self, _watcher: Weak<dyn Watcher>) -> bool {
        false
    }

    async fn close(&self) {
        self.engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn engines_that_cannot_tell_what_is_due_are_asked_in_turn() {
    let (engines, _) = three(Duration::ZERO).await;
    let changes = Arc::new(AtomicUsize::new(0));
    let silent = engines.iter().map(|engine| Silent {
        engine: engine.clone(),
        changes: Arc::clone(&changes),
    });
    let queue = partitioned(silent.collect(), &TokioRuntime::shared());
    for result in queue.submit_many(vec![job("a"); 60]).await {
        result.unwrap();
    }
    let claimed = queue.claim(&claim_request("a", 40, 0)).await.unwrap();
    assert_eq!(claimed.len(), 40);
    let claimed = queue.claim(&claim_request("a", 40, 0)).await.unwrap();
    assert_eq!(claimed.len(), 20);
    let before = changes.load(Ordering::Relaxed);
    let waiting = claim_request("a", 1, 60_000);
    let claim = queue.claim(&waiting);
    let submit = async {
        pause(Duration::from_millis(500)).await;
        queue.submit(job("a")).await.unwrap()
    };
    let (claimed, submitted) = futures_util::future::join(claim, submit).await;
    assert_eq!(claimed.unwrap()[0].id, submitted.task.id);
    // One of the changes is the submit.
    let asked = changes.load(Ordering::Relaxed) - before - 1;
    assert!(asked < 60, "{asked} claims in half a second");
}

#[test]
fn the_number_of_partitions_is_bounded() {
    for count in [0, PARTITIONS_MAX + 1] {
        let engines: Vec<Arc<dyn Engine>> = match count {
            0 => Vec::new(),
            count => {
                let rt = tokio::runtime::Runtime::new().unwrap();
                let engine = rt.block_on(async { three(Duration::ZERO).await.1 });
                let engine: Arc<dyn Engine> = Arc::new(engine);
                vec![engine; count]
            }
        };
        let error = PartitionedEngine::new(engines, TokioRuntime::shared()).unwrap_err();
        assert!(error.to_string().contains("partitions"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever mixture of ids and keys is submitted in whatever order, by two clients that know nothing of each other: one task per id
    /// and per key, and all are found, listed and claimed once.
    #[test]
    fn ids_and_keys_stay_unique(
        submits in prop::collection::vec((prop::option::of(0_u8..12), prop::option::of(0_u8..12), any::<bool>()), 1..40),
    ) {
        let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        rt.block_on(async {
            let (engines, first) = three(Duration::ZERO).await;
            let second = partitioned(engines, &TokioRuntime::shared());
            let (mut of_ids, mut of_keys) = (BTreeMap::new(), BTreeMap::new());
            let mut all = BTreeSet::new();
            for (id, key, by_first) in submits {
                let mut request = key.map_or_else(|| job("a"), |key| keyed(&format!("key {key}")));
                request.id = id.map(|id| TaskId::from_bytes([id; 16]));
                let client = if by_first { &first } else { &second };
                let (id, task) = match client.submit(request.clone()).await {
                    Err(EngineError::BadRequest(_)) => continue,
                    other => (request.id, other.unwrap().task),
                };
                all.insert(task.id);
                // A known id decides; otherwise a known key does.
                if let Some(known) = id.and_then(|id| of_ids.get(&id).copied()) {
                    prop_assert_eq!(task.id, known);
                } else if let Some(holder) = key.and_then(|key| of_keys.get(&key).copied()) {
                    prop_assert_eq!(task.id, holder);
                } else {
                    prop_assert!(id.is_none_or(|id| id == task.id));
                    of_keys.extend(key.map(|key| (key, task.id)));
                }
                of_ids.insert(task.id, task.id);
            }
            let listed: Vec<_> = all_tasks(&second).await.iter().map(|task| task.id).collect();
            prop_assert_eq!(listed.len(), all.len());
            prop_assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), all.clone());
            let mut claimed = BTreeSet::new();
            while claimed.len() < all.len() {
                for task in first.claim(&claim_request("a", 7, 5_000)).await.unwrap() {
                    prop_assert!(claimed.insert(task.id), "claimed twice");
                }
            }
            prop_assert_eq!(claimed, all);
            Ok(())
        })?;
    }
}
