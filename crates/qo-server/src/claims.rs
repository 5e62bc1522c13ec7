//! Claims that outlive their connection.
//!
//! A claim changes tasks and then tells its worker. If the connection breaks between the two, tasks would stay with a worker who
//! does not know of them until their leases run out. So a claim runs beside its request, under the request's name:
//!
//! - A request that comes again under the same name gets the same answer, for a while, also if the first copy is still waiting.
//! - Tasks that were handed out to a request whose client has gone, and that nobody has asked for again within a few seconds, are
//!   given back, not counted against their retries.
//!
//! What is not covered: an answer that was written to a connection which then broke, and that nobody asks for again, and
//! everything that this process knew when it is killed. Those tasks come back when their leases run out.
//!
//! What is remembered is bounded in time and in number of tasks; an empty answer is not remembered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qo::{ClaimRequest, Engine, EngineError, Task};
use qo_store::runtime::Runtime;
use tokio::sync::watch;

/// How long an answer that was given is remembered.
const KEEP_GIVEN: Duration = Duration::from_secs(10);
/// How long tasks wait for a client that has gone.
const KEEP_UNHEARD: Duration = Duration::from_secs(5);
/// How many tasks are remembered in all; the oldest answers are forgotten first.
const TASKS_MAX: usize = 20_000;

type Found = Arc<Result<Vec<Task>, EngineError>>;

/// Who asked, and under which name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) token: String,
    pub(crate) request: String,
}

#[derive(Debug)]
struct Slot {
    request: ClaimRequest,
    found: watch::Sender<Option<Found>>,
    /// Whether the answer was given to a request.
    given: AtomicBool,
}

#[derive(Debug, Default)]
struct Slots {
    by_name: BTreeMap<Name, Arc<Slot>>,
    /// Those that hold tasks, oldest first.
    full: VecDeque<(Name, usize)>,
    tasks: usize,
}

#[derive(Debug)]
pub(crate) struct Claims {
    engine: Arc<dyn Engine>,
    runtime: Arc<dyn Runtime>,
    slots: Mutex<Slots>,
}

impl Claims {
    pub(crate) fn new(engine: Arc<dyn Engine>, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            engine,
            runtime,
            slots: Mutex::default(),
        }
    }

    /// Claims, or gives what was claimed under this name before.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        name: Name,
        request: ClaimRequest,
    ) -> Result<Found, EngineError> {
        let (slot, is_new) = {
            let mut slots = self.lock();
            match slots.by_name.get(&name) {
                Some(slot) if slot.request == request => (Arc::clone(slot), false),
                Some(_) => {
                    return Err(EngineError::BadRequest(
                        "a claim of this name was made with another body; name each request anew"
                            .to_owned(),
                    ));
                }
                None => {
                    let slot = Arc::new(Slot {
                        request,
                        found: watch::Sender::new(None),
                        given: AtomicBool::new(false),
                    });
                    slots.by_name.insert(name.clone(), Arc::clone(&slot));
                    (slot, true)
                }
            }
        };
        let mut found = slot.found.subscribe();
        if is_new {
            let claims = Arc::clone(self);
            let slot = Arc::clone(&slot);
            self.runtime
                .spawn(Box::pin(async move { claims.run(name, slot).await }));
        }
        let found = found
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|found| found.clone());
        slot.given.store(true, Ordering::Relaxed);
        found.ok_or_else(|| EngineError::BadRequest("the claim was not made".to_owned()))
    }

    /// Makes the claim, remembers it for a while, and gives back what nobody heard of.
    async fn run(self: Arc<Self>, name: Name, slot: Arc<Slot>) {
        let found = Arc::new(self.engine.claim(&slot.request).await);
        let tasks = found.as_ref().as_ref().map_or(0, Vec::len);
        if tasks > 0 {
            self.remember(&name, tasks);
        } else {
            self.lock().by_name.remove(&name);
        }
        slot.found.send_replace(Some(Arc::clone(&found)));
        if tasks == 0 {
            return;
        }
        self.runtime.sleep(KEEP_UNHEARD).await;
        if slot.given.load(Ordering::Relaxed) {
            self.runtime
                .sleep(KEEP_GIVEN.saturating_sub(KEEP_UNHEARD))
                .await;
            self.forget(&name);
            return;
        }
        self.forget(&name);
        // Whoever asks from now on makes a claim of its own. One who asked just now may still take these tasks, and learns
        // from its first outcome that the lease is lost.
        if slot.given.load(Ordering::Relaxed) {
            return;
        }
        let Ok(tasks) = found.as_ref() else { return };
        for task in tasks {
            let Some(lease) = task.lease_id else { continue };
            match self.engine.release(task.id, lease).await {
                Ok(_) => {
                    tracing::info!(task = %task.id, "given back: the client of its claim has gone");
                }
                Err(error) => {
                    tracing::warn!(task = %task.id, %error, "a task of a client that has gone was not given back");
                }
            }
        }
    }

    fn remember(&self, name: &Name, tasks: usize) {
        let mut slots = self.lock();
        slots.full.push_back((name.clone(), tasks));
        slots.tasks += tasks;
        while slots.tasks > TASKS_MAX && slots.full.len() > 1 {
            if let Some((oldest, count)) = slots.full.pop_front() {
                slots.by_name.remove(&oldest);
                slots.tasks -= count;
            }
        }
    }

    fn forget(&self, name: &Name) {
        let mut slots = self.lock();
        let place = slots.full.iter().position(|(full, _)| full == name);
        if let Some((_, count)) = place.and_then(|place| slots.full.remove(place)) {
            slots.tasks -= count;
            slots.by_name.remove(name);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
