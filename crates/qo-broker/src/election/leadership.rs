//! The leadership: reads the record, answers challenges, and knows for how long no other process can lead.
//!
//! Reads overlap: if a read has no response after a tenth of the answer time, the next one starts in parallel, and the first response
//! counts. So one slow response does not keep a leader from being confirmed. Writes (heartbeats, answers to challenges) run in parallel with the
//! reads for the same reason.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use qo_core::keys::BROKER_KEY;
use qo_store::client::{Object, Tag};
use qo_store::runtime::{BoxFuture, Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use tokio::sync::{Notify, watch};

use super::record::{self, TaggedRecord};
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
    /// Until this time the last heartbeat shows that this process can write the record.
    heartbeat_until: Duration,
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
        let now = runtime.monotonic();
        let (status_sender, status) = watch::channel(LeadershipStatus {
            confirmed_until,
            heartbeat_until: now + config.heartbeat_timeout(),
            ended: None,
        });
        let wake = Arc::new(Notify::new());
        let (release, released) = watch::channel(false);
        let renewal = Renewal {
            heartbeat_at: now,
            read_at: now,
            read_wanted: current.0.challenge.is_some(),
            unanswered: 0,
            reads: FuturesUnordered::new(),
            writes: FuturesUnordered::new(),
            writes_upon: 0,
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

    /// Whether it is known, without a request, that no other process leads now and that this process can write the record. A leader
    /// that is not confirmed counts as silent: a standby that pings it challenges it.
    pub fn is_confirmed(&self) -> bool {
        let now = self.runtime.monotonic();
        let status = self.status.borrow();
        let is_confirmed =
            status.ended.is_none() && now < status.confirmed_until && now < status.heartbeat_until;
        if !is_confirmed {
            self.wake.notify_one();
        }
        is_confirmed
    }

    /// Whether no other process can lead now.
    pub(super) fn is_certain(&self) -> bool {
        let status = self.status.borrow();
        status.ended.is_none() && self.runtime.monotonic() < status.confirmed_until
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

    /// Waits until the leadership has ended, and returns the reason. The future does not keep the leadership alive.
    pub fn ended(&self) -> impl Future<Output = ElectionError> + Send + use<> {
        let mut status = self.status.clone();
        async move {
            let ended = status.wait_for(|status| status.ended.is_some()).await;
            match ended {
                Ok(status) => status.ended.clone().unwrap_or(ElectionError::Released),
                // The renewal task is gone, which only happens when its runtime has stopped.
                Err(_) => ElectionError::Released,
            }
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

/// A finished read of the record.
struct ReadResult {
    started: Duration,
    /// Whether the state that the read compared with contains no challenge.
    was_calm: bool,
    /// `None` if the record has not changed.
    result: Result<Option<Object>, StoreError>,
}

/// A finished write of the record.
struct WriteResult {
    started: Duration,
    record: BrokerRecord,
    /// `None` if another process wrote.
    result: Result<Option<Tag>, ElectionError>,
}

/// Reads and writes the record for as long as the leadership lasts.
struct Renewal {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: ElectionConfig,
    /// The newest known state of the record.
    current: TaggedRecord,
    status: watch::Sender<LeadershipStatus>,
    wake: Arc<Notify>,
    released: watch::Receiver<bool>,
    /// When the last heartbeat was written.
    heartbeat_at: Duration,
    /// When the last read was started.
    read_at: Duration,
    /// Whether somebody waits for a confirmation.
    read_wanted: bool,
    /// The number of reads since the last response.
    unanswered: u32,
    /// The reads in flight.
    reads: FuturesUnordered<BoxFuture<ReadResult>>,
    /// The write in flight, if there is one.
    writes: FuturesUnordered<BoxFuture<WriteResult>>,
    /// The revision that the write in flight replaces.
    writes_upon: u64,
}

/// What happens next in the renewal task.
enum Event {
    /// The leadership was released (true) or dropped (false).
    Released(bool),
    Read(ReadResult),
    Written(WriteResult),
    Wanted,
    ReadDue,
}

impl Renewal {
    async fn run(mut self) {
        loop {
            let now = self.runtime.monotonic();
            let due = self.runtime.sleep(self.read_due().saturating_sub(now));
            let event = tokio::select! {
                biased;
                // An error means that the leadership was dropped.
                released = self.released.wait_for(|released| *released) => Event::Released(released.is_ok()),
                Some(read) = self.reads.next(), if !self.reads.is_empty() => Event::Read(read),
                Some(written) = self.writes.next(), if !self.writes.is_empty() => Event::Written(written),
                () = self.wake.notified() => Event::Wanted,
                () = due => Event::ReadDue,
            };
            let continues = match event {
                Event::Released(orderly) => {
                    self.end(ElectionError::Released);
                    if orderly {
                        self.write_release().await;
                    }
                    return;
                }
                Event::Read(read) => self.finish_read(read),
                Event::Written(written) => self.finish_write(written),
                Event::Wanted => {
                    self.read_wanted = true;
                    Ok(())
                }
                Event::ReadDue => {
                    self.start_read();
                    Ok(())
                }
            };
            if let Err(error) = continues {
                tracing::warn!(%error, "this broker stands down");
                self.end(error);
                return;
            }
        }
    }

    /// When the next read starts: after the regular interval, or earlier if the last read has no response yet or a confirmation is
    /// wanted.
    fn read_due(&self) -> Duration {
        let overlap = self.config.answer_time / 10;
        let interval = match self.unanswered {
            0 if self.read_wanted => overlap,
            0 => self.config.check_interval,
            unanswered => overlap * (1 << (unanswered - 1).min(8)),
        };
        self.read_at + interval.min(self.config.check_interval)
    }

    /// Starts a read in addition to those in flight. A read that takes longer than it could be trusted ends without a result.
    fn start_read(&mut self) {
        let started = self.runtime.monotonic();
        self.read_at = started;
        self.read_wanted = false;
        self.unanswered = self.unanswered.saturating_add(1);
        let (record, tag) = self.current.clone();
        let was_calm = record.challenge.is_none();
        let client = self.client.clone();
        let limit = trusted(self.config.answer_time);
        let timeout = self.runtime.sleep(limit);
        self.reads.push(Box::pin(async move {
            let result = tokio::select! {
                biased;
                result = client.get_if_changed(BROKER_KEY, &tag) => result,
                () = timeout => Err(record::no_response(limit)),
            };
            ReadResult {
                started,
                was_calm,
                result,
            }
        }));
    }

    /// Processes the response to a read. Fails if this process no longer leads.
    ///
    /// Reads may finish in another order than they started. That is safe: each confirms only what its own start proves, and an older
    /// state never replaces a newer one.
    fn finish_read(&mut self, read: ReadResult) -> Result<(), ElectionError> {
        let is_calm = match read.result {
            Ok(None) => read.was_calm,
            Ok(Some(object)) => {
                let record = BrokerRecord::decode(&object.body)?;
                if !record.is_held_by(self.own_id(), self.current.0.epoch) {
                    return Err(record.lost());
                }
                let is_calm = record.challenge.is_none();
                self.adopt((record, object.tag));
                is_calm
            }
            Err(StoreError::NotFound { .. }) => {
                return Err(ElectionError::Unreadable {
                    key: BROKER_KEY,
                    detail: "the object no longer exists".to_owned(),
                });
            }
            Err(error) => {
                tracing::warn!(%error, "could not check whether this broker still leads");
                return Ok(());
            }
        };
        self.unanswered = 0;
        if is_calm {
            self.confirm_from(read.started);
        }
        let now = self.runtime.monotonic();
        let is_heartbeat_due = now >= self.heartbeat_at + self.config.heartbeat_interval;
        if self.current.0.challenge.is_some() || is_heartbeat_due {
            self.start_write();
        }
        Ok(())
    }

    /// Writes a heartbeat, which also answers a challenge. A write in flight that replaces an older state is given up: it was applied
    /// already, or its condition fails.
    fn start_write(&mut self) {
        let revision = self.current.0.revision;
        if !self.writes.is_empty() && self.writes_upon == revision {
            return;
        }
        self.writes.clear();
        self.writes_upon = revision;
        let mut record = self.current.0.next(self.runtime.new_op_id());
        record.challenge = None;
        if let Some(holder) = &mut record.holder {
            holder.heartbeat = self.client.now();
        }
        let started = self.runtime.monotonic();
        let (client, tag) = (self.client.clone(), self.current.1.clone());
        self.writes.push(Box::pin(async move {
            let result = swap(&client, &record, &tag).await;
            WriteResult {
                started,
                record,
                result,
            }
        }));
    }

    fn finish_write(&mut self, written: WriteResult) -> Result<(), ElectionError> {
        match written.result {
            Ok(Some(tag)) => {
                self.adopt((written.record, tag));
                self.heartbeat_at = written.started;
                let heartbeat_until = written.started + self.config.heartbeat_timeout();
                self.status
                    .send_modify(|status| status.heartbeat_until = heartbeat_until);
                self.confirm_from(written.started);
            }
            // Another process wrote between the read and the write: read again at once.
            Ok(None) => self.start_read(),
            Err(ElectionError::Store(error)) => {
                tracing::warn!(%error, "could not write the leader record");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Remembers a state of the record, if it is newer than the known one.
    fn adopt(&mut self, read: TaggedRecord) {
        if read.0.revision > self.current.0.revision {
            self.current = read;
        }
    }

    fn own_id(&self) -> &str {
        let holder = self.current.0.holder.as_ref();
        holder.map_or("", |holder| holder.id.as_str())
    }

    /// Records that no other process could lead at `started`.
    fn confirm_from(&self, started: Duration) {
        let confirmed_until = started + trusted(self.config.answer_time);
        self.status.send_modify(|status| {
            status.confirmed_until = status.confirmed_until.max(confirmed_until);
        });
    }

    /// Writes that no process leads, for the standbys. If this fails, they find out by a challenge, so it is not tried for long.
    async fn write_release(&mut self) {
        let limit = self.runtime.sleep(self.config.answer_time * 2);
        tokio::select! {
            biased;
            () = self.try_release() => {}
            () = limit => {
                tracing::warn!("could not release the leadership in time; a standby takes over after a challenge");
            }
        }
    }

    async fn try_release(&mut self) {
        for _ in 0..RELEASE_ATTEMPTS {
            let mut next = self.current.0.next(self.runtime.new_op_id());
            next.challenge = None;
            next.holder = None;
            match swap(&self.client, &next, &self.current.1).await {
                Ok(Some(_)) => {
                    tracing::info!(epoch = next.epoch, "released the leadership");
                    return;
                }
                // A standby wrote a challenge, or an earlier write of this process arrived meanwhile.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "could not release the leadership; a standby takes over after a challenge");
                    return;
                }
            }
            match record::read(&self.client).await {
                Ok(Some(read)) if read.0.is_held_by(self.own_id(), self.current.0.epoch) => {
                    self.current = read;
                }
                _ => return,
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
