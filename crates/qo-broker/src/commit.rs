//! The one loop that changes the state.
//!
//! ```text
//! callers ──► bounded channel ──► group ──► applied in order ──► one write ──► every caller gets its own answer
//!                                   ▲                               │
//!             the next group forms ─┘◄──────── meanwhile ───────────┘
//! ```
//!
//! Why it is right:
//! - Everything that reads or changes the state goes through this loop, in one order, so that there is nothing to lock.
//! - No caller is answered before the write that holds its change is durable, and no read before everything that it saw is.
//! - A wish that the rules refuse changes nothing, and its refusal goes to its caller alone.
//! - A caller that goes away before its wish is taken in leaves nothing. Afterwards the wish is carried out whole; what a
//!   claim handed out to a caller that has gone is released at once, and not counted.
//! - A group whose write was lost to somebody else is applied again, from the callers' wishes, to what is stored now.
//! - Leases are ended by the earliest that the store's time can be, which no local clock that is set can move.
//! - A group whose write failed is told so, and the state is loaded anew before the next one: nothing that is in doubt is
//!   ever built upon.

mod landing;
mod lookup;

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

use self::landing::{in_doubt, refuse_all, take_until_close};
use super::apply::{Applied, Space};
use super::config::BrokerConfig;
use super::journal::{Committed, Found, GroupChanges, Journal, Want};
use super::message::{Call, ClaimCall, Message, QueuedMessage};
use super::notify::Told;

/// How often a group is tried against others who keep writing.
const ROUNDS_MAX: u32 = 60;
/// The longest pause between two such tries.
const PAUSE_MAX_MS: u64 = 200;
/// How often callers that were just answered get a chance to come back before a group is closed.
const GATHER_TURNS: usize = 3;
/// How long the loop rests after a write failed, before it tries something of its own accord.
const REST: Duration = Duration::from_secs(1);
/// The longest that the loop sleeps: clocks may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_mins(1);

/// A group whose write is on its way, and the result of that write.
type Landed = (Vec<QueuedMessage>, Result<(), EngineError>);

