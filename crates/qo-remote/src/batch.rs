//! Combines the concurrent requests of many callers into one.
//!
//! The item of a single caller is sent at once. While the maximum number of batches is in flight, new items wait, and the next
//! batch takes all of them, up to its limits. So no item waits for a timer, and the number of requests depends on the latency, not
//! on the load. The number of waiting items is bounded; further callers wait for room.
//!
//! The item of a caller that goes away before it was sent is dropped. If the caller goes away later, the item takes effect and its
//! reply is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use qo_store::StoreError;
use qo_store::runtime::{BoxFuture, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::wire::BATCH_MAX;
use qo_engine::EngineError;

/// The largest request with several items. A larger item is sent alone.
pub(super) const BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many items may wait.
const WAITING_MAX: usize = 16 * 1024;

/// An item of a batch.
pub(super) trait BatchItem: Send + 'static {
    /// Its approximate size on the wire.
    fn bytes(&self) -> usize;
}

/// The reply to one item.
pub(super) struct BatchReply<O> {
    pub(super) result: O,
    /// Whether the request was sent more than once, because a response was lost.
    pub(super) repeated: bool,
}

/// The results of a batch in order, and whether it was sent more than once.
pub(super) type BatchReplies<O> = Result<(Vec<O>, bool), EngineError>;

type SendBatch<I, O> = Box<dyn Fn(Vec<I>) -> BoxFuture<BatchReplies<O>> + Send + Sync>;

pub(super) struct Batcher<I, O> {
    inner: Arc<Inner<I, O>>,
}

struct Inner<I, O> {
    runtime: Arc<dyn Runtime>,
    room: Arc<Semaphore>,
    in_flight_max: usize,
    send: SendBatch<I, O>,
    queue: Mutex<BatchQueue<I, O>>,
}

struct BatchQueue<I, O> {
    waiting: VecDeque<QueuedItem<I, O>>,
    in_flight: usize,
}

struct QueuedItem<I, O> {
    item: I,
    caller: Caller<O>,
    _room: OwnedSemaphorePermit,
}

impl<I: BatchItem, O: Send + 'static> Batcher<I, O> {
    pub(super) fn new(
        runtime: Arc<dyn Runtime>,
        in_flight_max: usize,
        send: impl Fn(Vec<I>) -> BoxFuture<BatchReplies<O>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                runtime,
                room: Arc::new(Semaphore::new(WAITING_MAX)),
                in_flight_max,
                send: Box::new(send),
                queue: Mutex::new(BatchQueue {
                    waiting: VecDeque::new(),
                    in_flight: 0,
                }),
            }),
        }
    }

    /// Sends one item, with others that wait, and returns its reply.
    pub(super) async fn send(&self, item: I) -> Result<BatchReply<O>, EngineError> {
        let room = Arc::clone(&self.inner.room)
            .acquire_owned()
            .await
            .map_err(|_| closed_error())?;
        let (caller, reply) = oneshot::channel();
        let starts = {
            let mut queue = self.inner.lock();
            queue.waiting.push_back(QueuedItem {
                item,
                caller,
                _room: room,
            });
            let starts = queue.in_flight < self.inner.in_flight_max;
            queue.in_flight += usize::from(starts);
            starts
        };
        if starts {
            let inner = Arc::clone(&self.inner);
            self.inner.runtime.spawn(Box::pin(inner.send_batches()));
        }
        reply.await.unwrap_or_else(|_| Err(closed_error()))
    }
}

impl<I: BatchItem, O: Send + 'static> Inner<I, O> {
    fn lock(&self) -> std::sync::MutexGuard<'_, BatchQueue<I, O>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends batches until no item waits.
    async fn send_batches(self: Arc<Self>) {
        loop {
            let (items, callers) = {
                let mut queue = self.lock();
                let batch = take(&mut queue.waiting);
                if batch.0.is_empty() {
                    queue.in_flight -= 1;
                    return;
                }
                batch
            };
            match (self.send)(items).await {
                Ok((results, repeated)) => {
                    for (caller, result) in callers.into_iter().zip(results) {
                        // The caller may have gone.
                        let _ = caller.send(Ok(BatchReply { result, repeated }));
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

type Caller<O> = oneshot::Sender<Result<BatchReply<O>, EngineError>>;

/// Takes the items of the next batch.
fn take<I: BatchItem, O>(waiting: &mut VecDeque<QueuedItem<I, O>>) -> (Vec<I>, Vec<Caller<O>>) {
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

/// The error when the sending task is gone because the runtime is shutting down.
fn closed_error() -> EngineError {
    EngineError::Store(StoreError::Unavailable {
        key: "the server".to_owned(),
        detail: "the client is shutting down".to_owned(),
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

    impl BatchItem for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    type Sizes = Arc<Mutex<Vec<usize>>>;

    /// A batcher whose requests complete one by one, as the gate permits.
    fn gated() -> (Batcher<usize, usize>, Arc<Semaphore>, Sizes) {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Sizes::default());
        let (permits, sent) = (Arc::clone(&gate), Arc::clone(&sizes));
        let batcher = Batcher::new(TokioRuntime::shared(), 2, move |items: Vec<usize>| {
            let (permits, sent) = (Arc::clone(&permits), Arc::clone(&sent));
            Box::pin(async move {
                sent.lock().unwrap().push(items.len());
                permits.acquire().await.unwrap().forget();
                Ok((items, false))
            })
        });
        (batcher, gate, sizes)
    }

    #[tokio::test]
    async fn a_single_item_is_sent_at_once_and_later_items_share_batches() {
        let (batcher, gate, sizes) = gated();
        let callers = (0..1_500).map(|n| batcher.send(n % 7));
        let open = async {
            while sizes.lock().unwrap().len() < 2 {
                tokio::task::yield_now().await;
            }
            gate.add_permits(1_000);
        };
        let (replies, ()) = futures_util::future::join(join_all(callers), open).await;
        for (n, reply) in replies.into_iter().enumerate() {
            assert_eq!(
                reply.unwrap().result,
                n % 7,
                "each caller gets its own reply"
            );
        }
        let sizes = sizes.lock().unwrap().clone();
        assert_eq!(sizes.iter().sum::<usize>(), 1_500);
        // The runtime limits how long one task may run, so the items form a few batches.
        assert!(sizes.len() <= 30, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size <= BATCH_MAX), "{sizes:?}");
    }

    #[tokio::test]
    async fn large_items_are_sent_alone_and_abandoned_items_are_dropped() {
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
