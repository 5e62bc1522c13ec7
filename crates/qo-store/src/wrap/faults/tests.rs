use std::time::Duration;

use object_store::memory::InMemory;
use object_store::{PutMode, UpdateVersion};

use super::*;
use crate::response::{self, ResponseError};
use crate::wrap::testing::PausableRuntime;
use crate::wrap::{CountingStore, Delay, LatencyStore};

struct FaultFixture {
    runtime: Arc<dyn Runtime>,
    memory: Arc<InMemory>,
    store: Arc<FaultStore>,
}

fn seeded_fixture(plan: FaultPlan, seed: u64) -> FaultFixture {
    let runtime = PausableRuntime::shared();
    let memory = Arc::new(InMemory::new());
    let inner = Arc::clone(&memory) as Arc<dyn ObjectStore>;
    let store = FaultStore::new(inner, Arc::clone(&runtime), plan, seed);
    FaultFixture {
        runtime,
        memory,
        store: Arc::new(store),
    }
}

fn fixture(plan: FaultPlan) -> FaultFixture {
    seeded_fixture(plan, 1)
}

fn key() -> Path {
    Path::from("tasks/k")
}

fn status_of(error: &Error) -> Option<u16> {
    match response::find(error) {
        Some(ResponseError::Status { status, .. }) => Some(*status),
        Some(ResponseError::NoResponse { .. }) => None,
        None => panic!("not an error response: {error:?}"),
    }
}

impl FaultFixture {
    async fn create(&self, body: &'static str) -> Result<PutResult> {
        let create = PutMode::Create.into();
        self.store.put_opts(&key(), body.into(), create).await
    }

    async fn swap(&self, tag: &PutResult, body: &'static str) -> Result<PutResult> {
        let version = UpdateVersion::from(tag.clone());
        let swap = PutMode::Update(version).into();
        self.store.put_opts(&key(), body.into(), swap).await
    }

