//! Standing by, challenging, and taking over.

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
use super::record::{Challenge, Seen};
use super::{BrokerRecord, ElectionConfig, ElectionError, Holder};

/// How often a challenger looks whether it was answered.
const ANSWER_LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Asks a leader's address whether it is alive.
#[async_trait]
pub trait IsAlive: Send + Sync + 'static {
    /// Whether the leader of this name answered at this address. It is given up on after [`ElectionConfig::ping_patience`].
    async fn is_alive(&self, address: &str, id: &str) -> bool;
}

/// A process that wants to lead.
pub struct Elector {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: ElectionConfig,
    pinger: Arc<dyn IsAlive>,
    id: String,
    address: Option<String>,
    /// The record as it was last read, for those who are asked where the leader is.
    known: watch::Sender<Option<BrokerRecord>>,
}

/// For how long the leader was not heard of, and what was done about it.
struct Silence {
    /// The leader that it is about.
    epoch: u64,
    since: Option<Duration>,
    /// No challenge before.
    challenge_at: Duration,
    /// How long to wait after the next challenge that is answered.
    pause: Duration,
    /// Somebody else's challenge, by its revision, and when it was first seen.
    other: Option<(u64, Duration)>,
}

impl Elector {
    /// A elector with a new random name. `address` is where others reach it; nowhere, if it serves only its own process.
    pub fn new(
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: ElectionConfig,
        pinger: Arc<dyn IsAlive>,
        address: Option<String>,
    ) -> Self {
        let id = format!("{:032x}", runtime.random_u128());
        Self {
            client,
            runtime,
            config,
            pinger,
            id,
            address,
            known: watch::Sender::new(None),
        }
    }

