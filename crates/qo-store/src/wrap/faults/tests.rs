use std::time::Duration;

use object_store::memory::InMemory;
use object_store::{PutMode, UpdateVersion};

use super::*;
use crate::response::{self, ResponseError};
use crate::wrap::testing::PausableRuntime;
use crate::wrap::{CountingStore, Delay, LatencyStore};

struct Rig {
    runtime: Arc<dyn Runtime>,
    memory: Arc<InMemory>,
    store: Arc<FaultStore>,
}

fn rig_seeded(plan: FaultPlan, seed: u64) -> Rig {
    let runtime = PausableRuntime::shared();
    let memory = Arc::new(InMemory::new());
    let inner = Arc::clone(&memory) as Arc<dyn ObjectStore>;
    let store = FaultStore::new(inner, Arc::clone(&runtime), plan, seed);
    Rig {
        runtime,
        memory,
        store: Arc::new(store),
    }
}

fn rig(plan: FaultPlan) -> Rig {
    rig_seeded(plan, 1)
}

fn key() -> Path {
    Path::from("tasks/k")
}

fn status_of(error: &Error) -> Option<u16> {
    match response::find(error) {
        Some(ResponseError::Status { status, .. }) => Some(*status),
        Some(ResponseError::NoAnswer { .. }) => None,
        None => panic!("not a failed answer: {error:?}"),
    }
}

