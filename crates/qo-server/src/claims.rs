//! Claims that outlive their connection.
//!
//! A claim changes tasks and then responds to its worker. If the connection breaks in between, the tasks would stay with a worker
//! that does not know of them until their leases expire. So a claim runs independently of its request, under the request's id:
//!
//! - A request that is repeated with the same id gets the same response for a while, even if the first copy is still waiting.
//! - If the client of a request has gone and the request is not repeated within a few seconds, its tasks are released. This does not
//!   count as a retry.
//!
//! Two cases are not covered: a response that was written to a connection which then broke and that is not requested again, and all
//! claims in memory when this process is killed. Those tasks become claimable when their leases expire.
//!
//! Remembered claims are bounded in time, in the number of tasks and in bytes. Empty responses are not remembered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qo::{ClaimRequest, Engine, EngineError, Task};
use qo_store::runtime::Runtime;
use tokio::sync::watch;

use crate::routes::tasks::size_of;

/// How long a delivered response is remembered.
const KEEP_DELIVERED: Duration = Duration::from_secs(10);
/// How long the tasks of a client that has gone are kept for it.
const KEEP_UNDELIVERED: Duration = Duration::from_secs(5);
/// The most tasks that are remembered. The oldest responses are dropped first.
const TASKS_MAX: usize = 20_000;
/// The most bytes of tasks that are remembered.
const BYTES_MAX: usize = 64 * 1024 * 1024;

type ClaimResult = Arc<Result<Vec<Task>, EngineError>>;

/// Identifies a claim request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimKey {
    pub(crate) token: String,
    pub(crate) request_id: String,
}

#[derive(Debug)]
struct RememberedClaim {
    request: ClaimRequest,
    result: watch::Sender<Option<ClaimResult>>,
    /// Whether a request has received the result.
    delivered: AtomicBool,
}

#[derive(Debug, Default)]
struct ClaimCache {
    by_key: BTreeMap<ClaimKey, Arc<RememberedClaim>>,
    /// The claims with tasks, oldest first.
    order: VecDeque<(ClaimKey, ClaimSize)>,
    size: ClaimSize,
}

/// The number and the size of claimed tasks.
#[derive(Debug, Clone, Copy, Default)]
struct ClaimSize {
    tasks: usize,
    bytes: usize,
}

impl ClaimSize {
    fn of(tasks: &[Task]) -> Self {
        Self {
            tasks: tasks.len(),
            bytes: tasks.iter().map(size_of).sum(),
        }
    }

    fn add(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.bytes += other.bytes;
    }

    fn remove(&mut self, other: Self) {
        self.tasks -= other.tasks;
        self.bytes -= other.bytes;
    }

    fn is_too_large(self) -> bool {
        self.tasks > TASKS_MAX || self.bytes > BYTES_MAX
    }
}

#[derive(Debug)]
pub(crate) struct Claims {
    engine: Arc<dyn Engine>,
    runtime: Arc<dyn Runtime>,
    cache: Mutex<ClaimCache>,
}

impl Claims {
    pub(crate) fn new(engine: Arc<dyn Engine>, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            engine,
            runtime,
            cache: Mutex::default(),
        }
    }

    /// Claims tasks, or returns the tasks that were claimed under this key before.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        key: ClaimKey,
        request: ClaimRequest,
    ) -> Result<ClaimResult, EngineError> {
        let (claim, is_new) = {
            let mut cache = self.lock();
            match cache.by_key.get(&key) {
                Some(claim) if claim.request == request => (Arc::clone(claim), false),
                Some(_) => {
                    return Err(EngineError::BadRequest(
                        "this request id was used for a claim with another body; use a new id for each request"
                            .to_owned(),
                    ));
                }
                None => {
                    let claim = Arc::new(RememberedClaim {
                        request,
                        result: watch::Sender::new(None),
                        delivered: AtomicBool::new(false),
                    });
                    cache.by_key.insert(key.clone(), Arc::clone(&claim));
                    (claim, true)
                }
            }
        };
        let mut result = claim.result.subscribe();
        if is_new {
            let claims = Arc::clone(self);
            let claim = Arc::clone(&claim);
            self.runtime
                .spawn(Box::pin(async move { claims.run(key, claim).await }));
        }
        let result = result
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|result| result.clone());
        claim.delivered.store(true, Ordering::Relaxed);
        result.ok_or_else(|| EngineError::BadRequest("the claim was not carried out".to_owned()))
    }

    /// Carries out the claim, remembers it for a while, and releases tasks that were not delivered.
    async fn run(self: Arc<Self>, key: ClaimKey, claim: Arc<RememberedClaim>) {
        let result = Arc::new(self.engine.claim(&claim.request).await);
        let tasks = result.as_ref().as_ref().map_or(0, Vec::len);
        if let Ok(claimed) = result.as_ref()
            && !claimed.is_empty()
        {
            self.remember(&key, ClaimSize::of(claimed));
        } else {
            self.lock().by_key.remove(&key);
        }
        claim.result.send_replace(Some(Arc::clone(&result)));
        if tasks == 0 {
            return;
        }
        self.runtime.sleep(KEEP_UNDELIVERED).await;
        if claim.delivered.load(Ordering::Relaxed) {
            self.runtime
                .sleep(KEEP_DELIVERED.saturating_sub(KEEP_UNDELIVERED))
                .await;
            self.forget(&key);
            return;
        }
        self.forget(&key);
        // A request from now on makes a new claim. A request that arrived just before may still receive these tasks; its first
        // outcome then fails because the lease is lost.
        if claim.delivered.load(Ordering::Relaxed) {
            return;
        }
        let Ok(tasks) = result.as_ref() else { return };
        for task in tasks {
            let Some(lease) = task.lease_id else { continue };
            match self.engine.release(task.id, lease).await {
                Ok(_) => {
                    tracing::info!(task = %task.id, "released a task because the client that claimed it has gone");
                }
                Err(error) => {
                    tracing::warn!(task = %task.id, %error, "could not release a task whose client has gone");
                }
            }
        }
    }

    fn remember(&self, key: &ClaimKey, size: ClaimSize) {
        let mut cache = self.lock();
        cache.order.push_back((key.clone(), size));
        cache.size.add(size);
        while cache.size.is_too_large() && cache.order.len() > 1 {
            if let Some((oldest, size)) = cache.order.pop_front() {
                cache.by_key.remove(&oldest);
                cache.size.remove(size);
            }
        }
    }

    fn forget(&self, key: &ClaimKey) {
        let mut cache = self.lock();
        let index = cache.order.iter().position(|(ordered, _)| ordered == key);
        if let Some((_, size)) = index.and_then(|index| cache.order.remove(index)) {
            cache.size.remove(size);
            cache.by_key.remove(key);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ClaimCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
