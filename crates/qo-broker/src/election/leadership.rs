//! Leading: reading the object, answering challenges, and knowing for how long nobody else can lead.

use std::sync::Arc;
use std::time::Duration;

use qo_core::keys::BROKER_KEY;
use qo_store::client::Tag;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use tokio::sync::{Notify, watch};

use super::record::Seen;
use super::{BrokerRecord, ElectionConfig, ElectionError};

/// How often a leader that stops tries to say so.
const LET_GO_TRIES: u32 = 3;

/// The time for which one process leads. It ends when somebody else leads, or when it is released or dropped.
#[derive(Debug)]
pub struct Leadership {
    epoch: u64,
    runtime: Arc<dyn Runtime>,
    answer_time: Duration,
    state: watch::Receiver<State>,
    wake: Arc<Notify>,
    release: watch::Sender<bool>,
}

#[derive(Debug, Clone)]
struct State {
    /// Nobody else leads before this time of the own clock.
    confirmed_until: Duration,
    /// Why it is over.
    ended: Option<ElectionError>,
}

impl Leadership {
    pub(super) fn begin(
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: ElectionConfig,
        seen: Seen,
        began: Duration,
    ) -> Self {
        let epoch = seen.0.epoch;
        let answer_time = config.answer_time;
        // A challenge may have been there for long before it was read.
        let confirmed_until = match seen.0.challenge {
            None => began + trusted(answer_time),
            Some(_) => Duration::ZERO,
        };
        let (told, state) = watch::channel(State {
            confirmed_until,
            ended: None,
        });
        let wake = Arc::new(Notify::new());
        let (release, released) = watch::channel(false);
        let renewal = Renewal {
            heartbeat_at: runtime.monotonic(),
            client,
            runtime: Arc::clone(&runtime),
            config,
            seen,
            told,
            wake: Arc::clone(&wake),
            released,
        };
        runtime.spawn(Box::pin(renewal.run()));
        Self {
            epoch,
            runtime,
            answer_time,
            state,
            wake,
            release,
        }
    }

    /// Which leader this is, counted from the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes sure that nobody else leads at this moment. Nearly always it is known already; after a pause of the process the store is
    /// asked first.
    pub async fn confirm(&self) -> Result<(), ElectionError> {
        let given_up_at = self.runtime.monotonic() + self.answer_time * 2;
        let mut state = self.state.clone();
        loop {
            {
                let state = state.borrow_and_update();
                if let Some(error) = &state.ended {
                    return Err(error.clone());
                }
                if self.runtime.monotonic() < state.confirmed_until {
                    return Ok(());
                }
            }
            let left = given_up_at.saturating_sub(self.runtime.monotonic());
            if left.is_zero() {
                return Err(ElectionError::Unconfirmed);
            }
            self.wake.notify_one();
            tokio::select! {
                biased;
                changed = state.changed() => {
                    if changed.is_err() && state.borrow().ended.is_none() {
                        return Err(ElectionError::Unconfirmed);
                    }
                }
                () = self.runtime.sleep(left) => {}
            }
        }
    }

    /// Waits until it is over, and says why.
    pub async fn ended(&self) -> ElectionError {
        let mut state = self.state.clone();
        let ended = state.wait_for(|state| state.ended.is_some()).await;
        match ended {
            Ok(state) => state.ended.clone().unwrap_or(ElectionError::Released),
            // The renewal is gone, which only happens when its runtime is.
            Err(_) => ElectionError::Released,
        }
    }

    /// Gives the leadership up, so that another one need not wait. Nothing may be answered any more from here on.
    pub async fn release(&self) {
        // If nobody listens, it has ended already.
        let _ = self.release.send(true);
        let mut state = self.state.clone();
        // The renewal's end of the channel goes when all is written.
        while state.changed().await.is_ok() {}
    }
}

/// The part of a leader's time to answer in which it trusts itself: the rest is for clocks that run unequally.
fn trusted(answer_time: Duration) -> Duration {
    answer_time * 9 / 10
}

