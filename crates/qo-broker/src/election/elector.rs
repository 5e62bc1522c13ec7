//! The elector: stands by, challenges a silent leader, and takes over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use qo_core::keys::BROKER_KEY;
use qo_store::client::Tag;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use tokio::sync::watch;

use super::leadership::Leadership;
use super::record::{self, Challenge, TaggedRecord};
use super::{BrokerRecord, ElectionConfig, ElectionError, Holder};

/// How often a challenger checks whether the leader has removed the challenge.
const CHALLENGE_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Pings a leader.
#[async_trait]
pub trait LeaderPing: Send + Sync + 'static {
    /// Whether the leader with this id responds at this address, and can prove that it still leads. The caller drops the request
    /// after [`ElectionConfig::ping_timeout`].
    async fn is_alive(&self, address: &str, id: &str) -> bool;
}

/// A process that wants to lead.
pub struct Elector {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: ElectionConfig,
    /// The settings of this process while it leads.
    leader_config: ElectionConfig,
    pinger: Arc<dyn LeaderPing>,
    id: String,
    address: Option<String>,
    /// The record as last read, which says where the leader is.
    last_record: watch::Sender<Option<BrokerRecord>>,
}

/// Since when the leader has been silent, and the state of challenges against it.
struct Silence {
    /// The epoch of that leader.
    epoch: u64,
    since: Option<Duration>,
    /// The earliest time of the next challenge.
    challenge_at: Duration,
    /// How long to wait after the leader has answered the next challenge.
    pause: Duration,
    /// The revision of another standby's challenge, and when it was first read.
    other: Option<(u64, Duration)>,
}

impl Elector {
    /// An elector with a new random id. `address` is where clients reach this process, `None` if it serves only itself.
    pub fn new(
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: ElectionConfig,
        pinger: Arc<dyn LeaderPing>,
        address: Option<String>,
    ) -> Self {
        let id = format!("{:032x}", runtime.random_u128());
        Self {
            // A response that takes longer is of no use to anybody.
            client: client.with_request_timeout(config.answer_time),
            runtime,
            leader_config: config.clone(),
            config,
            pinger,
            id,
            address,
            last_record: watch::Sender::new(None),
        }
    }

    /// Sets the address where clients reach this process, if it was not known before. It applies from the next leadership on.
    pub fn set_address(&mut self, address: Option<String>) {
        self.address = address;
    }

    /// Sets how long this process may take to answer a challenge while it leads, if that differs from how long it waits as a
    /// challenger.
    pub fn set_answer_time(&mut self, answer_time: Duration) {
        self.leader_config = ElectionConfig::with_answer_time(answer_time);
    }

    /// The id of this elector.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The record as this elector last read it while standing by.
    pub fn last_record(&self) -> watch::Receiver<Option<BrokerRecord>> {
        self.last_record.subscribe()
    }

    /// Reads the record of the current or last leader. `None` if there has never been a broker.
    pub async fn current(&self) -> Result<Option<BrokerRecord>, ElectionError> {
        Ok(self.read().await?.map(|(record, _)| record))
    }

    /// Tries once to lead: takes a queue that nobody leads, or challenges the leader and takes over if the challenge stays.
    /// Returns `None` if another process leads.
    pub async fn try_acquire(&self) -> Result<Option<Leadership>, ElectionError> {
        let read_at = self.runtime.monotonic();
        match &self.read().await? {
            None => self.create_record().await,
            Some((record, tag)) if record.is_held_by(&self.id, record.epoch) => {
                Ok(Some(self.begin(record.clone(), tag.clone(), read_at)))
            }
            Some((record, tag)) if record.holder.is_none() => self.take_over(record, tag).await,
            Some((record, tag)) => self.challenge(record, tag).await,
        }
    }

