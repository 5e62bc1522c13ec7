//! One small object that tells idle workers whether to look.
//!
//! An idle worker asks for it with a conditional GET, which costs a tenth of a LIST and is answered by 304, and lists only when
//! it has changed. A submitter writes it at most once a second: the first submit of a burst beside its ready entry, and the
//! last one within a second, in the background. If the submitter dies before, workers look anyway at the fallback interval.

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
    shared: Arc<Shared>,
}

struct Shared {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    poll_interval: Duration,
    touch_interval: Duration,
    /// Counts everything that may mean work, local or remote.
    epoch: AtomicU64,
    /// Wakes whoever waits for that. It wakes in the order in which they came, so that a simulated run can be repeated.
    bumped: Notify,
    touched: Mutex<Touched>,
    /// When the store was last asked. It can be read while somebody asks: whoever waits for that to end, just to find that there is
    /// nothing to ask, would keep the next one waiting in the same way, and they would go round without a pause.
    polled_at: Mutex<Option<Duration>>,
    /// What the store said last. Held while somebody asks, so that the waiting claims of a process ask once.
    polled: tokio::sync::Mutex<Option<Tag>>,
}

#[derive(Default)]
struct Touched {
    at: Option<Duration>,
    trailing: bool,
}

impl Signal {
    pub(super) fn new(
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: &DirectConfig,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                runtime,
                poll_interval: config.signal_interval,
                touch_interval: config.touch_interval,
                epoch: AtomicU64::new(0),
                bumped: Notify::new(),
                touched: Mutex::default(),
                polled_at: Mutex::default(),
                polled: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// A number that grows whenever there may be new work.
    pub(super) fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }

    /// Wakes the workers of this process.
    pub(super) fn bump(&self) {
        self.shared.epoch.fetch_add(1, Ordering::AcqRel);
        self.shared.bumped.notify_waiters();
    }

    /// Tells all workers that there may be new work: at once, or within the interval if that was said just now.
    pub(super) async fn touch(&self) {
        self.bump();
        let now = self.shared.runtime.monotonic();
        let wait = {
            let mut touched = lock(&self.shared.touched);
            let due = touched.at.map_or(now, |at| at + self.shared.touch_interval);
            if due <= now {
                touched.at = Some(now);
                None
            } else if touched.trailing {
                return;
            } else {
                touched.trailing = true;
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
                        let mut touched = lock(&signal.shared.touched);
                        touched.trailing = false;
                        touched.at = Some(signal.shared.runtime.monotonic());
                    }
                    signal.write().await;
                }));
            }
        }
    }

    /// Writes what is still to be said.
    pub(super) async fn flush(&self) {
        let trailing = std::mem::take(&mut lock(&self.shared.touched).trailing);
        if trailing {
            self.write().await;
        }
    }

    async fn write(&self) {
        // Any bytes will do that were never there before.
        let body = format!("{{\"op_id\":\"{}\"}}", self.shared.runtime.new_op_id());
        if let Err(error) = self.shared.client.put(SIGNAL_KEY, Bytes::from(body)).await {
            tracing::debug!(%error, "idle workers were not told; they look by themselves later");
        }
    }

    /// Waits until there may be new work, at most for `limit`.
    pub(super) async fn wait(&self, seen: u64, limit: Duration) {
        let mut bumped = pin!(self.shared.bumped.notified());
        // From here on no bump is missed.
        bumped.as_mut().enable();
        if self.epoch() != seen {
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

    /// Asks the store whether something was submitted, unless that was asked within the interval.
    pub(super) async fn poll(&self) {
        let mut known = self.shared.polled.lock().await;
        {
            let now = self.shared.runtime.monotonic();
            let mut polled_at = lock(&self.shared.polled_at);
            if polled_at.is_some_and(|at| now < at + self.shared.poll_interval) {
                return;
            }
            *polled_at = Some(now);
        }
        let found = match &*known {
            Some(tag) => self.shared.client.get_if_changed(SIGNAL_KEY, tag).await,
            None => self.shared.client.get(SIGNAL_KEY).await.map(Some),
        };
        match found {
            Ok(Some(object)) => {
                *known = Some(object.tag);
                self.bump();
            }
            Ok(None) => {}
            // Nothing was ever submitted, or the store cannot be asked: the fallback interval sees to it.
            Err(error) => tracing::debug!(%error, "the signal could not be read"),
        }
    }
}
