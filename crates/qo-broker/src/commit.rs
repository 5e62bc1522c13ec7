//! The commit loop, the only code that changes the state.
//!
//! ```text
//! callers ──► bounded lanes ──► group ──► applied in order ──► one write ──► every caller gets its own response
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
//! - Leases are ended by the earliest possible store time, which setting a local clock cannot change, and later by as much as the loop
//!   is behind ([`lag`]).
//! - When the loop ends, it releases the tasks of claims whose callers have gone, and gives none to claims that still wait. A crash before
//!   that leaves these tasks to the expiry of their leases.
//! - The callers of a group whose write failed get the error, and the state is loaded again before the next group: no change
//!   ever builds on a write with an unknown outcome.

mod lag;
mod lookup;
mod lookup_table;
mod responses;
mod waiting;

use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use qo_core::{QueueState, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::watch::Watchers;
use qo_store::StoreClient;
use qo_store::runtime::{BoxFuture, Runtime};
use tokio::sync::mpsc;

use self::lag::LagMeter;
use self::lookup::LookupResult;
use self::lookup_table::LookupTable;
use self::responses::{in_doubt, refuse_all, take_until_close};
use self::waiting::ClaimLine;
use super::apply::Applier;
use super::config::BrokerConfig;
use super::inbox::{Inbox, Lane};
use super::journal::{CommitOutcome, GroupChanges, Journal};
use super::message::{Call, Message, QueuedMessage};
use super::notify::GroupNotification;
use super::payloads::has_stored_payloads;

/// The most attempts to write a group while other processes keep writing.
const ATTEMPTS_MAX: u32 = 60;
/// How often the loop yields to callers that just got a response, so that their next requests join the group.
const GATHER_TURNS: usize = 3;
/// How long the loop waits after a failed write before it starts work of its own.
const BACKOFF: Duration = Duration::from_secs(1);
/// The longest sleep of the loop. It is bounded because clocks may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_mins(1);
/// No submits are taken while so many changed tasks are being written, or so many bytes of submitted ones: renewals are written in the
/// same order and would wait for them.
const TASKS_IN_FLIGHT_MAX: usize = 32_768;
const BYTES_IN_FLIGHT_MAX: u64 = 32 * 1024 * 1024;

/// A group whose write has finished.
struct WrittenGroup {
    members: Vec<QueuedMessage>,
    tasks: usize,
    bytes: u64,
    /// The index of the group, if it is an entry of a replicated log.
    result: Result<Option<NonZeroU64>, EngineError>,
}

/// What the loop shares with the engine.
pub(super) struct LoopLinks {
    pub(super) inbox: Inbox,
    /// The reason why the loop has ended, for callers that come later.
    pub(super) ended: Arc<OnceLock<EngineError>>,
    /// Receives the dropped tasks that have payloads in their own objects.
    pub(super) dropped: mpsc::UnboundedSender<TaskId>,
}

/// The commit loop.
pub(super) struct CommitLoop<J> {
    applier: Applier,
    journal: J,
    client: StoreClient,
    links: LoopLinks,
    group_max: usize,
    waiting: ClaimLine,
    /// Whether the state was loaded since waiting claims were last served.
    reloaded: bool,
    /// When the next scheduled task becomes due for the waiting claims.
    next_due: Option<Timestamp>,
    /// Messages that wait for a lookup.
    parked: LookupTable,
    lookups: FuturesUnordered<BoxFuture<LookupResult>>,
    /// Groups whose writes are in flight, in order.
    in_flight: FuturesOrdered<BoxFuture<WrittenGroup>>,
    tasks_in_flight: usize,
    bytes_in_flight: u64,
    /// Messages of the loop itself.
    own_messages: Vec<QueuedMessage>,
    /// When the state was last known to be the newest.
    confirmed_at: Option<Duration>,
    /// Until when the loop starts no work of its own.
    backoff_until: Duration,
    lag: LagMeter,
    watchers: Watchers,
}

impl<J: Journal> CommitLoop<J> {
    pub(super) fn new(
        state: QueueState,
        journal: J,
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: &BrokerConfig,
        links: LoopLinks,
    ) -> Self {
        Self {
            applier: Applier {
                state,
                runtime,
                lease_margin_ms: config.lease_margin_ms,
                lag: Duration::ZERO,
            },
            journal,
            client,
            links,
            group_max: config.group_max.max(1),
            waiting: ClaimLine::default(),
            reloaded: false,
            next_due: None,
            parked: LookupTable::default(),
            lookups: FuturesUnordered::new(),
            in_flight: FuturesOrdered::new(),
            tasks_in_flight: 0,
            bytes_in_flight: 0,
            own_messages: Vec::new(),
            confirmed_at: None,
            backoff_until: Duration::ZERO,
            lag: LagMeter::default(),
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
            let wakes_in = self.wakes_in();
            let wakes_at = self.applier.runtime.monotonic() + wakes_in;
            let sleep = self.applier.runtime.sleep(wakes_in);
            let has_room = self.in_flight.len() < self.journal.in_flight_max();
            let takes_submits = self.takes_submits();
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
                Some(result) = self.lookups.next(), if has_room && !self.lookups.is_empty() => {
                    let queued = self.unpark_finished(result);
                    self.commit(queued).await;
                }
                is_open = self.links.inbox.receive(&mut batch, takes_submits), if has_room => {
                    if !is_open {
                        break;
                    }
                    self.record_lag(wakes_at);
                    self.leave_to_others(&batch).await;
                    self.gather(&mut batch).await;
                    let queued = take_until_close(&mut batch, &mut closers);
                    if !closers.is_empty() {
                        // Nobody could work on the tasks.
                        self.waiting.refuse_all(&EngineError::Closed);
                    }
                    self.commit(queued).await;
                }
                () = sleep, if has_room => {
                    self.record_lag(wakes_at);
                    self.commit(Vec::new()).await;
                }
            }
        }
        self.end(end, failure, batch, closers).await;
    }

    /// Waits for the writes in flight, releases tasks whose claimers have gone, and refuses all other messages. If a write failed
    /// (`failure`), the later groups may have read changes that did not become durable, so their outcome is unknown even if their own
    /// writes succeeded.
    async fn end(
        mut self,
        end: EngineError,
        mut failure: Option<EngineError>,
        batch: Vec<QueuedMessage>,
        closers: Vec<Call<(), ()>>,
    ) {
        let rest = self.links.inbox.close();
        self.waiting.refuse_all(failure.as_ref().unwrap_or(&end));
        loop {
            while let Some(mut written) = self.in_flight.next().await {
                if let (Some(error), Ok(_)) = (&failure, &written.result) {
                    written.result = Err(in_doubt(error));
                }
                if let Err(error) = self.finish_group(written) {
                    failure = Some(error);
                }
            }
            let can_write = failure.is_none() && end == EngineError::Closed;
            if self.own_messages.is_empty() || !can_write {
                break;
            }
            self.commit(Vec::new()).await;
        }
        let end = failure.unwrap_or(end);
        // Later callers get this error as soon as the channel is closed.
        let end = self.links.ended.get_or_init(|| end).clone();
        refuse_all(batch, &end);
        refuse_all(rest, &end);
        refuse_all(self.parked.into_messages(), &end);
        self.journal.close().await;
        for mut closer in closers {
            closer.respond(Ok(()));
            closer.deliver();
        }
    }

    /// Whether a group may contain submits.
    fn takes_submits(&self) -> bool {
        self.tasks_in_flight < TASKS_IN_FLIGHT_MAX && self.bytes_in_flight < BYTES_IN_FLIGHT_MAX
    }

    /// Records how much later than planned the loop woke up.
    fn record_lag(&mut self, planned: Duration) {
        let at = self.applier.runtime.monotonic();
        self.lag.record(at, at.saturating_sub(planned));
    }

    /// Waits while it is the turn of other processes to write.
    async fn leave_to_others(&mut self, batch: &[QueuedMessage]) {
        if batch.iter().any(|queued| queued.message.may_write()) {
            let at = self.applier.runtime.monotonic();
            let rest = self.journal.rest(at);
            if !rest.is_zero() {
                self.applier.runtime.sleep(rest).await;
            }
        }
    }

    /// Waits briefly for callers that just got a response to send their next request, so that they share the next write. With no
    /// other caller this costs a microsecond.
    async fn gather(&mut self, batch: &mut Vec<QueuedMessage>) {
        let takes_submits = self.takes_submits();
        for _ in 0..GATHER_TURNS {
            tokio::task::yield_now().await;
            let before = batch.len();
            if before < self.group_max {
                self.links.inbox.fill(batch, takes_submits);
            }
            if batch.len() == before {
                break;
            }
        }
    }

    /// Applies a group and makes it durable. Retries up to [`ATTEMPTS_MAX`] times if other processes write first.
    async fn commit(&mut self, mut queued: Vec<QueuedMessage>) {
        let began = self.applier.runtime.monotonic();
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                let pause = self.journal.pause_after_losses(attempt);
                self.applier.runtime.sleep(pause).await;
            }
            if let Err(error) = self.load().await {
                self.back_off();
                let at = self.applier.runtime.monotonic();
                self.waiting.refuse_overdue(at, &error);
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
                    let at = self.applier.runtime.monotonic();
                    self.confirmed_at = Some(at);
                    // Nothing else was applied meanwhile.
                    self.lag.record(at, at.saturating_sub(began));
                    notification.send();
                    self.payloads_dropped(&changes.removed);
                    return self.deliver(members, None);
                }
                CommitOutcome::InFlight(durable) => {
                    return self.put_in_flight(members, &changes, durable, notification);
                }
                CommitOutcome::Conflict => queued = members,
                CommitOutcome::Failed(error) => {
                    let at = self.applier.runtime.monotonic();
                    self.lag.record(at, at.saturating_sub(began));
                    self.back_off();
                    return refuse_all(members, &error);
                }
            }
        }
        self.back_off();
        let error = EngineError::Overloaded {
            detail: format!(
                "other processes changed it before each of {ATTEMPTS_MAX} attempts to write"
            ),
        };
        refuse_all(queued, &error);
    }

    fn put_in_flight(
        &mut self,
        members: Vec<QueuedMessage>,
        changes: &GroupChanges,
        durable: BoxFuture<Result<Option<NonZeroU64>, EngineError>>,
        notification: GroupNotification,
    ) {
        let (tasks, bytes) = (changes.tasks.len(), changes.input_bytes);
        self.tasks_in_flight += tasks;
        self.bytes_in_flight += bytes;
        self.in_flight.push_back(Box::pin(async move {
            let result = durable.await.inspect(|_| notification.send());
            WrittenGroup {
                members,
                tasks,
                bytes,
                result,
            }
        }));
    }

    /// Lets the payloads of dropped tasks be deleted.
    fn payloads_dropped(&self, removed: &[Task]) {
        for task in removed.iter().filter(|task| has_stored_payloads(task)) {
            // The receiver is gone only if the engine is.
            let _ = self.links.dropped.send(task.id);
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
        changes.commands = self.journal.names_commands().then(Vec::new);
        let mut members = Vec::with_capacity(queued.len());
        let mut confirm = self.is_poll_due();
        let at = self.applier.runtime.monotonic();
        let arrived_before = self.waiting.last_arrival();
        let own_messages = std::mem::take(&mut self.own_messages);
        for mut queued in own_messages.into_iter().chain(queued) {
            if queued.message.is_abandoned() {
                continue;
            }
            if let Some(sent_at) = queued.sent_at.take()
                && queued.message.lane() == Lane::Leases
            {
                self.lag.record(at, at.saturating_sub(sent_at));
            }
            if !queued.is_looked_up {
                let (state, message) = (&self.applier.state, &queued.message);
                if let Some(lookup) = self.journal.lookup_needed(state, message, now) {
                    self.park(lookup, queued);
                    continue;
                }
            }
            if let Message::Claim(call) = queued.message {
                // It takes its turn after the claims that arrived before it.
                self.waiting.add(call);
                continue;
            }
            self.applier
                .apply(&self.journal, &mut queued.message, now, &mut changes);
            confirm = true;
            changes.reads_state = true;
            members.push(queued);
        }
        self.applier.lag = self.lag.lag(at);
        let earliest = self.client.earliest_now();
        self.applier.expire(now, earliest, &mut changes);
        confirm |= self.serve_waiting(now, arrived_before, &mut changes, &mut members);
        changes.submitted.sort_unstable();
        self.outdate_lookups(&changes);
        if !changes.is_empty() {
            let state = &mut self.applier.state;
            self.journal.retire(state, &mut changes, now);
        }
        (members, changes, confirm)
    }

    /// Marks the lookups that are about changed tasks.
    fn outdate_lookups(&mut self, changes: &GroupChanges) {
        for id in &changes.tasks {
            if let Some(task) = self.applier.state.task(*id) {
                self.parked.task_changed(task);
            }
        }
        for task in &changes.removed {
            self.parked.task_changed(task);
        }
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
            if !self.applier.lag.is_zero() {
                // Leases may be ended earlier once the delay is forgotten.
                wakes_in = wakes_in.min(self.lag.window_end().saturating_sub(at));
            }
        }
        if let Some(due) = self.next_due {
            wakes_in = wakes_in.min(due.since(now));
        }
        if let Some(deadline) = self.waiting.first_deadline() {
            wakes_in = wakes_in.min(deadline.saturating_sub(at));
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