    async fn stored(&self) -> Option<Bytes> {
        match self.memory.get(&key()).await {
            Ok(found) => Some(found.bytes().await.unwrap()),
            Err(Error::NotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn listed(&self) -> Vec<String> {
        let entries: Vec<_> = self.store.list(None).try_collect().await.unwrap();
        entries
            .into_iter()
            .map(|meta| meta.location.to_string())
            .collect()
    }

    fn strikes(&self, kind: FaultKind) -> u64 {
        self.store.injected().get(&kind).copied().unwrap_or(0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_not_applied_and_a_lost_response_is() {
    let fixture = fixture(
        FaultPlan::none()
            .at(1, FaultKind::LostRequest)
            .at(2, FaultKind::LostResponse),
    );
    assert_eq!(status_of(&fixture.create("a").await.unwrap_err()), None);
    assert_eq!(fixture.stored().await, None);
    assert_eq!(status_of(&fixture.create("b").await.unwrap_err()), None);
    assert_eq!(fixture.stored().await.unwrap(), "b");
    let refused = fixture.create("c").await.unwrap_err();
    assert!(matches!(refused, Error::AlreadyExists { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_late_write_keeps_its_condition() {
    let fixture = fixture(
        FaultPlan::none()
            .at(2, FaultKind::LateApply)
            .at(4, FaultKind::LateApply),
    );
    let first = fixture.create("first").await.unwrap();
    let started = fixture.runtime.monotonic();
    assert_eq!(
        status_of(&fixture.swap(&first, "late").await.unwrap_err()),
        None
    );
    assert_eq!(
        fixture.runtime.monotonic(),
        started,
        "the caller must get its error at once"
    );
    assert_eq!(fixture.stored().await.unwrap(), "first");
    fixture.runtime.sleep(Duration::from_secs(3)).await;
    assert_eq!(fixture.stored().await.unwrap(), "late");

    // Another write comes first, so the late one must fail.
    let mode = PutMode::Overwrite.into();
    let current = fixture
        .store
        .put_opts(&key(), "now".into(), mode)
        .await
        .unwrap();
    fixture.swap(&current, "later").await.unwrap_err();
    fixture.memory.put(&key(), "other".into()).await.unwrap();
    fixture.runtime.sleep(Duration::from_secs(3)).await;
    assert_eq!(fixture.stored().await.unwrap(), "other");
    assert_eq!(fixture.strikes(FaultKind::LateApply), 2);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_create_refuses_itself() {
    let fixture = fixture(FaultPlan::none().at(1, FaultKind::DuplicateApply));
    let refused = fixture.create("a").await.unwrap_err();
    assert!(matches!(refused, Error::AlreadyExists { .. }));
    assert_eq!(fixture.stored().await.unwrap(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_not_applied_and_a_500_is() {
    let fixture = fixture(
        FaultPlan::none()
            .at(1, FaultKind::Conflict)
            .at(2, FaultKind::ErrorAfterApply),
    );
    assert_eq!(
        status_of(&fixture.create("a").await.unwrap_err()),
        Some(409)
    );
    assert_eq!(fixture.stored().await, None);
    assert_eq!(
        status_of(&fixture.create("b").await.unwrap_err()),
        Some(500)
    );
    assert_eq!(fixture.stored().await.unwrap(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_burst_fails_every_request() {
    let fixture = fixture(FaultPlan {
        burst: Duration::from_secs(1),
        ..FaultPlan::none().at(1, FaultKind::Unavailable)
    });
    assert_eq!(
        status_of(&fixture.create("a").await.unwrap_err()),
        Some(503)
    );
    fixture.runtime.sleep(Duration::from_millis(900)).await;
    assert_eq!(
        status_of(&fixture.store.get(&key()).await.unwrap_err()),
        Some(503)
    );
    let listed = fixture.store.list(None).next().await.unwrap();
    assert_eq!(status_of(&listed.unwrap_err()), Some(503));
    assert_eq!(
        status_of(&fixture.store.delete(&key()).await.unwrap_err()),
        Some(503)
    );
    assert_eq!(fixture.stored().await, None);
    fixture.runtime.sleep(Duration::from_millis(100)).await;
    fixture.create("b").await.unwrap();
    assert_eq!(fixture.strikes(FaultKind::Unavailable), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_shows_an_earlier_state() {
    let stale = FaultPlan {
        stale_by: Duration::from_secs(1),
        ..FaultPlan::always(FaultKind::StaleList)
    };
    let fixture = fixture(stale);
    let put = async |name: &str| {
        fixture
            .store
            .put(&Path::from(name), "x".into())
            .await
            .unwrap()
    };
    let old = Path::from("a/old");
    put("a/old").await;
    fixture.runtime.sleep(Duration::from_secs(2)).await;
    put("a/new").await;
    put("b/new").await;
    fixture.store.delete(&old).await.unwrap();
    assert_eq!(fixture.listed().await, ["a/old"]);
    let level = fixture.store.list_with_delimiter(None).await.unwrap();
    assert_eq!(level.common_prefixes, [Path::from("a")]);
    let below = Path::from("a");
    let entries = fixture
        .store
        .list_with_offset(Some(&below), &old)
        .count()
        .await;
    assert_eq!(entries, 0);
    fixture.runtime.sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.listed().await, ["a/new", "b/new"]);
    let level = fixture
        .store
        .list_with_delimiter(Some(&below))
        .await
        .unwrap();
    assert_eq!(level.objects.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_torn_body_is_shorter_than_its_size() {
    let fixture = fixture(FaultPlan::always(FaultKind::TornRead));
    fixture.create("0123456789").await.unwrap();
    let response = fixture.store.get(&key()).await.unwrap();
    let size = response.meta.size;
    let body = response.bytes().await.unwrap();
    assert_eq!(size, 10);
    assert!(
        body.len() < 10 && b"0123456789".starts_with(&body),
        "{body:?}"
    );
    assert_eq!(fixture.store.head(&key()).await.unwrap().size, 10);
}

#[tokio::test(start_paused = true)]
async fn an_ignored_condition_lets_every_write_through() {
    let fixture = fixture(FaultPlan::always(FaultKind::IgnoredCondition));
    let first = fixture.create("a").await.unwrap();
    fixture.create("b").await.unwrap();
    fixture.swap(&first, "c").await.unwrap();
    fixture.swap(&first, "d").await.unwrap();
    assert_eq!(fixture.stored().await.unwrap(), "d");
    assert_eq!(fixture.strikes(FaultKind::IgnoredCondition), 4);
}

#[tokio::test(start_paused = true)]
async fn a_non_atomic_condition_holds_alone_and_breaks_in_a_race() {
    let fixture = fixture(FaultPlan::always(FaultKind::NonAtomicCondition));
    let first = fixture.create("a").await.unwrap();
    let refused = fixture.create("b").await.unwrap_err();
    assert!(matches!(refused, Error::AlreadyExists { .. }));
    let second = fixture.swap(&first, "c").await.unwrap();
    let refused = fixture.swap(&first, "d").await.unwrap_err();
    assert!(matches!(refused, Error::Precondition { .. }));
    let (one, other) =
        futures_util::future::join(fixture.swap(&second, "e"), fixture.swap(&second, "f")).await;
    assert!(one.is_ok() && other.is_ok(), "both win");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_applied_between_crash_and_revival() {
    let fixture = fixture(FaultPlan::none().at(2, FaultKind::Crash));
    let first = fixture.create("a").await.unwrap();
    assert!(!fixture.store.is_crashed());
    for _ in 0..2 {
        assert_eq!(
            status_of(&fixture.swap(&first, "b").await.unwrap_err()),
            None
        );
    }
    assert_eq!(
        status_of(&fixture.store.get(&key()).await.unwrap_err()),
        None
    );
    assert!(fixture.store.is_crashed());
    assert_eq!(fixture.stored().await.unwrap(), "a");
    fixture.store.revive();
    fixture.swap(&first, "c").await.unwrap();
    fixture.store.crash();
    fixture.create("d").await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn faults_affect_deletes_copies_and_uploads() {
    let fixture = fixture(FaultPlan::none());
    fixture.create("a").await.unwrap();
    let lost = |kind| FaultPlan::none().at(1, kind);
    fixture.store.set_plan(lost(FaultKind::LostRequest));
    fixture.store.delete(&key()).await.unwrap_err();
    assert!(fixture.stored().await.is_some());

    let copy = Path::from("copy");
    fixture.store.set_plan(lost(FaultKind::LostResponse));
    fixture.store.copy(&key(), &copy).await.unwrap_err();
    assert!(fixture.memory.head(&copy).await.is_ok());

    fixture.store.set_plan(lost(FaultKind::LateApply));
    fixture.store.delete(&key()).await.unwrap_err();
    assert!(fixture.stored().await.is_some());
    fixture.runtime.sleep(Duration::from_secs(3)).await;
    assert!(fixture.stored().await.is_none());

    // The start, a part that is lost and sent again, and a completion whose response is lost.
    fixture.store.set_plan(
        FaultPlan::none()
            .at(2, FaultKind::LostRequest)
            .at(4, FaultKind::LostResponse),
    );
    let mut upload = fixture.store.put_multipart(&key()).await.unwrap();
    upload.put_part("part".into()).await.unwrap_err();
    upload.put_part("part".into()).await.unwrap();
    upload.complete().await.unwrap_err();
    assert_eq!(fixture.stored().await.unwrap(), "part");
    fixture.store.set_plan(lost(FaultKind::Unavailable));
    let started = fixture.store.put_multipart(&key()).await;
    assert_eq!(status_of(&started.unwrap_err()), Some(503));
}

/// A fixed sequence of requests whose results do not matter.
async fn exercise(store: &FaultStore) {
    for n in 0..300 {
        let key = Path::from(format!("tasks/{}", n % 7));
        match n % 5 {
            0 => drop(store.put(&key, "x".into()).await),
            1 => drop(
                store
                    .put_opts(&key, "y".into(), PutMode::Create.into())
                    .await,
            ),
            2 => drop(store.get(&key).await),
            3 => drop(store.list(None).collect::<Vec<_>>().await),
            _ => drop(store.delete(&key).await),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_and_order_give_the_same_faults() {
    let plan = || {
        let mut plan = FaultPlan::none().at(17, FaultKind::LostResponse);
        let rates = FaultKind::OF_STORES
            .iter()
            .copied()
            .filter(|kind| *kind != FaultKind::Crash);
        plan.rules
            .extend(rates.map(|kind| FaultRule::new(kind, 0.05)));
        plan
    };
    let run = async |seed| {
        let fixture = seeded_fixture(plan(), seed);
        exercise(&fixture.store).await;
        assert_eq!(fixture.store.requests(), 300);
        fixture.store.log()
    };
    let log = run(3).await;
    assert!(log.len() > 50, "{}", log.len());
    assert_eq!(log, run(3).await);
    assert_ne!(log, run(4).await);
}

#[tokio::test(start_paused = true)]
async fn rules_apply_at_their_rate_to_matching_requests() {
    let rule = FaultRule::new(FaultKind::LostResponse, 0.25)
        .on([Operation::Put])
        .under(["tasks/"]);
    let fixture = fixture(FaultPlan::none().with(rule));
    for _ in 0..1_000 {
        drop(fixture.store.put(&key(), "x".into()).await);
        fixture
            .store
            .put(&Path::from("ready/k"), "x".into())
            .await
            .unwrap();
        fixture.store.get(&key()).await.unwrap();
    }
    let strikes = fixture.strikes(FaultKind::LostResponse);
    assert!((200..300).contains(&strikes), "{strikes}");
}

#[tokio::test(start_paused = true)]
async fn the_log_is_bounded_and_the_counters_are_not() {
    let fixture = fixture(FaultPlan::always(FaultKind::LostRequest));
    for _ in 0..10_001 {
        fixture.store.get(&key()).await.unwrap_err();
    }
    assert_eq!(fixture.store.log().len(), 10_000);
    assert_eq!(fixture.strikes(FaultKind::LostRequest), 10_001);
}

#[tokio::test(start_paused = true)]
async fn the_wrappers_stack() {
    let runtime = PausableRuntime::shared();
    let memory = Arc::new(InMemory::new());
    let delay = Delay::Fixed(Duration::from_millis(40));
    let slow = Arc::new(LatencyStore::new(memory, Arc::clone(&runtime), delay, 1));
    let plan = FaultPlan::none()
        .at(2, FaultKind::LostResponse)
        .at(3, FaultKind::Conflict);
    let faulty = Arc::new(FaultStore::new(slow, Arc::clone(&runtime), plan, 1));
    let store = CountingStore::new(Arc::clone(&faulty) as Arc<dyn ObjectStore>);
    assert_eq!(store.to_string(), "Counting(Faults(Latency(InMemory)))");

    store.put(&key(), "a".into()).await.unwrap();
    store.put(&key(), "b".into()).await.unwrap_err();
    let create = PutMode::Create.into();
    store
        .put_opts(&key(), "c".into(), create)
        .await
        .unwrap_err();
    let body = store.get(&key()).await.unwrap().bytes().await.unwrap();
    assert_eq!(body, "b");
    // The conflict was never sent, so it took no time.
    assert_eq!(runtime.monotonic(), Duration::from_millis(3 * 40));
    let counts = store.counts();
    assert_eq!(counts.requests(), 4);
    assert_eq!(counts.of("tasks", Operation::Put).errors, 1);
    assert_eq!(counts.of("tasks", Operation::Create).errors, 1);
    assert_eq!(faulty.log().len(), 2);
}
