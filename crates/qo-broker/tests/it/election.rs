//! Elections in paused time: brokers that die, hang, stop, and are unreachable.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use qo_broker::election::{ElectionConfig, ElectionError, Elector, LeaderPing, Leadership};
use qo_core::keys::BROKER_KEY;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;
use qo_store::wrap::{FaultKind, FaultPlan, FaultStore};

use qo_fixtures::{Bucket, LayeredStore, PausableRuntime, StoreLayer};

/// The reachable addresses.
#[derive(Default)]
struct Network(Mutex<BTreeSet<String>>);

impl Network {
    fn set(&self, address: &str, reachable: bool) {
        let mut addresses = self.0.lock().unwrap();
        if reachable {
            addresses.insert(address.to_owned());
        } else {
            addresses.remove(address);
        }
    }
}

#[async_trait]
impl LeaderPing for Network {
    async fn is_alive(&self, address: &str, _id: &str) -> bool {
        self.0.lock().unwrap().contains(address)
    }
}

struct Scene {
    bucket: Bucket,
    network: Arc<Network>,
}

impl Scene {
    fn new() -> Self {
        Self {
            bucket: Bucket::new(),
            network: Arc::default(),
        }
    }

    fn elector(&self, address: Option<&str>, seed: u64) -> Elector {
        self.elector_on(self.bucket.objects(), address, seed)
    }

    fn elector_on(
        &self,
        objects: Arc<dyn object_store::ObjectStore>,
        address: Option<&str>,
        seed: u64,
    ) -> Elector {
        self.elector_with(ElectionConfig::default(), objects, address, seed)
    }

    fn elector_with(
        &self,
        config: ElectionConfig,
        objects: Arc<dyn object_store::ObjectStore>,
        address: Option<&str>,
        seed: u64,
    ) -> Elector {
        if let Some(address) = address {
            self.network.set(address, true);
        }
        let runtime: Arc<PausableRuntime> = self.bucket.runtime.beside(seed, 0);
        let client = StoreClient::new(
            objects,
            Arc::new(StoreClock::new()),
            runtime.clone(),
            ClientConfig::default(),
        );
        Elector::new(
            &client,
            runtime,
            config,
            self.network.clone(),
            address.map(str::to_owned),
        )
    }