    /// Waits until this elector leads. The future can be dropped at any time: the leader answers a challenge that it leaves
    /// behind, or another standby overwrites it.
    pub async fn acquire(&self) -> Result<Leadership, ElectionError> {
        let mut silence = Silence {
            epoch: 0,
            since: None,
            challenge_at: Duration::ZERO,
            pause: self.config.answer_time,
            other: None,
        };
        let mut read_at = self.runtime.monotonic();
        let mut current = self.read().await?;
        loop {
            let leadership = match &current {
                None => self.create_record().await?,
                // A write of this elector took effect although its response was lost, and another process has written since.
                Some((record, tag)) if record.is_held_by(&self.id, record.epoch) => {
                    Some(self.begin(record.clone(), tag.clone(), read_at))
                }
                Some((record, tag)) if record.holder.is_none() => {
                    self.take_over(record, tag).await?
                }
                Some((record, tag)) => self.challenge_if_silent(record, tag, &mut silence).await?,
            };
            if let Some(leadership) = leadership {
                return Ok(leadership);
            }
            if current
                .as_ref()
                .is_some_and(|(record, _)| record.holder.is_some())
            {
                self.runtime.sleep(self.config.ping_interval).await;
            }
            let is_alive = match &current {
                Some((record, _)) => self.ping(record, &mut silence).await,
                None => false,
            };
            let now = self.runtime.monotonic();
            if !is_alive || now >= read_at + self.config.record_interval {
                read_at = now;
                current = self.read().await?;
            }
        }
    }

    /// Checks whether the leader is alive. A leader without an address cannot be pinged; it counts as alive until the next challenge
    /// is due.
    async fn ping(&self, record: &BrokerRecord, silence: &mut Silence) -> bool {
        let started = self.runtime.monotonic();
        let is_alive = match &record.holder {
            None => false,
            Some(Holder {
                id,
                address: Some(address),
                ..
            }) => {
                tokio::select! {
                    biased;
                    is_alive = self.pinger.is_alive(address, id) => is_alive,
                    () = self.runtime.sleep(self.config.ping_timeout) => false,
                }
            }
            Some(_) => silence.epoch == record.epoch && started < silence.challenge_at,
        };
        if is_alive {
            silence.since = None;
            if has_address(record) {
                silence.pause = self.config.answer_time;
                silence.challenge_at = Duration::ZERO;
            }
        } else {
            silence.since.get_or_insert(started);
        }
        is_alive
    }

    /// Challenges a leader that has been silent for long enough, and takes over if it stays silent.
    async fn challenge_if_silent(
        &self,
        record: &BrokerRecord,
        tag: &Tag,
        silence: &mut Silence,
    ) -> Result<Option<Leadership>, ElectionError> {
        let now = self.runtime.monotonic();
        if silence.epoch != record.epoch {
            // A new leader has not been pinged yet.
            if let Some(holder) = &record.holder {
                let address = holder.address.as_deref().unwrap_or("no address");
                tracing::info!(epoch = record.epoch, address, since = %holder.since, "standing by: another process leads");
            }
            silence.epoch = record.epoch;
            silence.since = None;
            silence.challenge_at = Duration::ZERO;
        }
        let Some(since) = silence.since else {
            return Ok(None);
        };
        let has_address = has_address(record);
        if (has_address && now < since + self.config.ping_timeout) || now < silence.challenge_at {
            return Ok(None);
        }
        if record
            .challenge
            .as_ref()
            .is_some_and(|challenge| challenge.by != self.id)
        {
            // Another standby has challenged first. Wait for it, unless it has died.
            let first_seen = match silence.other {
                Some((revision, first_seen)) if revision == record.revision => first_seen,
                _ => now,
            };
            silence.other = Some((record.revision, first_seen));
            if now < first_seen + self.answer_time(record) * 2 {
                return Ok(None);
            }
        }
        let leadership = self.challenge(record, tag).await?;
        if leadership.is_none() {
            silence.challenge_at = self.runtime.monotonic() + silence.pause;
            let pause_max = if has_address {
                self.config.challenge_pause_max
            } else {
                self.config.heartbeat_interval
            };
            silence.pause = (silence.pause * 2).min(pause_max);
        }
        Ok(leadership)
    }