/// Reads and writes the object for as long as the leadership lasts.
struct Renewal {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: ElectionConfig,
    seen: Seen,
    told: watch::Sender<State>,
    wake: Arc<Notify>,
    released: watch::Receiver<bool>,
    /// When the last heartbeat was written.
    heartbeat_at: Duration,
}

impl Renewal {
    async fn run(mut self) {
        loop {
            let released = tokio::select! {
                biased;
                // An error means that the leadership was dropped.
                released = self.released.wait_for(|released| *released) => Some(released.is_ok()),
                () = self.wake.notified() => None,
                () = self.runtime.sleep(self.config.check_interval) => None,
            };
            if let Some(orderly) = released {
                self.end(ElectionError::Released);
                if orderly {
                    self.let_go().await;
                }
                return;
            }
            let began = self.runtime.monotonic();
            match self.check().await {
                Ok(true) => {
                    let confirmed_until = began + trusted(self.config.answer_time);
                    self.told
                        .send_modify(|state| state.confirmed_until = confirmed_until);
                }
                // Somebody wrote between the read and the write: look again at once.
                Ok(false) => self.wake.notify_one(),
                Err(ElectionError::Store(error)) => {
                    tracing::warn!(%error, "whether this broker still leads could not be found out");
                }
                Err(error) => {
                    tracing::warn!(%error, "this broker stands down");
                    self.end(error);
                    return;
                }
            }
        }
    }

    /// Looks who leads, and answers a challenge. Returns whether nobody else can lead as of the beginning of this.
    async fn check(&mut self) -> Result<bool, ElectionError> {
        let changed = match self.client.get_if_changed(BROKER_KEY, &self.seen.1).await {
            Ok(changed) => changed,
            Err(StoreError::NotFound { .. }) => {
                return Err(ElectionError::Unreadable {
                    key: BROKER_KEY,
                    detail: "it is gone".to_owned(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(object) = changed {
            let record = BrokerRecord::decode(&object.body)?;
            let me = self
                .seen
                .0
                .holder
                .as_ref()
                .map_or("", |holder| holder.id.as_str());
            if !record.is_held_by(me, self.seen.0.epoch) {
                return Err(record.lost());
            }
            self.seen = (record, object.tag);
        }
        let now = self.runtime.monotonic();
        let heartbeat_due = now >= self.heartbeat_at + self.config.heartbeat_interval;
        if self.seen.0.challenge.is_none() && !heartbeat_due {
            return Ok(true);
        }
        let mut next = self.seen.0.next(self.runtime.new_op_id());
        next.challenge = None;
        if let Some(holder) = &mut next.holder {
            holder.heartbeat = self.client.now();
        }
        let Some(tag) = swap(&self.client, &next, &self.seen.1).await? else {
            return Ok(false);
        };
        self.heartbeat_at = now;
        self.seen = (next, tag);
        Ok(true)
    }

    /// Tells the standbys that nobody leads. If it fails, they find out by a challenge.
    async fn let_go(&mut self) {
        for _ in 0..LET_GO_TRIES {
            let mut next = self.seen.0.next(self.runtime.new_op_id());
            next.challenge = None;
            next.holder = None;
            match swap(&self.client, &next, &self.seen.1).await {
                Ok(Some(_)) => {
                    tracing::info!(epoch = next.epoch, "gave up the leadership");
                    return;
                }
                // A challenge came between.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "could not give up the leadership; it is taken over after a while");
                    return;
                }
            }
            if self.check().await.is_err() {
                return;
            }
        }
    }

    fn end(&self, error: ElectionError) {
        self.told.send_modify(|state| {
            state.confirmed_until = Duration::ZERO;
            state.ended = Some(error);
        });
    }
}

/// Writes the next state of the record. Returns nothing if somebody else wrote before or after.
pub(super) async fn swap(
    client: &StoreClient,
    record: &BrokerRecord,
    tag: &Tag,
) -> Result<Option<Tag>, ElectionError> {
    match client
        .swap(BROKER_KEY, record.encode()?, tag, &record.op_id)
        .await
    {
        Ok(written) => Ok(written.tag().cloned()),
        Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
