//! One small object that shows idle workers what may be new: [`super::signal_record`] describes its content.
//!
//! An idle worker polls it with a conditional GET, which costs a twelfth of a LIST and is answered with 304, and lists only what has
//! changed. A process writes it in the background, at most once a second: after the first new entry of a burst, and within a
//! second of the last.
//!
//! The signal is a hint. Nothing waits for it, no lock is held while it is sent, and no request of it is repeated at once. If a write
//! loses against another process, the changes go into the next one, a moment later, unless writes of other processes have announced the
//! same topics in the meantime. If the process dies before, workers list anyway at the fallback interval.
//!
//! One write of another process is not enough: its author does not list again, because it already knows the entries that it announced. After
//! [`ANNOUNCEMENTS_MIN`] writes every process lists. If two of them have different authors, each author lists after the other's write. If all
//! have the same author, the last one announces entries that it added after the first, and it has listed since then.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use qo_core::keys::SIGNAL_KEY;
use qo_store::client::{Object, Tag};
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use tokio::sync::Notify;

use super::signal_record::{Changes, SignalRecord, TopicState};
use super::{DirectConfig, lock};

/// How many times in a row a write may fail before its changes are dropped.
const FAILURES_MAX: u32 = 5;
/// How many writes of other processes must have announced a topic before a change of it needs no announcement of its own.
const ANNOUNCEMENTS_MIN: u32 = 3;
/// The maximum number of topics whose changes a process remembers.
const TOPICS_MAX: usize = 10_000;

#[derive(Clone)]
pub(super) struct Signal {
    shared: Arc<SignalShared>,
}

struct SignalShared {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    poll_interval: Duration,
    touch_interval: Duration,
    /// Wakes waiting claims. It wakes them in the order of their arrival, so that simulated runs are reproducible.
    bumped: Notify,
    state: Mutex<SignalState>,
    /// Held by the claim that polls for all claims of the process. The others do not wait for it.
    polling: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct SignalState {
    /// Counts changes that this process knows of.
    epoch: u64,
    /// The epoch at which everything may have changed.
    all_changed: u64,
    /// The last change of each topic.
    topics: BTreeMap<String, TopicChange>,
    /// The record as it was last read or written.
    seen: Option<(SignalRecord, Tag)>,
    polled_at: Option<Duration>,
    /// When the newest read that succeeded was sent.
    read_at: Option<Duration>,
    written_at: Option<Duration>,
    /// The changes that are not announced yet.
    unannounced: BTreeMap<String, Unannounced>,
    is_writing: bool,
    failures: u32,
}

/// The last change of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TopicChange {
    /// The epoch of this process.
    pub(super) epoch: u64,
    /// How many entries were ever added to the topic, and how many before the last announcement, if the change is one of other processes.
    pub(super) entries: Option<u64>,
    pub(super) entries_before: Option<u64>,
    /// How many entries a LIST shows at least that begins now, if that is known.
    pub(super) known_entries: Option<u64>,
}

/// A change that is not announced yet.
#[derive(Debug, Clone, Copy, Default)]
struct Unannounced {
    entries: u64,
    /// Whether the claims of this process learn of it with all others, when it is announced.
    is_shared: bool,
    /// The topic's counter in the last record that was read after the change.
    counter: Option<u64>,
    /// How often it was found increased, because another process has announced the topic.
    announcements: u32,
}

impl SignalState {
    fn bump(&mut self, topic: &str, state: Option<TopicState>) {
        self.epoch += 1;
        if self.topics.len() >= TOPICS_MAX {
            self.topics.clear();
            self.all_changed = self.epoch;
        }
        let entries = state.map(|state| state.entries);
        let change = TopicChange {
            epoch: self.epoch,
            entries,
            entries_before: state.and_then(|state| state.before),
            known_entries: entries,
        };
        self.topics.insert(topic.to_owned(), change);
    }

