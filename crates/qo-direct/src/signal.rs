//! One small object that shows idle workers whether there may be new tasks.
//!
//! An idle worker polls it with a conditional GET, which costs a tenth of a LIST and is answered with 304, and sends a LIST only when
//! it has changed. A submitter writes it at most once a second: the first submit of a burst writes it right after its ready entry,
//! and the last one within a second, in the background. If the submitter dies before, workers list anyway at the fallback
//! interval.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use qo_core::keys::SIGNAL_KEY;
use qo_store::StoreClient;
use qo_store::client::Tag;
use qo_store::runtime::{Runtime, RuntimeExt};
use tokio::sync::Notify;

use super::{DirectConfig, lock};

#[derive(Clone)]
pub(super) struct Signal {
    shared: Arc<SignalShared>,
}

struct SignalShared {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    poll_interval: Duration,
    touch_interval: Duration,
    /// Counts events that may mean new tasks, from this process or others.
    epoch: AtomicU64,
    /// Wakes waiting claims. It wakes them in the order of their arrival, so that simulated runs are reproducible.
    bumped: Notify,
    writes: Mutex<WriteThrottle>,
    /// When the store was last polled. It has its own lock, so that it can be read during a poll: if a claim waited for the poll to
    /// end only to find that no poll is due, it would delay the next claim in the same way, and they would loop without a pause.
    polled_at: Mutex<Option<Duration>>,
    /// The tag of the last poll. Locked during a poll, so that the waiting claims of a process poll once.
    polled_tag: tokio::sync::Mutex<Option<Tag>>,
}

#[derive(Default)]
struct WriteThrottle {
    last_at: Option<Duration>,
    is_scheduled: bool,
}

impl Signal {
    pub(super) fn new(
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: &DirectConfig,
    ) -> Self {
        Self {
            shared: Arc::new(SignalShared {
                client,
                runtime,
                poll_interval: config.signal_interval,
                touch_interval: config.touch_interval,
                epoch: AtomicU64::new(0),
                bumped: Notify::new(),
                writes: Mutex::default(),
                polled_at: Mutex::default(),
                polled_tag: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// A counter that increases whenever there may be new tasks.
    pub(super) fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }

    /// Wakes the waiting claims of this process.
    pub(super) fn bump(&self) {
        self.shared.epoch.fetch_add(1, Ordering::AcqRel);
        self.shared.bumped.notify_waiters();
    }

    /// Signals all workers that there may be new tasks: immediately, or at the end of the interval if it was written recently.
    pub(super) async fn touch(&self) {
        self.bump();
        let now = self.shared.runtime.monotonic();
        let wait = {
            let mut writes = lock(&self.shared.writes);
            let due = writes
                .last_at
                .map_or(now, |at| at + self.shared.touch_interval);
            if due <= now {
                writes.last_at = Some(now);
                None
            } else if writes.is_scheduled {
                return;
            } else {
                writes.is_scheduled = true;
                Some(due.saturating_sub(now))
            }
        };
        match wait {
            None => self.write().await,
            Some(wait) => {
                let signal = self.clone();
                self.shared.runtime.spawn(Box::pin(async move {
                    signal.shared.runtime.sleep(wait).await;
                    {
                        let mut writes = lock(&signal.shared.writes);
                        writes.is_scheduled = false;
                        writes.last_at = Some(signal.shared.runtime.monotonic());
                    }
                    signal.write().await;
                }));
            }
        }
    }

    /// Performs a scheduled write now.
    pub(super) async fn flush(&self) {
        let is_scheduled = std::mem::take(&mut lock(&self.shared.writes).is_scheduled);
        if is_scheduled {
            self.write().await;
        }
    }

    async fn write(&self) {
        // The body only has to differ from all earlier ones.
        let body = format!("{{\"op_id\":\"{}\"}}", self.shared.runtime.new_op_id());
        if let Err(error) = self.shared.client.put(SIGNAL_KEY, Bytes::from(body)).await {
            tracing::debug!(%error, "could not write the signal; idle workers list later without it");
        }
    }

    /// Waits until the epoch differs from `epoch`, at most for `limit`.
    pub(super) async fn wait(&self, epoch: u64, limit: Duration) {
        let mut bumped = pin!(self.shared.bumped.notified());
        // From here on no bump is missed.
        bumped.as_mut().enable();
        if self.epoch() != epoch {
            return;
        }
        let now = self.shared.runtime.monotonic();
        let polled_at = *lock(&self.shared.polled_at);
        let next_poll = polled_at.map_or(Duration::ZERO, |at| {
            (at + self.shared.poll_interval).saturating_sub(now)
        });
        tokio::select! {
            biased;
            () = bumped => return,
            () = self.shared.runtime.sleep(next_poll.min(limit)) => {}
        }
        if next_poll <= limit {
            self.poll().await;
        }
    }

    /// Reads the signal from the store, unless it was polled within the interval.
    pub(super) async fn poll(&self) {
        let mut polled_tag = self.shared.polled_tag.lock().await;
        {
            let now = self.shared.runtime.monotonic();
            let mut polled_at = lock(&self.shared.polled_at);
            if polled_at.is_some_and(|at| now < at + self.shared.poll_interval) {
                return;
            }
            *polled_at = Some(now);
        }
        let result = match &*polled_tag {
            Some(tag) => self.shared.client.get_if_changed(SIGNAL_KEY, tag).await,
            None => self.shared.client.get(SIGNAL_KEY).await.map(Some),
        };
        match result {
            Ok(Some(object)) => {
                *polled_tag = Some(object.tag);
                self.bump();
            }
            Ok(None) => {}
            // Nothing was ever submitted, or the request failed: workers list at the fallback interval.
            Err(error) => tracing::debug!(%error, "could not read the signal"),
        }
    }
}
