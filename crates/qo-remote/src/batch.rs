//! What many callers ask at once goes in one request.
//!
//! A caller who is alone is sent at once. While as many requests are under way as there may be, what comes gathers, and the next request
//! takes all of it, up to the bounds. So nobody waits for a timer, and the number of requests follows the latency, not the
//! load. What waits is bounded; beyond that, callers wait to be let in.
//!
//! A caller who goes away before its part was sent is left out; one who goes away later has its part done without hearing
//! of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use qo_store::StoreError;
use qo_store::runtime::{BoxFuture, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::wire::BATCH_MAX;
use qo_engine::EngineError;

/// The largest request that is made of several parts. A part that is larger goes alone.
pub(super) const BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many parts may wait.
const WAITING_MAX: usize = 16 * 1024;

/// A part of a batch.
pub(super) trait Batch: Send + 'static {
    /// About how many bytes it has on the wire.
    fn bytes(&self) -> usize;
}

/// One part's answer.
pub(super) struct Sent<O> {
    pub(super) answer: O,
    /// Whether the request was sent more than once, because an answer was lost.
    pub(super) repeated: bool,
}

/// The answers to a batch in their order, and whether it was sent more than once.
pub(super) type Answers<O> = Result<(Vec<O>, bool), EngineError>;

type Transport<I, O> = Box<dyn Fn(Vec<I>) -> BoxFuture<Answers<O>> + Send + Sync>;

pub(super) struct Batcher<I, O> {
    inner: Arc<Inner<I, O>>,
}

struct Inner<I, O> {
    runtime: Arc<dyn Runtime>,
    room: Arc<Semaphore>,
    flights_max: usize,
    send: Transport<I, O>,
    state: Mutex<State<I, O>>,
}

struct State<I, O> {
    waiting: VecDeque<Waiting<I, O>>,
    flights: usize,
}

struct Waiting<I, O> {
    item: I,
    caller: oneshot::Sender<Result<Sent<O>, EngineError>>,
    _room: OwnedSemaphorePermit,
}

impl<I: Batch, O: Send + 'static> Batcher<I, O> {
    pub(super) fn new(
        runtime: Arc<dyn Runtime>,
        flights_max: usize,
        send: impl Fn(Vec<I>) -> BoxFuture<Answers<O>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                runtime,
                room: Arc::new(Semaphore::new(WAITING_MAX)),
                flights_max,
                send: Box::new(send),
                state: Mutex::new(State {
                    waiting: VecDeque::new(),
                    flights: 0,
                }),
            }),
        }
    }

    /// Sends one part with whatever others there are, and waits for its answer.
    pub(super) async fn send(&self, item: I) -> Result<Sent<O>, EngineError> {
        let room = Arc::clone(&self.inner.room)
            .acquire_owned()
            .await
            .map_err(|_| lost())?;
        let (caller, answer) = oneshot::channel();
        let starts = {
            let mut state = self.inner.lock();
            state.waiting.push_back(Waiting {
                item,
                caller,
                _room: room,
            });
            let starts = state.flights < self.inner.flights_max;
            state.flights += usize::from(starts);
            starts
        };
        if starts {
            let inner = Arc::clone(&self.inner);
            self.inner.runtime.spawn(Box::pin(inner.fly()));
        }
        answer.await.unwrap_or_else(|_| Err(lost()))
    }
}

impl<I: Batch, O: Send + 'static> Inner<I, O> {
    fn lock(&self) -> std::sync::MutexGuard<'_, State<I, O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends batches until nothing waits.
    async fn fly(self: Arc<Self>) {
        loop {
            let (items, callers) = {
                let mut state = self.lock();
                let batch = take(&mut state.waiting);
                if batch.0.is_empty() {
                    state.flights -= 1;
                    return;
                }
                batch
            };
            match (self.send)(items).await {
                Ok((answers, repeated)) => {
                    for (caller, answer) in callers.into_iter().zip(answers) {
                        // A caller who is gone does not listen.
                        let _ = caller.send(Ok(Sent { answer, repeated }));
                    }
                }
                Err(error) => {
                    for caller in callers {
                        let _ = caller.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

type Caller<O> = oneshot::Sender<Result<Sent<O>, EngineError>>;

/// The parts that go together.
fn take<I: Batch, O>(waiting: &mut VecDeque<Waiting<I, O>>) -> (Vec<I>, Vec<Caller<O>>) {
    let (mut items, mut callers) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    while let Some(next) = waiting.front() {
        let fits = items.is_empty() || bytes + next.item.bytes() <= BYTES_MAX;
        if items.len() == BATCH_MAX || !fits {
            break;
        }
        let Some(next) = waiting.pop_front() else {
            break;
        };
        if next.caller.is_closed() {
            continue;
        }
        bytes += next.item.bytes();
        items.push(next.item);
        callers.push(next.caller);
    }
    (items, callers)
}

/// Nobody is left who could answer: the runtime is going down.
fn lost() -> EngineError {
    EngineError::Store(StoreError::Unavailable {
        key: "the server".to_owned(),
        detail: "the connection was closed on this side".to_owned(),
        attempts: 1,
        elapsed: std::time::Duration::ZERO,
        in_doubt: true,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::join_all;
    use qo_store::runtime::TokioRuntime;
    use tokio::sync::Semaphore;

    use super::*;

    impl Batch for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    type Sizes = Arc<Mutex<Vec<usize>>>;

    /// A batcher whose requests are answered one by one, as the gate lets them.
    fn gated() -> (Batcher<usize, usize>, Arc<Semaphore>, Sizes) {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Sizes::default());
        let (shut, seen) = (Arc::clone(&gate), Arc::clone(&sizes));
        let batcher = Batcher::new(TokioRuntime::shared(), 2, move |items: Vec<usize>| {
            let (shut, seen) = (Arc::clone(&shut), Arc::clone(&seen));
            Box::pin(async move {
                seen.lock().unwrap().push(items.len());
                shut.acquire().await.unwrap().forget();
                Ok((items, false))
            })
        });
        (batcher, gate, sizes)
    }

    #[tokio::test]
    async fn one_alone_goes_at_once_and_the_rest_together() {
        let (batcher, gate, sizes) = gated();
        let callers = (0..1_500).map(|n| batcher.send(n % 7));
        let open = async {
            while sizes.lock().unwrap().len() < 2 {
                tokio::task::yield_now().await;
            }
            gate.add_permits(1_000);
        };
        let (answers, ()) = futures_util::future::join(join_all(callers), open).await;
        for (n, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap().answer, n % 7, "each hears its own answer");
        }
        let sizes = sizes.lock().unwrap().clone();
        assert_eq!(sizes.iter().sum::<usize>(), 1_500);
        // The runtime lets one task do only so much at once, so that they come in a few groups.
        assert!(sizes.len() <= 30, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= BATCH_MAX), "{sizes:?}");
    }

    #[tokio::test]
    async fn large_parts_go_alone_and_the_gone_are_left_out() {
        let (batcher, gate, sizes) = gated();
        let first = batcher.send(1);
        let second = batcher.send(1);
        let large = (0..3).map(|_| batcher.send(BYTES_MAX));
        let mut first = Box::pin(first);
        let mut second = Box::pin(second);
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        let mut gone = Box::pin(batcher.send(2));
        assert!(futures_util::poll!(&mut gone).is_pending());
        drop(gone);
        gate.add_permits(100);
        join_all(large).await;
        first.await.ok().unwrap();
        second.await.ok().unwrap();
        let sizes = sizes.lock().unwrap().clone();
        assert_eq!(sizes.iter().sum::<usize>(), 5, "{sizes:?}");
    }
}
