//! The leadership: reads the record, answers challenges, and knows for how long no other process can lead.

use std::sync::Arc;
use std::time::Duration;

use qo_core::keys::BROKER_KEY;
use qo_store::client::Tag;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use tokio::sync::{Notify, watch};

use super::record::TaggedRecord;
use super::{BrokerRecord, ElectionConfig, ElectionError};

/// The most attempts of a stopping leader to write its release.
const RELEASE_ATTEMPTS: u32 = 3;

/// The leadership of one process. It ends when another process leads, or when it is released or dropped.
#[derive(Debug)]
pub struct Leadership {
    epoch: u64,
    runtime: Arc<dyn Runtime>,
    answer_time: Duration,
    status: watch::Receiver<LeadershipStatus>,
    wake: Arc<Notify>,
    release: watch::Sender<bool>,
}

#[derive(Debug, Clone)]
struct LeadershipStatus {
    /// No other process leads before this time of the monotonic clock.
    confirmed_until: Duration,
    /// The reason why the leadership has ended.
    ended: Option<ElectionError>,
}

impl Leadership {
    pub(super) fn begin(
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: ElectionConfig,
        current: TaggedRecord,
        started: Duration,
    ) -> Self {
        let epoch = current.0.epoch;
        let answer_time = config.answer_time;
        // A challenge may have been stored long before it was read.
        let confirmed_until = match current.0.challenge {
            None => started + trusted(answer_time),
            Some(_) => Duration::ZERO,
        };
        let (status_sender, status) = watch::channel(LeadershipStatus {
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
            current,
            status: status_sender,
            wake: Arc::clone(&wake),
            released,
        };
        runtime.spawn(Box::pin(renewal.run()));
        Self {
            epoch,
            runtime,
            answer_time,
            status,
            wake,
            release,
        }
    }

    /// The epoch of this leadership. The first leader has epoch 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Confirms that no other process leads now. This is nearly always known already; after a pause of the process it takes a
    /// store request.
    pub async fn confirm(&self) -> Result<(), ElectionError> {
        let deadline = self.runtime.monotonic() + self.answer_time * 2;
        let mut status = self.status.clone();
        loop {
            {
                let status = status.borrow_and_update();
                if let Some(error) = &status.ended {
                    return Err(error.clone());
                }
                if self.runtime.monotonic() < status.confirmed_until {
                    return Ok(());
                }
            }
            let left = deadline.saturating_sub(self.runtime.monotonic());
            if left.is_zero() {
                return Err(ElectionError::Unconfirmed);
            }
            self.wake.notify_one();
            tokio::select! {
                biased;
                changed = status.changed() => {
                    if changed.is_err() && status.borrow().ended.is_none() {
                        return Err(ElectionError::Unconfirmed);
                    }
                }
                () = self.runtime.sleep(left) => {}
            }
        }
    }

    /// Waits until the leadership has ended, and returns the reason.
    pub async fn ended(&self) -> ElectionError {
        let mut status = self.status.clone();
        let ended = status.wait_for(|status| status.ended.is_some()).await;
        match ended {
            Ok(status) => status.ended.clone().unwrap_or(ElectionError::Released),
            // The renewal task is gone, which only happens when its runtime has stopped.
            Err(_) => ElectionError::Released,
        }
    }

    /// Releases the leadership, so that a standby need not wait. From here on this process must not send responses.
    pub async fn release(&self) {
        // Without a receiver the leadership has ended already.
        let _ = self.release.send(true);
        let mut status = self.status.clone();
        // The renewal task drops its end of the channel when the release is written.
        while status.changed().await.is_ok() {}
    }
}

/// The part of the answer time in which a leader trusts its last confirmation. The rest allows for clocks that run at different
/// speeds.
fn trusted(answer_time: Duration) -> Duration {
    answer_time * 9 / 10
}

/// Reads and writes the record for as long as the leadership lasts.
struct Renewal {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: ElectionConfig,
    current: TaggedRecord,
    status: watch::Sender<LeadershipStatus>,
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
                    self.write_release().await;
                }
                return;
            }
            let started = self.runtime.monotonic();
            match self.check().await {
                Ok(true) => {
                    let confirmed_until = started + trusted(self.config.answer_time);
                    self.status
                        .send_modify(|status| status.confirmed_until = confirmed_until);
                }
                // Another process wrote between the read and the write: check again at once.
                Ok(false) => self.wake.notify_one(),
                Err(ElectionError::Store(error)) => {
                    tracing::warn!(%error, "could not check whether this broker still leads");
                }
                Err(error) => {
                    tracing::warn!(%error, "this broker stands down");
                    self.end(error);
                    return;
                }
            }
        }
    }

    /// Reads the record and answers a challenge. Returns whether no other process could lead when this call started.
    async fn check(&mut self) -> Result<bool, ElectionError> {
        let changed = match self
            .client
            .get_if_changed(BROKER_KEY, &self.current.1)
            .await
        {
            Ok(changed) => changed,
            Err(StoreError::NotFound { .. }) => {
                return Err(ElectionError::Unreadable {
                    key: BROKER_KEY,
                    detail: "the object no longer exists".to_owned(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(object) = changed {
            let record = BrokerRecord::decode(&object.body)?;
            let own_id = self
                .current
                .0
                .holder
                .as_ref()
                .map_or("", |holder| holder.id.as_str());
            if !record.is_held_by(own_id, self.current.0.epoch) {
                return Err(record.lost());
            }
            self.current = (record, object.tag);
        }
        let now = self.runtime.monotonic();
        let heartbeat_due = now >= self.heartbeat_at + self.config.heartbeat_interval;
        if self.current.0.challenge.is_none() && !heartbeat_due {
            return Ok(true);
        }
        let mut next = self.current.0.next(self.runtime.new_op_id());
        next.challenge = None;
        if let Some(holder) = &mut next.holder {
            holder.heartbeat = self.client.now();
        }
        let Some(tag) = swap(&self.client, &next, &self.current.1).await? else {
            return Ok(false);
        };
        self.heartbeat_at = now;
        self.current = (next, tag);
        Ok(true)
    }

    /// Writes that no process leads, for the standbys. If this fails, they find out by a challenge.
    async fn write_release(&mut self) {
        for _ in 0..RELEASE_ATTEMPTS {
            let mut next = self.current.0.next(self.runtime.new_op_id());
            next.challenge = None;
            next.holder = None;
            match swap(&self.client, &next, &self.current.1).await {
                Ok(Some(_)) => {
                    tracing::info!(epoch = next.epoch, "released the leadership");
                    return;
                }
                // A standby wrote a challenge meanwhile.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "could not release the leadership; a standby takes over after a challenge");
                    return;
                }
            }
            if self.check().await.is_err() {
                return;
            }
        }
    }

    fn end(&self, error: ElectionError) {
        self.status.send_modify(|status| {
            status.confirmed_until = Duration::ZERO;
            status.ended = Some(error);
        });
    }
}

/// Writes the next state of the record. Returns `None` if another process wrote before or after.
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