    async fn challenge(
        &self,
        record: &BrokerRecord,
        tag: &Tag,
    ) -> Result<Option<Leadership>, ElectionError> {
        let op = self.runtime.new_op_id();
        let mut challenged = record.next(op);
        challenged.challenge = Some(Challenge {
            by: self.id.clone(),
            at: self.client.now(),
        });
        if has_address(record) {
            tracing::info!(
                epoch = record.epoch,
                "the leader does not answer; challenging it"
            );
        } else {
            tracing::debug!(epoch = record.epoch, "asking whether the leader is alive");
        }
        let Some(tag) = self.swap(&challenged, tag).await? else {
            return Ok(None);
        };
        // The challenge is stored by now.
        let challenged_at = self.runtime.monotonic();
        let answer_time = self.answer_time(record);
        while self.runtime.monotonic() < challenged_at + answer_time {
            self.runtime.sleep(CHALLENGE_POLL_INTERVAL).await;
            // A read that takes long is given up. The condition of the takeover decides.
            let changed = tokio::select! {
                biased;
                changed = self.client.get_if_changed(BROKER_KEY, &tag) => changed,
                () = self.runtime.sleep(self.config.ping_timeout) => Ok(None),
            };
            if let Ok(Some(_)) = changed {
                tracing::debug!(epoch = record.epoch, "the leader answered the challenge");
                return Ok(None);
            }
        }
        self.take_over(&challenged, &tag).await
    }

    /// How long a challenge must stay unanswered. The leader relies on that time, so the longer of both settings counts.
    fn answer_time(&self, record: &BrokerRecord) -> Duration {
        self.config.answer_time.max(record.answer_time())
    }

    /// Creates the record and becomes the first leader.
    async fn create_record(&self) -> Result<Option<Leadership>, ElectionError> {
        let started = self.runtime.monotonic();
        let op = self.runtime.new_op_id();
        let record = BrokerRecord::first(self.holder(), op);
        match self.client.create(BROKER_KEY, record.encode()?, &op).await {
            Ok(written) => Ok(written
                .tag()
                .map(|tag| self.begin(record, tag.clone(), started))),
            Err(StoreError::AlreadyExists { .. } | StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Becomes the leader after the one in the record, if the record has not changed.
    async fn take_over(
        &self,
        record: &BrokerRecord,
        tag: &Tag,
    ) -> Result<Option<Leadership>, ElectionError> {
        let started = self.runtime.monotonic();
        let mut next = record.next(self.runtime.new_op_id());
        next.epoch += 1;
        next.holder = Some(self.holder());
        next.challenge = None;
        let tag = self.swap(&next, tag).await?;
        Ok(tag.map(|tag| self.begin(next, tag, started)))
    }

    fn begin(&self, record: BrokerRecord, tag: Tag, started: Duration) -> Leadership {
        tracing::info!(epoch = record.epoch, "this process leads");
        Leadership::begin(
            self.client.clone(),
            Arc::clone(&self.runtime),
            self.leader_config.clone(),
            (record, tag),
            started,
        )
    }

    fn holder(&self) -> Holder {
        let now = self.client.now();
        Holder {
            id: self.id.clone(),
            address: self.address.clone(),
            since: now,
            heartbeat: now,
            answer_time_ms: u64::try_from(self.leader_config.answer_time.as_millis())
                .unwrap_or(u64::MAX),
        }
    }

    async fn read(&self) -> Result<Option<TaggedRecord>, ElectionError> {
        let current = record::read(&self.client).await?;
        self.last_record
            .send_replace(current.as_ref().map(|(record, _)| record.clone()));
        Ok(current)
    }

    async fn swap(&self, record: &BrokerRecord, tag: &Tag) -> Result<Option<Tag>, ElectionError> {
        super::leadership::swap(&self.client, record, tag).await
    }
}

/// Whether the leader serves other processes.
fn has_address(record: &BrokerRecord) -> bool {
    let holder = record.holder.as_ref();
    holder.is_some_and(|holder| holder.address.is_some())
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector")
            .field("id", &self.id)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