/// The loop.
pub(super) struct CommitLoop<J> {
    space: Space,
    journal: J,
    client: StoreClient,
    messages: mpsc::Receiver<QueuedMessage>,
    group_max: usize,
    /// Claims that wait for work, the oldest first.
    waiting: VecDeque<ClaimCall>,
    /// Whether there may be something for them.
    disturbed: bool,
    /// When there may next be, although nothing is submitted.
    next_due: Option<Timestamp>,
    /// What waits for something to be looked up.
    parked: BTreeMap<Want, Vec<QueuedMessage>>,
    fetches: FuturesUnordered<BoxFuture<(Want, Result<Found, EngineError>)>>,
    /// Groups whose writes are on their way, in order.
    in_flight: FuturesOrdered<BoxFuture<Landed>>,
    /// Messages of the loop itself.
    own: Vec<QueuedMessage>,
    /// When the state was last known to be the newest there is.
    confirmed_at: Option<Duration>,
    /// Before which nothing is done of the loop's own accord.
    rests_until: Duration,
    /// Why the loop has ended, for those who come too late.
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
            space: Space {
                state,
                runtime,
                lease_margin_ms: config.lease_margin_ms,
            },
            journal,
            client,
            messages,
            group_max: config.group_max.max(1),
            waiting: VecDeque::new(),
            disturbed: false,
            next_due: None,
            parked: BTreeMap::new(),
            fetches: FuturesUnordered::new(),
            in_flight: FuturesOrdered::new(),
            own: Vec::new(),
            confirmed_at: None,
            rests_until: Duration::ZERO,
            ended,
            watchers: Watchers::default(),
        }
    }

    /// Those who are told of what becomes durable.
    pub(super) fn watchers(&self) -> Watchers {
        self.watchers.clone()
    }

    /// Runs until the engine is closed, all of its handles are gone, or the journal is over.
    pub(super) async fn run(mut self) {
        let mut over = self.journal.over();
        let mut closers = Vec::new();
        let mut batch = Vec::new();
        let mut end = EngineError::Closed;
        let mut broken = None;
        while closers.is_empty() {
            let sleep = self.space.runtime.sleep(self.wakes_in());
            let has_room = self.in_flight.len() < self.journal.in_flight_max();
            tokio::select! {
                biased;
                Some(landed) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    if let Err(error) = self.land(landed) {
                        broken = Some(error);
                        break;
                    }
                }
                error = &mut over => {
                    end = error;
                    break;
                }
                Some((want, found)) = self.fetches.next(), if has_room && !self.fetches.is_empty() => {
                    let entries = self.unpark_landed(&want, found);
                    self.commit(entries).await;
                }
                count = self.messages.recv_many(&mut batch, self.group_max), if has_room => {
                    if count == 0 {
                        break;
                    }
                    self.gather(&mut batch).await;
                    let entries = take_until_close(&mut batch, &mut closers);
                    self.commit(entries).await;
                }
                () = sleep, if has_room => self.commit(Vec::new()).await,
            }
        }
        self.end(end, broken, batch, closers).await;
    }

    /// Ends: what is on its way is awaited, everybody else is told that it is over. Whatever comes behind a group that is `broken`
    /// may have seen what that one was to make durable, so that nobody can tell what it is worth, however it fared itself.
    async fn end(
        mut self,
        end: EngineError,
        mut broken: Option<EngineError>,
        batch: Vec<QueuedMessage>,
        closers: Vec<Call<(), ()>>,
    ) {
        self.messages.close();
        while let Some((members, result)) = self.in_flight.next().await {
            let result = match (&broken, result) {
                (Some(error), Ok(())) => Err(in_doubt(error)),
                (_, result) => result,
            };
            if let Err(error) = self.land((members, result)) {
                broken = Some(error);
            }
        }
        let end = broken.unwrap_or(end);
        // Those who come too late find this as soon as the channel is closed.
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

    /// Lets callers that were just answered come back, so that they share the next write. Alone, it costs a microsecond.
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

    /// Applies a group and makes it durable, however often others come first, within bounds.
    async fn commit(&mut self, mut queued: Vec<QueuedMessage>) {
        for round in 0..ROUNDS_MAX {
            if round > 0 {
                let bound_ms = (4 << round.min(10)).min(PAUSE_MAX_MS);
                let pause_ms = self.space.runtime.random_below(bound_ms);
                let pause = Duration::from_millis(pause_ms);
                self.space.runtime.sleep(pause).await;
            }
            if let Err(error) = self.load().await {
                self.rest();
                self.refuse_overdue(&error);
                return refuse_all(queued, &error);
            }
            let now = self.client.now();
            let (members, mut changes, confirm) = self.form(std::mem::take(&mut queued), now);
            if changes.is_empty() && !confirm {
                return;
            }
            let runtime = &self.space.runtime;
            let told = Told::begin(&self.watchers, runtime, members.len(), &mut changes);
            let state = &mut self.space.state;
            match self.journal.commit(state, &changes, now).await {
                Committed::Done => {
                    self.confirmed_at = Some(self.space.runtime.monotonic());
                    told.land();
                    return self.deliver(members);
                }
                Committed::Later(durable) => {
                    let landing = async move { (members, durable.await.inspect(|()| told.land())) };
                    self.in_flight.push_back(Box::pin(landing));
                    return;
                }
                Committed::Lost => queued = members,
                Committed::Failed(error) => {
                    self.rest();
                    return refuse_all(members, &error);
                }
            }
        }
        self.rest();
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

    /// Loads what must be loaded.
    async fn load(&mut self) -> Result<(), EngineError> {
        if self.journal.must_load() {
            self.journal.load(&mut self.space.state).await?;
            self.disturbed = true;
        }
        Ok(())
    }

    /// Applies wishes in order, ends what has expired, and serves the claims that wait. Also says whether it must be made sure
    /// that all of this was seen in the newest state there is.
    fn form(
        &mut self,
        queued: Vec<QueuedMessage>,
        now: Timestamp,
    ) -> (Vec<QueuedMessage>, GroupChanges, bool) {
        let mut changes = GroupChanges::for_watchers(&self.watchers);
        let mut members = Vec::with_capacity(queued.len());
        let mut confirm = self.is_poll_due();
        let own = std::mem::take(&mut self.own);
        for mut queued in own.into_iter().chain(queued) {
            if queued.message.is_abandoned() {
                continue;
            }
            if let Some(want) = self.journal.want(&self.space.state, &queued) {
                self.park(want, queued);
                continue;
            }
            let message = &mut queued.message;
            let applied = self.space.apply(&self.journal, message, now, &mut changes);
            match (applied, queued.message) {
                (Applied::Waits, Message::Claim(call)) => {
                    // Another process may have submitted a task for it.
                    confirm |= self.journal.poll().is_some();
                    self.waiting.push_back(call);
                }
                (applied, message) => {
                    confirm = true;
                    changes.reads |= applied == Applied::Responded;
                    let absent = queued.absent;
                    members.push(QueuedMessage { message, absent });
                }
            }
        }
        let earliest = self.client.earliest_now();
        self.space.expire(now, earliest, &mut changes);
        let served = members.len();
        self.serve_waiting(now, &mut changes, &mut members);
        confirm |= members.len() > served;
        changes.submitted.sort_unstable();
        if !changes.is_empty() {
            let state = &mut self.space.state;
            self.journal.retire(state, &mut changes, now);
        }
        (members, changes, confirm)
    }

    /// Gives waiting claims what there is now, and tells those whose time is over that there is nothing.
    fn serve_waiting(
        &mut self,
        now: Timestamp,
        changes: &mut GroupChanges,
        members: &mut Vec<QueuedMessage>,
    ) {
        let is_due = self.next_due.is_some_and(|due| due <= now);
        let may_serve = self.disturbed || changes.woke || is_due;
        self.disturbed = false;
        let at = self.space.runtime.monotonic();
        let mut still_waiting = VecDeque::with_capacity(self.waiting.len());
        for mut call in std::mem::take(&mut self.waiting) {
            if call.is_abandoned() {
                continue;
            }
            let claimed = if may_serve {
                self.space.claim(&call.request, now, changes)
            } else {
                Ok(Vec::new())
            };
            let is_empty = claimed.as_ref().is_ok_and(Vec::is_empty);
            if is_empty && call.request.until > at {
                still_waiting.push_back(call);
                continue;
            }
            call.respond(if is_empty {
                self.space.nothing_for(&call.request)
            } else {
                claimed
            });
            members.push(Message::Claim(call).into());
        }
        self.waiting = still_waiting;
        self.next_due = if self.waiting.is_empty() {
            None
        } else {
            self.space.state.next_due(now)
        };
    }

    fn rest(&mut self) {
        self.rests_until = self.space.runtime.monotonic() + REST;
    }

    /// How often to look whether others have changed what is stored, as things are.
    fn poll_interval(&self) -> Option<Duration> {
        let poll = self.journal.poll()?;
        Some(if self.waiting.is_empty() {
            poll.idle
        } else {
            poll.waiting
        })
    }

    fn is_poll_due(&self) -> bool {
        let at = self.space.runtime.monotonic();
        self.poll_interval().is_some_and(|interval| {
            self.confirmed_at
                .is_none_or(|confirmed| at >= confirmed + interval)
        })
    }

    /// How long until there is something to do that nobody asks for.
    fn wakes_in(&self) -> Duration {
        let at = self.space.runtime.monotonic();
        let now = self.client.now();
        let mut wakes_in = SLEEP_MAX;
        if let Some(interval) = self.poll_interval() {
            let confirmed = self.confirmed_at.unwrap_or_default();
            wakes_in = wakes_in.min((confirmed + interval).saturating_sub(at));
        }
        let earliest = self.client.earliest_now();
        if let Some(expires_in) = self.space.expires_in(now, earliest) {
            wakes_in = wakes_in.min(expires_in);
        }
        if let Some(due) = self.next_due {
            wakes_in = wakes_in.min(due.since(now));
        }
        for call in &self.waiting {
            wakes_in = wakes_in.min(call.request.until.saturating_sub(at));
        }
        if self.disturbed && !self.waiting.is_empty() || !self.own.is_empty() {
            wakes_in = Duration::ZERO;
        }
        // Time is told in milliseconds, and what falls due within this one must not keep the loop busy until it is over.
        wakes_in
            .max(Duration::from_millis(1))
            .max(self.rests_until.saturating_sub(at))
    }
}