impl Rig {
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
async fn a_lost_request_changes_nothing_and_a_lost_answer_hides_what_it_did() {
    let rig = rig(FaultPlan::none()
        .at(1, FaultKind::LostRequest)
        .at(2, FaultKind::LostAnswer));
    assert_eq!(status_of(&rig.create("a").await.unwrap_err()), None);
    assert_eq!(rig.stored().await, None);
    assert_eq!(status_of(&rig.create("b").await.unwrap_err()), None);
    assert_eq!(rig.stored().await.unwrap(), "b");
    let refused = rig.create("c").await.unwrap_err();
    assert!(matches!(refused, Error::AlreadyExists { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_late_write_keeps_its_condition() {
    let rig = rig(FaultPlan::none()
        .at(2, FaultKind::LateApply)
        .at(4, FaultKind::LateApply));
    let first = rig.create("first").await.unwrap();
    let started = rig.runtime.monotonic();
    assert_eq!(
        status_of(&rig.swap(&first, "late").await.unwrap_err()),
        None
    );
    assert_eq!(
        rig.runtime.monotonic(),
        started,
        "the caller is told at once"
    );
    assert_eq!(rig.stored().await.unwrap(), "first");
    rig.runtime.sleep(Duration::from_secs(3)).await;
    assert_eq!(rig.stored().await.unwrap(), "late");

    // Somebody else's write comes between, so the late one must fail.
    let mode = PutMode::Overwrite.into();
    let current = rig
        .store
        .put_opts(&key(), "now".into(), mode)
        .await
        .unwrap();
    rig.swap(&current, "later").await.unwrap_err();
    rig.memory.put(&key(), "other".into()).await.unwrap();
    rig.runtime.sleep(Duration::from_secs(3)).await;
    assert_eq!(rig.stored().await.unwrap(), "other");
    assert_eq!(rig.strikes(FaultKind::LateApply), 2);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_create_is_refused_by_itself() {
    let rig = rig(FaultPlan::none().at(1, FaultKind::DuplicateApply));
    let refused = rig.create("a").await.unwrap_err();
    assert!(matches!(refused, Error::AlreadyExists { .. }));
    assert_eq!(rig.stored().await.unwrap(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_changes_nothing_and_a_500_hides_what_it_did() {
    let rig = rig(FaultPlan::none()
        .at(1, FaultKind::Conflict)
        .at(2, FaultKind::ErrorAfterApply));
    assert_eq!(status_of(&rig.create("a").await.unwrap_err()), Some(409));
    assert_eq!(rig.stored().await, None);
    assert_eq!(status_of(&rig.create("b").await.unwrap_err()), Some(500));
    assert_eq!(rig.stored().await.unwrap(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_burst_fails_everything_until_it_is_over() {
    let rig = rig(FaultPlan {
        burst: Duration::from_secs(1),
        ..FaultPlan::none().at(1, FaultKind::Unavailable)
    });
    assert_eq!(status_of(&rig.create("a").await.unwrap_err()), Some(503));
    rig.runtime.sleep(Duration::from_millis(900)).await;
    assert_eq!(
        status_of(&rig.store.get(&key()).await.unwrap_err()),
        Some(503)
    );
    let listed = rig.store.list(None).next().await.unwrap();
    assert_eq!(status_of(&listed.unwrap_err()), Some(503));
    assert_eq!(
        status_of(&rig.store.delete(&key()).await.unwrap_err()),
        Some(503)
    );
    assert_eq!(rig.stored().await, None);
    rig.runtime.sleep(Duration::from_millis(100)).await;
    rig.create("b").await.unwrap();
    assert_eq!(rig.strikes(FaultKind::Unavailable), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_shows_the_past() {
    let stale = FaultPlan {
        stale_by: Duration::from_secs(1),
        ..FaultPlan::always(FaultKind::StaleList)
    };
    let rig = rig(stale);
    let put = async |name: &str| rig.store.put(&Path::from(name), "x".into()).await.unwrap();
    let old = Path::from("a/old");
    put("a/old").await;
    rig.runtime.sleep(Duration::from_secs(2)).await;
    put("a/new").await;
    put("b/new").await;
    rig.store.delete(&old).await.unwrap();
    assert_eq!(rig.listed().await, ["a/old"]);
    let level = rig.store.list_with_delimiter(None).await.unwrap();
    assert_eq!(level.common_prefixes, [Path::from("a")]);
    let below = Path::from("a");
    let entries = rig.store.list_with_offset(Some(&below), &old).count().await;
    assert_eq!(entries, 0);
    rig.runtime.sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.listed().await, ["a/new", "b/new"]);
    let level = rig.store.list_with_delimiter(Some(&below)).await.unwrap();
    assert_eq!(level.objects.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_torn_body_is_shorter_than_its_size() {
    let rig = rig(FaultPlan::always(FaultKind::TornRead));
    rig.create("0123456789").await.unwrap();
    let answer = rig.store.get(&key()).await.unwrap();
    let size = answer.meta.size;
    let body = answer.bytes().await.unwrap();
    assert_eq!(size, 10);
    assert!(
        body.len() < 10 && b"0123456789".starts_with(&body),
        "{body:?}"
    );
    assert_eq!(rig.store.head(&key()).await.unwrap().size, 10);
}

#[tokio::test(start_paused = true)]
async fn an_ignored_condition_lets_everybody_write() {
    let rig = rig(FaultPlan::always(FaultKind::IgnoredCondition));
    let first = rig.create("a").await.unwrap();
    rig.create("b").await.unwrap();
    rig.swap(&first, "c").await.unwrap();
    rig.swap(&first, "d").await.unwrap();
    assert_eq!(rig.stored().await.unwrap(), "d");
    assert_eq!(rig.strikes(FaultKind::IgnoredCondition), 4);
}

#[tokio::test(start_paused = true)]
async fn a_non_atomic_condition_holds_alone_and_breaks_in_a_race() {
    let rig = rig(FaultPlan::always(FaultKind::NonAtomicCondition));
    let first = rig.create("a").await.unwrap();
    let refused = rig.create("b").await.unwrap_err();
    assert!(matches!(refused, Error::AlreadyExists { .. }));
    let second = rig.swap(&first, "c").await.unwrap();
    let refused = rig.swap(&first, "d").await.unwrap_err();
    assert!(matches!(refused, Error::Precondition { .. }));
    let (one, other) =
        futures_util::future::join(rig.swap(&second, "e"), rig.swap(&second, "f")).await;
    assert!(one.is_ok() && other.is_ok(), "both win");
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_after_a_crash_until_the_revival() {
    let rig = rig(FaultPlan::none().at(2, FaultKind::Crash));
    let first = rig.create("a").await.unwrap();
    assert!(!rig.store.is_crashed());
    for _ in 0..2 {
        assert_eq!(status_of(&rig.swap(&first, "b").await.unwrap_err()), None);
    }
    assert_eq!(status_of(&rig.store.get(&key()).await.unwrap_err()), None);
    assert!(rig.store.is_crashed());
    assert_eq!(rig.stored().await.unwrap(), "a");
    rig.store.revive();
    rig.swap(&first, "c").await.unwrap();
    rig.store.crash();
    rig.create("d").await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn deletes_copies_and_parts_suffer_too() {
    let rig = rig(FaultPlan::none());
    rig.create("a").await.unwrap();
    let lost = |kind| FaultPlan::none().at(1, kind);
    rig.store.set_plan(lost(FaultKind::LostRequest));
    rig.store.delete(&key()).await.unwrap_err();
    assert!(rig.stored().await.is_some());

    let copy = Path::from("copy");
    rig.store.set_plan(lost(FaultKind::LostAnswer));
    rig.store.copy(&key(), &copy).await.unwrap_err();
    assert!(rig.memory.head(&copy).await.is_ok());

    rig.store.set_plan(lost(FaultKind::LateApply));
    rig.store.delete(&key()).await.unwrap_err();
    assert!(rig.stored().await.is_some());
    rig.runtime.sleep(Duration::from_secs(3)).await;
    assert!(rig.stored().await.is_none());

    // The start, a part that is lost and sent again, and an end whose answer is lost.
    rig.store.set_plan(
        FaultPlan::none()
            .at(2, FaultKind::LostRequest)
            .at(4, FaultKind::LostAnswer),
    );
    let mut upload = rig.store.put_multipart(&key()).await.unwrap();
    upload.put_part("part".into()).await.unwrap_err();
    upload.put_part("part".into()).await.unwrap();
    upload.complete().await.unwrap_err();
    assert_eq!(rig.stored().await.unwrap(), "part");
    rig.store.set_plan(lost(FaultKind::Unavailable));
    let started = rig.store.put_multipart(&key()).await;
    assert_eq!(status_of(&started.unwrap_err()), Some(503));
}

/// A fixed mixture of requests, whose outcomes do not matter.
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
        let mut plan = FaultPlan::none().at(17, FaultKind::LostAnswer);
        let rates = FaultKind::OF_STORES
            .into_iter()
            .filter(|kind| *kind != FaultKind::Crash);
        plan.rules
            .extend(rates.map(|kind| FaultRule::new(kind, 0.05)));
        plan
    };
    let run = async |seed| {
        let rig = rig_seeded(plan(), seed);
        exercise(&rig.store).await;
        assert_eq!(rig.store.requests(), 300);
        rig.store.log()
    };
    let log = run(3).await;
    assert!(log.len() > 50, "{}", log.len());
    assert_eq!(log, run(3).await);
    assert_ne!(log, run(4).await);
}

#[tokio::test(start_paused = true)]
async fn rules_strike_at_their_rate_and_only_where_they_may() {
    let rule = FaultRule::new(FaultKind::LostAnswer, 0.25)
        .on([Operation::Put])
        .under(["tasks/"]);
    let rig = rig(FaultPlan::none().with(rule));
    for _ in 0..1_000 {
        drop(rig.store.put(&key(), "x".into()).await);
        rig.store
            .put(&Path::from("ready/k"), "x".into())
            .await
            .unwrap();
        rig.store.get(&key()).await.unwrap();
    }
    let strikes = rig.strikes(FaultKind::LostAnswer);
    assert!((200..300).contains(&strikes), "{strikes}");
}

#[tokio::test(start_paused = true)]
async fn the_log_is_bounded_and_the_counters_are_not() {
    let rig = rig(FaultPlan::always(FaultKind::LostRequest));
    for _ in 0..10_001 {
        rig.store.get(&key()).await.unwrap_err();
    }
    assert_eq!(rig.store.log().len(), 10_000);
    assert_eq!(rig.strikes(FaultKind::LostRequest), 10_001);
}

#[tokio::test(start_paused = true)]
async fn the_wrappers_stack() {
    let runtime = PausableRuntime::shared();
    let memory = Arc::new(InMemory::new());
    let delay = Delay::Fixed(Duration::from_millis(40));
    let slow = Arc::new(LatencyStore::new(memory, Arc::clone(&runtime), delay, 1));
    let plan = FaultPlan::none()
        .at(2, FaultKind::LostAnswer)
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
    // The conflict never went out, so it took no time.
    assert_eq!(runtime.monotonic(), Duration::from_millis(3 * 40));
    let counts = store.counts();
    assert_eq!(counts.requests(), 4);
    assert_eq!(counts.of("tasks", Operation::Put).errors, 1);
    assert_eq!(counts.of("tasks", Operation::Create).errors, 1);
    assert_eq!(faulty.log().len(), 2);
}