    /// Says where others reach it, where that is known only now. It counts from the next leadership on.
    pub fn set_address(&mut self, address: Option<String>) {
        self.address = address;
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The record as this elector last read it, while it stood by.
    pub fn known(&self) -> watch::Receiver<Option<BrokerRecord>> {
        self.known.subscribe()
    }

    /// Who leads, or led last; nothing, if there never was a broker.
    pub async fn current(&self) -> Result<Option<BrokerRecord>, ElectionError> {
        Ok(self.read().await?.map(|(record, _)| record))
    }

    /// Waits until this elector leads. It can be dropped at any time: a challenge that it leaves behind is answered or overwritten.
    pub async fn acquire(&self) -> Result<Leadership, ElectionError> {
        let mut silence = Silence {
            epoch: 0,
            since: None,
            challenge_at: Duration::ZERO,
            pause: self.config.answer_time,
            other: None,
        };
        let mut looked_at = self.runtime.monotonic();
        let mut seen = self.read().await?;
        loop {
            let leadership = match &seen {
                None => self.found().await?,
                // An own write was applied although its answer was lost, and somebody has built upon it.
                Some((record, tag)) if record.is_held_by(&self.id, record.epoch) => {
                    Some(self.begin(record.clone(), tag.clone(), looked_at))
                }
                Some((record, tag)) if record.holder.is_none() => self.take(record, tag).await?,
                Some((record, tag)) => self.doubt(record, tag, &mut silence).await?,
            };
            if let Some(leadership) = leadership {
                return Ok(leadership);
            }
            if seen
                .as_ref()
                .is_some_and(|(record, _)| record.holder.is_some())
            {
                self.runtime.sleep(self.config.ping_interval).await;
            }
            let heard = match &seen {
                Some((record, _)) => self.hear(record, &mut silence).await,
                None => false,
            };
            let now = self.runtime.monotonic();
            if !heard || now >= looked_at + self.config.look_interval {
                looked_at = now;
                seen = self.read().await?;
            }
        }
    }

    /// Asks the leader whether it is there.
    async fn hear(&self, record: &BrokerRecord, silence: &mut Silence) -> bool {
        let began = self.runtime.monotonic();
        let heard = match &record.holder {
            None => false,
            Some(Holder {
                id,
                address: Some(address),
                ..
            }) => {
                tokio::select! {
                    biased;
                    heard = self.pinger.is_alive(address, id) => heard,
                    () = self.runtime.sleep(self.config.ping_patience) => false,
                }
            }
            Some(holder) => {
                self.client.now().since(holder.heartbeat) < self.config.heartbeat_patience()
            }
        };
        if heard {
            silence.since = None;
            silence.pause = self.config.answer_time;
        } else {
            silence.since.get_or_insert(began);
        }
        heard
    }

    /// Challenges a leader that was silent for long enough, and takes over if it stays silent.
    async fn doubt(
        &self,
        record: &BrokerRecord,
        tag: &Tag,
        silence: &mut Silence,
    ) -> Result<Option<Leadership>, ElectionError> {
        let now = self.runtime.monotonic();
        if silence.epoch != record.epoch {
            // A new leader has yet to be asked.
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
        // A leader that has no address has been silent for long enough already.
        let has_address = record
            .holder
            .as_ref()
            .is_some_and(|holder| holder.address.is_some());
        if (has_address && now < since + self.config.ping_patience) || now < silence.challenge_at {
            return Ok(None);
        }
        if record
            .challenge
            .as_ref()
            .is_some_and(|challenge| challenge.by != self.id)
        {
            // Another standby is ahead, unless it died on the way.
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
            silence.pause = (silence.pause * 2).min(self.config.challenge_pause_max);
        }
        Ok(leadership)
    }

    async fn challenge(
        &self,
        record: &BrokerRecord,
        tag: &Tag,
    ) -> Result<Option<Leadership>, ElectionError> {
        let op = self.runtime.new_op_id();
        let mut doubted = record.next(op);
        doubted.challenge = Some(Challenge {
            by: self.id.clone(),
            at: self.client.now(),
        });
        tracing::info!(
            epoch = record.epoch,
            "the leader does not answer; challenging it"
        );
        let Some(tag) = self.swap(&doubted, tag).await? else {
            return Ok(None);
        };
        // From here on the challenge is known to be stored.
        let asked_at = self.runtime.monotonic();
        let answer_time = self.answer_time(record);
        while self.runtime.monotonic() < asked_at + answer_time {
            self.runtime.sleep(ANSWER_LOOK_INTERVAL).await;
            if let Ok(Some(_)) = self.client.get_if_changed(BROKER_KEY, &tag).await {
                tracing::info!(epoch = record.epoch, "the challenge was answered");
                return Ok(None);
            }
        }
        self.take(&doubted, &tag).await
    }

    /// How long a challenge must stand: nobody may take over while the leader trusts that nobody does.
    fn answer_time(&self, record: &BrokerRecord) -> Duration {
        self.config.answer_time.max(record.answer_time())
    }

    /// Becomes the first leader that there ever was.
    async fn found(&self) -> Result<Option<Leadership>, ElectionError> {
        let began = self.runtime.monotonic();
        let op = self.runtime.new_op_id();
        let record = BrokerRecord::first(self.holder(), op);
        match self.client.create(BROKER_KEY, record.encode()?, &op).await {
            Ok(written) => Ok(written
                .tag()
                .map(|tag| self.begin(record, tag.clone(), began))),
            Err(StoreError::AlreadyExists { .. } | StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Becomes the leader after the one that a record names, if the record still is as it was.
    async fn take(
        &self,
        record: &BrokerRecord,
        tag: &Tag,
    ) -> Result<Option<Leadership>, ElectionError> {
        let began = self.runtime.monotonic();
        let mut taken = record.next(self.runtime.new_op_id());
        taken.epoch += 1;
        taken.holder = Some(self.holder());
        taken.challenge = None;
        let tag = self.swap(&taken, tag).await?;
        Ok(tag.map(|tag| self.begin(taken, tag, began)))
    }

    fn begin(&self, record: BrokerRecord, tag: Tag, began: Duration) -> Leadership {
        tracing::info!(epoch = record.epoch, "this process leads");
        Leadership::begin(
            self.client.clone(),
            Arc::clone(&self.runtime),
            self.config.clone(),
            (record, tag),
            began,
        )
    }

    fn holder(&self) -> Holder {
        let now = self.client.now();
        Holder {
            id: self.id.clone(),
            address: self.address.clone(),
            since: now,
            heartbeat: now,
            answer_time_ms: u64::try_from(self.config.answer_time.as_millis()).unwrap_or(u64::MAX),
        }
    }

    async fn read(&self) -> Result<Option<Seen>, ElectionError> {
        let seen = super::record::read(&self.client).await?;
        self.known
            .send_replace(seen.as_ref().map(|(record, _)| record.clone()));
        Ok(seen)
    }

    async fn swap(&self, record: &BrokerRecord, tag: &Tag) -> Result<Option<Tag>, ElectionError> {
        super::leadership::swap(&self.client, record, tag).await
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector")
            .field("id", &self.id)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