    fn bump_all(&mut self) {
        self.epoch += 1;
        self.all_changed = self.epoch;
    }

    /// Takes over what was read.
    fn absorb(&mut self, object: Object) -> bool {
        let record = SignalRecord::parse(&object.body);
        let changes = match &self.seen {
            Some((seen, _)) => record.changes_since(seen),
            None => Changes::All,
        };
        let has_changed = match changes {
            Changes::All => {
                self.bump_all();
                true
            }
            Changes::Topics(topics) => {
                for (topic, state) in &topics {
                    self.bump(topic, Some(*state));
                }
                !topics.is_empty()
            }
        };
        self.seen = Some((record, object.tag));
        has_changed
    }
}

impl Signal {
    pub(super) fn new(
        client: &StoreClient,
        runtime: Arc<dyn Runtime>,
        config: &DirectConfig,
    ) -> Self {
        Self {
            shared: Arc::new(SignalShared {
                client: client.trying_once(),
                runtime,
                poll_interval: config.signal_interval,
                touch_interval: config.touch_interval,
                bumped: Notify::new(),
                state: Mutex::default(),
                polling: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// A counter that increases with every change.
    pub(super) fn epoch(&self) -> u64 {
        lock(&self.shared.state).epoch
    }

    /// The last change of a topic.
    pub(super) fn change_of(&self, topic: &str) -> TopicChange {
        let state = lock(&self.shared.state);
        let seen = state.seen.as_ref();
        let all = TopicChange {
            epoch: state.all_changed,
            entries: None,
            entries_before: None,
            known_entries: seen.map(|(record, _)| record.entries_of(topic)),
        };
        let change = state.topics.get(topic).copied();
        change
            .filter(|change| change.epoch > all.epoch)
            .unwrap_or(all)
    }

    /// The epoch of a topic's last change.
    pub(super) fn epoch_of(&self, topic: &str) -> u64 {
        self.change_of(topic).epoch
    }

    /// Up to when this process knows of all announced changes.
    pub(super) fn read_at(&self) -> Option<Duration> {
        lock(&self.shared.state).read_at
    }

    /// The epoch at which everything may have changed.
    pub(super) fn all_changed(&self) -> u64 {
        lock(&self.shared.state).all_changed
    }

    /// The topics that have changed after an epoch.
    pub(super) fn changed_after(&self, epoch: u64) -> Vec<String> {
        let state = lock(&self.shared.state);
        let changed = state
            .topics
            .iter()
            .filter(|(_, change)| change.epoch > epoch);
        changed.map(|(topic, _)| topic.clone()).collect()
    }

    /// Records new entries of a topic: wakes the waiting claims of this process at once, and announces the change to the others in the
    /// background.
    pub(super) fn touch(&self, topic: &str, entries: u64) {
        lock(&self.shared.state).bump(topic, None);
        self.announce_later(topic, entries, false);
    }

    /// Announces new entries to all processes. This one needs no LIST to know them.
    pub(super) fn touch_known(&self, topic: &str, entries: u64) {
        // Waiting claims have to know about it, but not to list.
        lock(&self.shared.state).epoch += 1;
        self.announce_later(topic, entries, false);
    }

    /// Announces new entries to all processes, including this one.
    pub(super) fn touch_shared(&self, topic: &str, entries: u64) {
        self.announce_later(topic, entries, true);
    }

    fn announce_later(&self, topic: &str, entries: u64, is_shared: bool) {
        let now = self.shared.runtime.monotonic();
        let wait = {
            let mut state = lock(&self.shared.state);
            let unannounced = state.unannounced.entry(topic.to_owned()).or_default();
            // A record that was read before this change says nothing about it.
            unannounced.counter = None;
            unannounced.announcements = 0;
            unannounced.entries = unannounced.entries.saturating_add(entries);
            unannounced.is_shared |= is_shared;
            let wait = (!state.is_writing).then(|| {
                let due = state.written_at.map(|at| at + self.shared.touch_interval);
                due.map_or(Duration::ZERO, |due| due.saturating_sub(now))
            });
            state.is_writing = true;
            wait
        };
        self.shared.bumped.notify_waiters();
        if let Some(wait) = wait {
            let signal = self.clone();
            self.shared.runtime.spawn(Box::pin(async move {
                let mut wait = wait;
                loop {
                    if !wait.is_zero() {
                        signal.shared.runtime.sleep(wait).await;
                    }
                    match signal.announce().await {
                        Some(next) => wait = next,
                        None => return,
                    }
                }
            }));
        }
    }

    /// Announces the changes so far, for a process that is about to end.
    pub(super) async fn flush(&self) {
        if !lock(&self.shared.state).unannounced.is_empty() {
            self.announce().await;
        }
    }

    /// Writes the changes to the store. Returns when to write again, if changes remain.
    async fn announce(&self) -> Option<Duration> {
        // Only these can be found announced by a record that is read from now on.
        let topics: Vec<String> = lock(&self.shared.state)
            .unannounced
            .keys()
            .cloned()
            .collect();
        if self.read().await.is_ok() {
            self.drop_announced(&topics);
        }
        let (batch, body, tag, op) = {
            let mut state = lock(&self.shared.state);
            if state.unannounced.is_empty() {
                state.is_writing = false;
                return None;
            }
            let batch = std::mem::take(&mut state.unannounced);
            let op = self.shared.runtime.new_op_id();
            let changed: BTreeMap<_, _> = batch
                .iter()
                .map(|(topic, change)| (topic.clone(), change.entries))
                .collect();
            let (seen, tag) = match &state.seen {
                Some((seen, tag)) => (seen.clone(), Some(tag.clone())),
                None => (SignalRecord::default(), None),
            };
            state.written_at = Some(self.shared.runtime.monotonic());
            (batch, seen.with_changes(&changed, op), tag, op)
        };
        let result = match serde_json::to_vec(&body) {
            Ok(text) => {
                let text = Bytes::from(text);
                match &tag {
                    Some(tag) => self.shared.client.swap(SIGNAL_KEY, text, tag, &op).await,
                    None => self.shared.client.create(SIGNAL_KEY, text, &op).await,
                }
            }
            Err(error) => Err(StoreError::Corrupt {
                key: SIGNAL_KEY.to_owned(),
                detail: error.to_string(),
            }),
        };
        let mut state = lock(&self.shared.state);
        let shared = batch.iter().filter(|(_, change)| change.is_shared);
        let has_shared = shared.clone().next().is_some();
        for (topic, _) in shared {
            let announced = body.topics.get(topic).copied();
            state.bump(topic, announced.filter(|_| result.is_ok()));
        }
        match result {
            Ok(written) => {
                state.failures = 0;
                // This process need not read what it has written itself.
                let seen = state.seen.as_ref().map_or(0, |(seen, _)| seen.counter);
                if let Some(written) = written.tag()
                    && seen + 1 == body.counter
                {
                    state.seen = Some((body, written.clone()));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "could not write the signal");
                state.failures += 1;
                if state.failures < FAILURES_MAX {
                    for (topic, change) in batch {
                        let again = state.unannounced.entry(topic).or_insert(Unannounced {
                            entries: 0,
                            is_shared: false,
                            ..change
                        });
                        again.entries = again.entries.saturating_add(change.entries);
                    }
                } else {
                    // Idle workers list later without it.
                    state.failures = 0;
                }
            }
        }
        if has_shared {
            self.shared.bumped.notify_waiters();
        }
        if state.unannounced.is_empty() {
            state.is_writing = false;
            return None;
        }
        // Processes that lost against each other do not meet again.
        let factor = 0.5 + self.shared.runtime.random_unit();
        Some(self.shared.touch_interval.mul_f64(factor))
    }

    /// Drops changes that other processes have announced often enough since they were made.
    fn drop_announced(&self, topics: &[String]) {
        let mut state = lock(&self.shared.state);
        let Some((seen, _)) = state.seen.clone() else {
            return;
        };
        for topic in topics {
            let now = seen.counter_of(topic);
            let Some(change) = state.unannounced.get_mut(topic) else {
                continue;
            };
            if change.counter.is_some_and(|before| now > before) {
                change.announcements += 1;
            }
            change.counter = Some(now);
            if change.announcements >= ANNOUNCEMENTS_MIN {
                state.unannounced.remove(topic);
            }
        }
    }

    /// Wakes all waiting claims, although nothing has changed.
    pub(super) fn wake(&self) {
        self.shared.bumped.notify_waiters();
    }

    /// Waits until the epoch differs from `epoch`, at most for `limit`. Polls the store when a poll is due.
    pub(super) async fn wait(&self, epoch: u64, limit: Duration) {
        let mut bumped = pin!(self.shared.bumped.notified());
        // From here on no bump is missed.
        bumped.as_mut().enable();
        if self.epoch() != epoch {
            return;
        }
        let until_poll = self.until_poll().min(limit);
        tokio::select! {
            biased;
            () = bumped.as_mut() => return,
            () = self.shared.runtime.sleep(until_poll) => {}
        }
        let poll = async {
            match self.shared.polling.try_lock() {
                Ok(_polling) => self.poll_if_due().await,
                // Another claim polls, and wakes this one.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = bumped => {}
            () = poll => {}
            () = self.shared.runtime.sleep(limit.saturating_sub(until_poll)) => {}
        }
    }

    fn until_poll(&self) -> Duration {
        let now = self.shared.runtime.monotonic();
        let polled_at = lock(&self.shared.state).polled_at;
        polled_at.map_or(Duration::ZERO, |at| {
            (at + self.shared.poll_interval).saturating_sub(now)
        })
    }

    /// Reads the signal from the store, unless it was polled within the interval or is being polled.
    pub(super) async fn poll(&self) {
        if let Ok(_polling) = self.shared.polling.try_lock() {
            self.poll_if_due().await;
        }
    }

    /// When the signal was last read.
    pub(super) fn polled_at(&self) -> Option<Duration> {
        lock(&self.shared.state).polled_at
    }

    /// Reads the signal in the background, for processes that never wait for it.
    pub(super) fn poll_in_background(&self) {
        let signal = self.clone();
        let poll = async move { signal.poll().await };
        self.shared.runtime.spawn(Box::pin(poll));
    }

    async fn poll_if_due(&self) {
        if !self.until_poll().is_zero() {
            return;
        }
        lock(&self.shared.state).polled_at = Some(self.shared.runtime.monotonic());
        if let Err(error) = self.read().await {
            // Nothing was ever submitted, or the request failed: workers list at the fallback interval.
            tracing::debug!(%error, "could not read the signal");
        }
    }

    async fn read(&self) -> Result<(), StoreError> {
        let sent_at = self.shared.runtime.monotonic();
        let tag = lock(&self.shared.state)
            .seen
            .as_ref()
            .map(|(_, tag)| tag.clone());
        let object = match &tag {
            Some(tag) => self.shared.client.get_if_changed(SIGNAL_KEY, tag).await,
            None => self.shared.client.get(SIGNAL_KEY).await.map(Some),
        };
        if object.is_ok() {
            lock(&self.shared.state).read_at = Some(sent_at);
        }
        let has_changed = match object {
            Ok(Some(object)) => lock(&self.shared.state).absorb(object),
            Ok(None) => false,
            Err(error @ StoreError::NotFound { .. }) => {
                // Somebody deleted it: the next write creates it.
                lock(&self.shared.state).seen = None;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if has_changed {
            self.shared.bumped.notify_waiters();
        }
        Ok(())
    }
}
