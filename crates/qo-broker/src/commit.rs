//! The commit loop, the only code that changes the state.
//!
//! ```text
//! callers ──► bounded channel ──► group ──► applied in order ──► one write ──► every caller gets its own response
//!                                   ▲                               │
//!             the next group forms ─┘◄──────── meanwhile ───────────┘
//! ```
//!
//! Why it is correct:
//! - Everything that reads or changes the state goes through this loop, in one order, so there is nothing to lock.
//! - A caller gets its response only when the write that contains its change is durable. A read gets its response only when
//!   everything that it read is durable.
//! - A request that the rules reject changes nothing, and only its caller gets the rejection.
//! - A request whose caller goes away before it is applied has no effect. After that it is carried out in full. Tasks that were
//!   claimed for a caller that has gone are released at once, and the attempt is not counted.
//! - A group whose write lost against another process is applied again, from the callers' requests, to what is stored now.
//! - Leases are ended by the earliest possible store time, which setting a local clock cannot change.
//! - The callers of a group whose write failed get the error, and the state is loaded again before the next group: no change
//!   ever builds on a write with an unknown outcome.

mod lookup;
mod responses;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use qo_core::{QueueState, Timestamp};
use qo_engine::EngineError;
use qo_engine::watch::Watchers;
use qo_store::runtime::{BoxFuture, Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use tokio::sync::mpsc;

use self::responses::{in_doubt, refuse_all, take_until_close};
use super::apply::{Applied, Applier};
use super::config::BrokerConfig;
use super::journal::{CommitOutcome, GroupChanges, Journal, LookupKey, LookupResult};
use super::message::{Call, ClaimCall, Message, QueuedMessage};
use super::notify::GroupNotification;

/// The most attempts to write a group while other processes keep writing.
const ATTEMPTS_MAX: u32 = 60;
/// The longest pause between two such attempts.
const PAUSE_MAX_MS: u64 = 200;
/// How often the loop yields to callers that just got a response, so that their next requests join the group.
const GATHER_TURNS: usize = 3;
/// How long the loop waits after a failed write before it starts work of its own.
const BACKOFF: Duration = Duration::from_secs(1);
/// The longest sleep of the loop. It is bounded because clocks may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_mins(1);

/// A group whose write has finished, and the result of that write.
type WrittenGroup = (Vec<QueuedMessage>, Result<(), EngineError>);

/// The commit loop.
pub(super) struct CommitLoop<J> {
    applier: Applier,
    journal: J,
    client: StoreClient,
    messages: mpsc::Receiver<QueuedMessage>,
    group_max: usize,
    /// Claims that wait for tasks, the oldest first.
    waiting: VecDeque<ClaimCall>,
    /// Whether the state was loaded since waiting claims were last served.
    reloaded: bool,
    /// When the next scheduled task becomes due for the waiting claims.
    next_due: Option<Timestamp>,
    /// Messages that wait for a lookup.
    parked: BTreeMap<LookupKey, Vec<QueuedMessage>>,
    lookups: FuturesUnordered<BoxFuture<(LookupKey, Result<LookupResult, EngineError>)>>,
    /// Groups whose writes are in flight, in order.
    in_flight: FuturesOrdered<BoxFuture<WrittenGroup>>,
    /// Messages of the loop itself.
    own_messages: Vec<QueuedMessage>,
    /// When the state was last known to be the newest.
    confirmed_at: Option<Duration>,
    /// Until when the loop starts no work of its own.
    backoff_until: Duration,
    /// The reason why the loop has ended, for callers that come later.
    ended: Arc<OnceLock<EngineError>>,
    watchers: Watchers,
}

impl<J: Journal> CommitLoop<J> {
    pub(super) fn new(
        state: QueueState,
        journal: J,
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: &BrokerConfig,
        messages: mpsc::Receiver<QueuedMessage>,
        ended: Arc<OnceLock<EngineError>>,
    ) -> Self {
        Self {
            applier: Applier {
                state,
                runtime,
                lease_margin_ms: config.lease_margin_ms,
            },
            journal,
            client,
            messages,
            group_max: config.group_max.max(1),
            waiting: VecDeque::new(),
            reloaded: false,
            next_due: None,
            parked: BTreeMap::new(),
            lookups: FuturesUnordered::new(),
            in_flight: FuturesOrdered::new(),
            own_messages: Vec::new(),
            confirmed_at: None,
            backoff_until: Duration::ZERO,
            ended,
            watchers: Watchers::default(),
        }
    }

    /// The watchers of durable changes.
    pub(super) fn watchers(&self) -> Watchers {
        self.watchers.clone()
    }

    /// Runs until the engine is closed, all of its handles are dropped, or the journal has ended.
    pub(super) async fn run(mut self) {
        let mut journal_ended = self.journal.ended();
        let mut closers = Vec::new();
        let mut batch = Vec::new();
        let mut end = EngineError::Closed;
        let mut failure = None;
        while closers.is_empty() {
            let sleep = self.applier.runtime.sleep(self.wakes_in());
            let has_room = self.in_flight.len() < self.journal.in_flight_max();
            tokio::select! {
                biased;
                Some(written) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    if let Err(error) = self.finish_group(written) {
                        failure = Some(error);
                        break;
                    }
                }
                error = &mut journal_ended => {
                    end = error;
                    break;
                }
                Some((key, result)) = self.lookups.next(), if has_room && !self.lookups.is_empty() => {
                    let queued = self.unpark_finished(&key, result);
                    self.commit(queued).await;
                }
                count = self.messages.recv_many(&mut batch, self.group_max), if has_room => {
                    if count == 0 {
                        break;
                    }
                    self.gather(&mut batch).await;
                    let queued = take_until_close(&mut batch, &mut closers);
                    self.commit(queued).await;
                }
                () = sleep, if has_room => self.commit(Vec::new()).await,
            }
        }
        self.end(end, failure, batch, closers).await;
    }

    /// Waits for the writes in flight, and refuses all other messages. If a write failed (`failure`), the later groups may have read
    /// changes that did not become durable, so their outcome is unknown even if their own writes succeeded.
    async fn end(
        mut self,
        end: EngineError,
        mut failure: Option<EngineError>,
        batch: Vec<QueuedMessage>,
        closers: Vec<Call<(), ()>>,
    ) {
        self.messages.close();
        while let Some((members, result)) = self.in_flight.next().await {
            let result = match (&failure, result) {
                (Some(error), Ok(())) => Err(in_doubt(error)),
                (_, result) => result,
            };
            if let Err(error) = self.finish_group((members, result)) {
                failure = Some(error);
            }
        }
        let end = failure.unwrap_or(end);
        // Later callers get this error as soon as the channel is closed.
        let end = self.ended.get_or_init(|| end).clone();
        for call in self.waiting {
            call.refuse(&end);
        }
        refuse_all(batch, &end);
        refuse_all(self.parked.into_values().flatten(), &end);
        while let Ok(queued) = self.messages.try_recv() {
            queued.message.refuse(&end);
        }
        self.journal.close().await;
        for mut closer in closers {
            closer.respond(Ok(()));
            closer.deliver();
        }
    }

    /// Waits briefly for callers that just got a response to send their next request, so that they share the next write. With no
    /// other caller this costs a microsecond.
    async fn gather(&mut self, batch: &mut Vec<QueuedMessage>) {
        for _ in 0..GATHER_TURNS {
            tokio::task::yield_now().await;
            let before = batch.len();
            while batch.len() < self.group_max
                && let Ok(queued) = self.messages.try_recv()
            {
                batch.push(queued);
            }
            if batch.len() == before {
                break;
            }
        }
    }

    /// Applies a group and makes it durable. Retries up to [`ATTEMPTS_MAX`] times if other processes write first.
    async fn commit(&mut self, mut queued: Vec<QueuedMessage>) {
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                let bound_ms = (4 << attempt.min(10)).min(PAUSE_MAX_MS);
                let pause_ms = self.applier.runtime.random_below(bound_ms);
                let pause = Duration::from_millis(pause_ms);
                self.applier.runtime.sleep(pause).await;
            }
            if let Err(error) = self.load().await {
                self.back_off();
                self.refuse_overdue(&error);
                return refuse_all(queued, &error);
            }
            let now = self.client.now();
            let (members, mut changes, confirm) = self.form(std::mem::take(&mut queued), now);
            if changes.is_empty() && !confirm {
                return;
            }
            let runtime = &self.applier.runtime;
            let notification =
                GroupNotification::begin(&self.watchers, runtime, members.len(), &mut changes);
            let state = &mut self.applier.state;
            match self.journal.commit(state, &changes, now).await {
                CommitOutcome::Durable => {
                    self.confirmed_at = Some(self.applier.runtime.monotonic());
                    notification.send();
                    return self.deliver(members);
                }
                CommitOutcome::InFlight(durable) => {
                    let written =
                        async move { (members, durable.await.inspect(|()| notification.send())) };
                    self.in_flight.push_back(Box::pin(written));
                    return;
                }
                CommitOutcome::Conflict => queued = members,
                CommitOutcome::Failed(error) => {
                    self.back_off();
                    return refuse_all(members, &error);
                }
            }
        }
        self.back_off();
        for QueuedMessage { message, .. } in queued {
            let error = match message.task_id() {
                Some(id) => EngineError::Contended { id },
                None => EngineError::Store(StoreError::Conflict {
                    key: "the queue".to_owned(),
                }),
            };
            message.refuse(&error);
        }
    }

    /// Loads the state if the journal requires it.
    async fn load(&mut self) -> Result<(), EngineError> {
        if self.journal.must_load() {
            self.journal.load(&mut self.applier.state).await?;
            self.reloaded = true;
        }
        Ok(())
    }

    /// Applies messages in order, ends what has expired, and serves waiting claims. Also returns whether the journal must confirm
    /// that the state is the newest.
    fn form(
        &mut self,
        queued: Vec<QueuedMessage>,
        now: Timestamp,
    ) -> (Vec<QueuedMessage>, GroupChanges, bool) {
        let mut changes = GroupChanges::for_watchers(&self.watchers);
        let mut members = Vec::with_capacity(queued.len());
        let mut confirm = self.is_poll_due();
        let own_messages = std::mem::take(&mut self.own_messages);
        for mut queued in own_messages.into_iter().chain(queued) {
            if queued.message.is_abandoned() {
                continue;
            }
            if let Some(key) = self.journal.lookup_needed(&self.applier.state, &queued) {
                self.park(key, queued);
                continue;
            }
            let message = &mut queued.message;
            let applied = self
                .applier
                .apply(&self.journal, message, now, &mut changes);
            match (applied, queued.message) {
                (Applied::Waits, Message::Claim(call)) => {
                    // Another process may have submitted a task for it.
                    confirm |= self.journal.poll_intervals().is_some();
                    self.waiting.push_back(call);
                }
                (applied, message) => {
                    confirm = true;
                    changes.reads_state |= applied == Applied::Responded;
                    let absent = queued.absent;
                    members.push(QueuedMessage { message, absent });
                }
            }
        }
        let earliest = self.client.earliest_now();
        self.applier.expire(now, earliest, &mut changes);
        let served = members.len();
        self.serve_waiting(now, &mut changes, &mut members);
        confirm |= members.len() > served;
        changes.submitted.sort_unstable();
        if !changes.is_empty() {
            let state = &mut self.applier.state;
            self.journal.retire(state, &mut changes, now);
        }
        (members, changes, confirm)
    }

    /// Gives due tasks to waiting claims, and sends an empty response to claims whose wait is over.
    fn serve_waiting(
        &mut self,
        now: Timestamp,
        changes: &mut GroupChanges,
        members: &mut Vec<QueuedMessage>,
    ) {
        let is_due = self.next_due.is_some_and(|due| due <= now);
        let may_serve = self.reloaded || changes.may_be_claimable || is_due;
        self.reloaded = false;
        let at = self.applier.runtime.monotonic();
        let mut still_waiting = VecDeque::with_capacity(self.waiting.len());
        for mut call in std::mem::take(&mut self.waiting) {
            if call.is_abandoned() {
                continue;
            }
            let claimed = if may_serve {
                self.applier.claim(&call.request, now, changes)
            } else {
                Ok(Vec::new())
            };
            let is_empty = claimed.as_ref().is_ok_and(Vec::is_empty);
            if is_empty && call.request.until > at {
                still_waiting.push_back(call);
                continue;
            }
            call.respond(if is_empty {
                self.applier.empty_claim_response(&call.request)
            } else {
                claimed
            });
            members.push(Message::Claim(call).into());
        }
        self.waiting = still_waiting;
        self.next_due = if self.waiting.is_empty() {
            None
        } else {
            self.applier.state.next_due(now)
        };
    }

    fn back_off(&mut self) {
        self.backoff_until = self.applier.runtime.monotonic() + BACKOFF;
    }

    /// How often to check for changes by other processes at the moment.
    fn poll_interval(&self) -> Option<Duration> {
        let intervals = self.journal.poll_intervals()?;
        Some(if self.waiting.is_empty() {
            intervals.idle
        } else {
            intervals.waiting
        })
    }

    fn is_poll_due(&self) -> bool {
        let at = self.applier.runtime.monotonic();
        self.poll_interval().is_some_and(|interval| {
            self.confirmed_at
                .is_none_or(|confirmed| at >= confirmed + interval)
        })
    }

    /// How long until the loop has work of its own.
    fn wakes_in(&self) -> Duration {
        let at = self.applier.runtime.monotonic();
        let now = self.client.now();
        let mut wakes_in = SLEEP_MAX;
        if let Some(interval) = self.poll_interval() {
            let confirmed = self.confirmed_at.unwrap_or_default();
            wakes_in = wakes_in.min((confirmed + interval).saturating_sub(at));
        }
        let earliest = self.client.earliest_now();
        if let Some(expires_in) = self.applier.expires_in(now, earliest) {
            wakes_in = wakes_in.min(expires_in);
        }
        if let Some(due) = self.next_due {
            wakes_in = wakes_in.min(due.since(now));
        }
        for call in &self.waiting {
            wakes_in = wakes_in.min(call.request.until.saturating_sub(at));
        }
        if self.reloaded && !self.waiting.is_empty() || !self.own_messages.is_empty() {
            wakes_in = Duration::ZERO;
        }
        // Times have millisecond resolution. Without this lower bound, work that is due within the current millisecond would make the
        // loop spin.
        wakes_in
            .max(Duration::from_millis(1))
            .max(self.backoff_until.saturating_sub(at))
    }
}
