//! The leader gate: an engine that works while this process leads, and refuses all requests otherwise.
//!
//! Servers and callers hold the gate for the lifetime of the process. The engine behind it changes with each leadership.
//!
//! | step | response to requests meanwhile | effect of a crash right after it |
//! | --- | --- | --- |
//! | 1. a leadership is acquired and put into the gate | `NotLeader` | the leader does not answer challenges: a standby takes over |
//! | 2. the engine is opened and put into the gate | the engine's response | the same; the engine's journal holds all that was acknowledged |
//! | 3. the gate is vacated: no request reaches the engine any more | `NotLeader` | the same |
//! | 4. the engine is closed | `NotLeader` | the same |
//! | 5. the leadership is released: standbys need not wait | `NotLeader` | none |
//!
//! The leadership is released last, so that the next leader does not open the journal while this process still writes to it. If
//! the leadership was lost, or if closing takes long because a request gets no response, the next leader may do so; the journal then
//! fences out the older writer.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use qo_core::Timestamp;
use qo_engine::api::Duty;
use qo_engine::watch::Watcher;
use qo_engine::{ChangeCall, Engine, EngineError, ForwardingEngine, ReadCall};
use qo_store::StoreClient;
use qo_store::runtime::Runtime;
use tokio::sync::watch;

use super::Leadership;

/// An engine that works while this process leads.
pub struct LeaderGate {
    client: StoreClient,
    state: watch::Sender<GateState>,
    /// How long calls wait for an engine.
    wait: Option<(Arc<dyn Runtime>, Duration)>,
    /// The watchers of durable changes. Each engine behind the gate gets them.
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
}

/// The leadership and the engine behind the gate.
#[derive(Default)]
struct GateState {
    leadership: Option<Arc<Leadership>>,
    engine: Option<Arc<dyn Engine>>,
    /// The gate was closed permanently.
    closed: bool,
}

impl GateState {
    /// The leadership, once its engine is open.
    fn serving(&self) -> Option<&Arc<Leadership>> {
        self.leadership.as_ref().filter(|_| self.engine.is_some())
    }
}

impl LeaderGate {
    /// An empty gate. While it is empty, `client` provides the time.
    pub fn new(client: StoreClient) -> Self {
        Self {
            client,
            state: watch::Sender::default(),
            wait: None,
            watchers: Mutex::default(),
        }
    }

    /// Lets calls wait for an engine instead of refusing them at once.
    #[must_use]
    pub fn with_wait(mut self, runtime: Arc<dyn Runtime>, wait: Duration) -> Self {
        self.wait = Some((runtime, wait));
        self
    }

    /// Begins a leadership, whose engine is opened later.
    pub fn begin(&self, leadership: Arc<Leadership>) {
        self.state.send_modify(|state| {
            state.leadership = Some(leadership);
            state.engine = None;
        });
    }

    /// Serves with this engine from now on.
    pub fn serve(&self, engine: Arc<dyn Engine>) {
        let watchers = self.lock_watchers();
        for watcher in watchers.iter() {
            engine.watch(Weak::clone(watcher));
        }
        self.state.send_modify(|state| state.engine = Some(engine));
    }

    /// Confirms that this process leads and serves now, and returns its epoch.
    pub async fn confirm(&self) -> Option<u64> {
        let leadership = self.state.borrow().serving().cloned()?;
        leadership.confirm().await.ok()?;
        Some(leadership.epoch())
    }

    /// Whether an engine is behind the gate.
    pub fn serves(&self) -> bool {
        self.state.borrow().engine.is_some()
    }

    /// The epoch of this process while no other process can lead. It starts no request, so that an observer changes nothing.
    pub fn certain_epoch(&self) -> Option<u64> {
        let state = self.state.borrow();
        let leadership = state.leadership.as_ref();
        let certain = leadership.filter(|leadership| leadership.is_certain());
        certain.map(|leadership| leadership.epoch())
    }

    /// Whether it is known, without a request, that this process leads. It may not serve yet.
    pub fn is_confirmed(&self) -> bool {
        let leadership = self.state.borrow().leadership.clone();
        leadership.is_some_and(|leadership| leadership.is_confirmed())
    }