    fn elapsed(&self) -> Duration {
        self.bucket.runtime.monotonic()
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_broker_leads_and_a_standby_waits_while_it_responds() {
    let scene = Scene::new();
    let leadership = scene.elector(Some("a"), 1).acquire().await.unwrap();
    assert_eq!(leadership.epoch(), 1);
    leadership.confirm().await.unwrap();
    let standby = scene.elector(Some("b"), 2);
    let waited = tokio::time::timeout(Duration::from_hours(1), standby.acquire()).await;
    assert!(
        waited.is_err(),
        "the standby took over from a leader that answers"
    );
    leadership.confirm().await.unwrap();
    let record = standby.current().await.unwrap().unwrap();
    assert_eq!(record.holder.unwrap().address.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_within_five_seconds() {
    let scene = Scene::new();
    let leadership = scene.elector(Some("a"), 1).acquire().await.unwrap();
    let standby = scene.elector(Some("b"), 2);
    let died_at = Arc::new(Mutex::new(Duration::ZERO));
    let death = async {
        scene.bucket.runtime.sleep(Duration::from_secs(30)).await;
        scene.network.set("a", false);
        drop(leadership);
        *died_at.lock().unwrap() = scene.elapsed();
    };
    let (next, ()) = tokio::join!(standby.acquire(), death);
    assert_eq!(next.unwrap().epoch(), 2);
    let took = scene.elapsed().saturating_sub(*died_at.lock().unwrap());
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_hands_over_at_once() {
    let scene = Scene::new();
    let leadership = scene.elector(Some("a"), 1).acquire().await.unwrap();
    let standby = scene.elector(Some("b"), 2);
    let mut stopped_at = Duration::ZERO;
    let stop = async {
        scene.bucket.runtime.sleep(Duration::from_secs(30)).await;
        leadership.release().await;
        scene.network.set("a", false);
        stopped_at = scene.elapsed();
    };
    let (next, ()) = tokio::join!(standby.acquire(), stop);
    assert_eq!(next.unwrap().epoch(), 2);
    assert!(scene.elapsed().saturating_sub(stopped_at) < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_leader_that_renews_stays_the_leader() {
    let scene = Scene::new();
    let leadership = scene.elector(Some("a"), 1).acquire().await.unwrap();
    scene.network.set("a", false);
    let standby = scene.elector(Some("b"), 2);
    let waited = tokio::time::timeout(Duration::from_mins(30), standby.acquire()).await;
    assert!(waited.is_err(), "a living leader was replaced");
    leadership.confirm().await.unwrap();
    assert_eq!(standby.current().await.unwrap().unwrap().epoch, 1);
}

/// A leader whose requests hang must confirm nothing, and learns of its successor when they continue.
#[tokio::test(start_paused = true)]
async fn an_old_leader_confirms_nothing_after_its_successor_started() {
    let scene = Scene::new();
    let hanging = HangingLayer::store(scene.bucket.objects());
    let sleeper = scene.elector_on(hanging.clone(), Some("a"), 1);
    let leadership = sleeper.acquire().await.unwrap();
    scene.bucket.runtime.sleep(Duration::from_secs(10)).await;
    leadership.confirm().await.unwrap();

    hanging.0.hang(true);
    scene.network.set("a", false);
    let next = scene.elector(Some("b"), 2).acquire().await.unwrap();
    next.confirm().await.unwrap();
    assert_eq!(leadership.confirm().await, Err(ElectionError::Unconfirmed));

    hanging.0.hang(false);
    let error = leadership.ended().await;
    assert!(
        matches!(error, ElectionError::Lost { epoch: 2, .. }),
        "{error:?}"
    );
    assert_eq!(leadership.confirm().await, Err(error));
    next.confirm().await.unwrap();
}

/// Pings of a leader that runs and is reachable: it responds whether it is sure to lead.
#[derive(Default)]
struct Confirmation(Mutex<Option<Arc<Leadership>>>);

#[async_trait]
impl LeaderPing for Confirmation {
    async fn is_alive(&self, _address: &str, _id: &str) -> bool {
        let leadership = self.0.lock().unwrap().clone();
        leadership.is_some_and(|leadership| leadership.is_confirmed())
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_from_the_store_is_replaced() {
    let scene = Scene::new();
    let pings = Arc::new(Confirmation::default());
    let elector = |objects, seed| {
        let runtime = scene.bucket.runtime.beside(seed, 0);
        let clock = Arc::new(StoreClock::new());
        let client = StoreClient::new(objects, clock, runtime.clone(), ClientConfig::default());
        let (config, pings) = (ElectionConfig::default(), pings.clone());
        Elector::new(&client, runtime, config, pings, Some("a".to_owned()))
    };
    let hanging = HangingLayer::store(scene.bucket.objects());
    let leadership = elector(hanging.clone(), 1).acquire().await.unwrap();
    let leadership = Arc::new(leadership);
    *pings.0.lock().unwrap() = Some(leadership.clone());
    let standby = elector(scene.bucket.objects(), 2);
    let waited = tokio::time::timeout(Duration::from_mins(5), standby.acquire()).await;
    assert!(
        waited.is_err(),
        "a leader that is sure to lead was replaced"
    );

    hanging.0.hang(true);
    let cut_at = scene.elapsed();
    let next = standby.acquire().await.unwrap();
    assert_eq!(next.epoch(), 2);
    let took = scene.elapsed().saturating_sub(cut_at);
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(!leadership.is_confirmed());
}

/// A challenger with short times still gives a leader with long times all of them.
#[tokio::test(start_paused = true)]
async fn a_challenger_waits_as_long_as_the_leader_may_trust_its_lease() {
    let scene = Scene::new();
    let slow = ElectionConfig::with_answer_time(Duration::from_secs(20));
    let quick = ElectionConfig::with_answer_time(Duration::from_millis(500));
    let hanging = HangingLayer::store(scene.bucket.objects());
    let sleeper = scene.elector_with(slow, hanging.clone(), Some("a"), 1);
    let leadership = sleeper.acquire().await.unwrap();
    hanging.0.hang(true);
    scene.network.set("a", false);
    let began = scene.elapsed();
    let challenger = scene.elector_with(quick, scene.bucket.objects(), Some("b"), 2);
    let next = challenger.acquire().await.unwrap();
    let took = scene.elapsed().saturating_sub(began);
    assert!(took >= Duration::from_secs(20), "{took:?}");
    next.confirm().await.unwrap();
    let sure = futures_util::FutureExt::now_or_never(leadership.confirm());
    assert_ne!(sure, Some(Ok(())), "both are sure to lead");
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_an_address_stays_while_it_answers_challenges() {
    let scene = Scene::new();
    let leadership = scene.elector(None, 1).acquire().await.unwrap();
    let standby = scene.elector(Some("b"), 2);
    let waited = tokio::time::timeout(Duration::from_mins(10), standby.acquire()).await;
    assert!(
        waited.is_err(),
        "a leader that answers challenges was replaced"
    );
    drop(leadership);
    let next = tokio::time::timeout(Duration::from_mins(2), standby.acquire()).await;
    assert_eq!(next.unwrap().unwrap().epoch(), 2);
}

/// A program that opened the queue for itself and was killed cannot be pinged. It is challenged instead.
#[tokio::test(start_paused = true)]
async fn a_killed_leader_without_an_address_is_replaced_within_seconds() {
    let scene = Scene::new();
    let leadership = scene.elector(None, 1).acquire().await.unwrap();
    scene.bucket.runtime.sleep(Duration::from_secs(1)).await;
    drop(leadership);
    let died_at = scene.elapsed();
    let next = scene.elector(Some("b"), 2).acquire().await.unwrap();
    assert_eq!(next.epoch(), 2);
    let took = scene.elapsed().saturating_sub(died_at);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// One response of the store that does not come must not keep a leader from serving.
#[tokio::test(start_paused = true)]
async fn one_slow_response_does_not_unconfirm_a_leader() {
    for operation in [Slow::Get, Slow::Put] {
        let scene = Scene::new();
        let slow = SlowLayer::store(scene.bucket.objects());
        let leader = scene.elector_on(slow.clone(), Some("a"), 1);
        let leadership = leader.acquire().await.unwrap();
        scene.bucket.runtime.sleep(Duration::from_secs(10)).await;
        *slow.0.next.lock().unwrap() = Some(operation);
        let began = scene.elapsed();
        while scene.elapsed().saturating_sub(began) < Duration::from_secs(40) {
            let confirmed = futures_util::FutureExt::now_or_never(leadership.confirm());
            assert_eq!(
                confirmed,
                Some(Ok(())),
                "unconfirmed {:?} after a slow {operation:?}",
                scene.elapsed().saturating_sub(began)
            );
            scene.bucket.runtime.sleep(Duration::from_millis(50)).await;
        }
        assert!(slow.0.next.lock().unwrap().is_none(), "no request was slow");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_several_standbys_takes_over_after_a_challenger_died() {
    let scene = Scene::new();
    let leadership = scene.elector(Some("a"), 1).acquire().await.unwrap();
    drop(leadership);
    scene.network.set("a", false);
    {
        let dies = scene.elector(Some("b"), 2);
        let waited = tokio::time::timeout(Duration::from_secs(2), dies.acquire()).await;
        assert!(waited.is_err());
        let record = dies.current().await.unwrap().unwrap();
        assert!(
            record.challenge.is_some(),
            "it died too early to show anything"
        );
    }
    let standbys = [scene.elector(Some("c"), 3), scene.elector(Some("d"), 4)];
    let [first, second] = standbys.each_ref().map(Elector::acquire);
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    let limit = Duration::from_mins(1);
    let winner = tokio::select! {
        leadership = &mut first => leadership.unwrap(),
        leadership = &mut second => leadership.unwrap(),
        () = scene.bucket.runtime.sleep(limit) => panic!("nobody took over"),
    };
    assert_eq!(winner.epoch(), 2);
    winner.confirm().await.unwrap();
}

/// Two leaders are never confirmed at once, whatever happens to requests and replies.
#[tokio::test(start_paused = true)]
async fn there_are_never_two_leaders_on_a_faulty_network() {
    for seed in 0..10 {
        let scene = Scene::new();
        let faults = [
            FaultKind::LostRequest,
            FaultKind::LostResponse,
            FaultKind::LateApply,
            FaultKind::Conflict,
            FaultKind::ErrorAfterApply,
        ];
        let plan = FaultPlan::none().with_each(faults, 0.06);
        let poor = Arc::new(FaultStore::new(
            scene.bucket.objects(),
            scene.bucket.runtime.clone(),
            plan,
            seed,
        ));
        let a = scene.elector_on(poor.clone(), Some("a"), 100 + seed);
        let b = scene.elector_on(poor, Some("b"), 200 + seed);
        scene.network.set("a", false);
        scene.network.set("b", false);
        let (told, terms) = (Mutex::new(0), Mutex::new(Vec::new()));
        let lead = async |elector: &Elector| {
            loop {
                let Ok(leadership) = elector.acquire().await else {
                    continue;
                };
                let leadership = Arc::new(leadership);
                terms.lock().unwrap().push(Arc::clone(&leadership));
                leadership.ended().await;
                *told.lock().unwrap() += 1;
            }
        };
        let watch = async {
            loop {
                let all = terms.lock().unwrap().clone();
                let mut confirmed = Vec::new();
                for leadership in &all {
                    // A confirmed leader replies without waiting. The others are not awaited.
                    if futures_util::FutureExt::now_or_never(leadership.confirm()) == Some(Ok(())) {
                        confirmed.push(leadership.epoch());
                    }
                }
                assert!(
                    confirmed.len() <= 1,
                    "seed {seed}: {confirmed:?} lead at once"
                );
                scene.bucket.runtime.sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = lead(&a) => {}
            () = lead(&b) => {}
            () = watch => {}
            () = scene.bucket.runtime.sleep(Duration::from_mins(10)) => {}
        }
        assert!(
            !terms.lock().unwrap().is_empty(),
            "seed {seed}: nobody ever led"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_record_is_an_error_that_names_it() {
    let scene = Scene::new();
    scene.bucket.put(BROKER_KEY, "{").await;
    let error = scene.elector(None, 1).acquire().await.unwrap_err();
    assert!(error.to_string().contains(BROKER_KEY), "{error}");
}

/// Makes the requests of one process hang.
#[derive(Debug)]
struct HangingLayer {
    inner: Arc<dyn object_store::ObjectStore>,
    hangs: tokio::sync::watch::Sender<bool>,
}

impl HangingLayer {
    fn store(inner: Arc<dyn object_store::ObjectStore>) -> Arc<LayeredStore<Self>> {
        let hangs = tokio::sync::watch::Sender::new(false);
        Arc::new(LayeredStore(Self { inner, hangs }))
    }

    fn hang(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }
}

#[async_trait]
impl StoreLayer for HangingLayer {
    fn inner(&self) -> &dyn object_store::ObjectStore {
        &*self.inner
    }

    async fn hold(&self) {
        let _ = self.hangs.subscribe().wait_for(|hangs| !hangs).await;
    }
}

/// Gives no response to the next request of one kind.
#[derive(Debug)]
struct SlowLayer {
    inner: Arc<dyn object_store::ObjectStore>,
    next: Mutex<Option<Slow>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Slow {
    Get,
    Put,
}

impl SlowLayer {
    fn store(inner: Arc<dyn object_store::ObjectStore>) -> Arc<LayeredStore<Self>> {
        let next = Mutex::new(None);
        Arc::new(LayeredStore(Self { inner, next }))
    }

    async fn strike(&self, operation: Slow) {
        let strikes = {
            let mut next = self.next.lock().unwrap();
            next.take_if(|next| *next == operation).is_some()
        };
        if strikes {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl StoreLayer for SlowLayer {
    fn inner(&self) -> &dyn object_store::ObjectStore {
        &*self.inner
    }

    async fn get_opts(
        &self,
        location: &object_store::path::Path,
        options: object_store::GetOptions,
    ) -> object_store::Result<object_store::GetResult> {
        self.strike(Slow::Get).await;
        self.inner.get_opts(location, options).await
    }

    async fn put_opts(
        &self,
        path: &object_store::path::Path,
        body: object_store::PutPayload,
        opts: object_store::PutOptions,
    ) -> object_store::Result<object_store::PutResult> {
        self.strike(Slow::Put).await;
        self.inner.put_opts(path, body, opts).await
    }
}