    /// Waits until this process no longer serves in this epoch.
    pub async fn epoch_ended(&self, epoch: u64) {
        let mut state = self.state.subscribe();
        let has_ended = |state: &GateState| {
            state
                .serving()
                .is_none_or(|leadership| leadership.epoch() != epoch)
        };
        // `self` owns the sender, so the wait cannot fail.
        let _ = state.wait_for(has_ended).await;
    }

    /// Ends the leadership in order: no request reaches the engine any more, the engine is closed, the leadership is released.
    pub async fn leave(&self) {
        self.vacate(false).await;
    }

    /// Ends the leadership as [`Self::leave`] does, but waits for the engine only for this time. It continues closing in the background, while
    /// this process stands by or another one leads.
    pub(super) async fn leave_within(&self, runtime: &dyn Runtime, limit: Duration) {
        let left = self.take(false);
        if let Some(engine) = left.engine {
            let (closed, mut is_closed) = watch::channel(());
            runtime.spawn(Box::pin(async move {
                engine.close().await;
                drop(closed);
            }));
            tokio::select! {
                biased;
                // The sender is dropped when the engine is closed.
                _ = is_closed.changed() => {}
                () = runtime.sleep(limit) => {}
            }
        }
        if let Some(leadership) = left.leadership {
            leadership.release().await;
        }
    }

    async fn vacate(&self, for_good: bool) {
        let left = self.take(for_good);
        if let Some(engine) = left.engine {
            engine.close().await;
        }
        if let Some(leadership) = left.leadership {
            leadership.release().await;
        }
    }

    /// Takes the engine and the leadership out of the gate.
    fn take(&self, for_good: bool) -> GateState {
        let mut left = GateState::default();
        self.state.send_modify(|state| {
            left = std::mem::take(state);
            state.closed = left.closed || for_good;
        });
        left
    }

    /// Waits until the gate is closed permanently or dropped. The future does not keep the gate alive.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state.subscribe();
        async move {
            // An error means that the gate was dropped.
            let _ = state.wait_for(|state| state.closed).await;
        }
    }

    fn lock_watchers(&self) -> MutexGuard<'_, Vec<Weak<dyn Watcher>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current_engine(&self) -> Result<Arc<dyn Engine>, EngineError> {
        let state = self.state.borrow();
        match &state.engine {
            _ if state.closed => Err(EngineError::Closed),
            Some(engine) => Ok(Arc::clone(engine)),
            None => Err(EngineError::NotLeader),
        }
    }

    /// The engine, once there is one.
    async fn engine(&self) -> Result<Arc<dyn Engine>, EngineError> {
        if let Some((runtime, wait)) = &self.wait
            && matches!(self.current_engine(), Err(EngineError::NotLeader))
        {
            let mut state = self.state.subscribe();
            tokio::select! {
                biased;
                _ = state.wait_for(|state| state.engine.is_some() || state.closed) => {}
                () = runtime.sleep(*wait) => {}
            }
        }
        self.current_engine()
    }
}

impl fmt::Debug for LeaderGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        f.debug_struct("LeaderGate")
            .field(
                "epoch",
                &state
                    .leadership
                    .as_ref()
                    .map(|leadership| leadership.epoch()),
            )
            .field("serves", &state.engine.is_some())
            .finish_non_exhaustive()
    }
}

impl ForwardingEngine for LeaderGate {
    fn now(&self) -> Timestamp {
        match self.current_engine() {
            Ok(engine) => engine.now(),
            Err(_) => self.client.now(),
        }
    }

    async fn read<'a, T: Send + 'a>(
        &'a self,
        call: impl ReadCall<'a, T>,
    ) -> Result<T, EngineError> {
        call(self.engine().await?).await
    }

    async fn change<'a, T: Send + 'a>(
        &'a self,
        call: impl ChangeCall<'a, T>,
    ) -> Result<T, EngineError> {
        call(self.engine().await?).await
    }

    /// The leader does all work of the queue.
    fn duty(&self) -> Duty {
        self.current_engine()
            .map_or(Duty::None, |engine| engine.duty())
    }

    /// The current engine is watched at once, and later engines from their start.
    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        let mut watchers = self.lock_watchers();
        watchers.retain(|watcher| watcher.strong_count() > 0);
        if let Ok(engine) = self.current_engine() {
            engine.watch(Weak::clone(&watcher));
        }
        watchers.push(watcher);
        true
    }

    async fn close(&self) {
        self.vacate(true).await;
    }
}
