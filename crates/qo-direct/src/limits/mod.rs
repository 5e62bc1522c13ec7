//! Limits: how many tasks run at once, and how many start within a time window ([`qo_core::limit`]).
//!
//! Each limit has one record, changed by compare-and-swap: the attempts that hold its slots, and its recent starts. A claim takes a slot before
//! it swaps the task, and the process that ends the attempt returns the slot after the swap. So the record never has fewer holders than there
//! are running attempts.
//!
//! # Steps of a claim
//!
//! | step | what | a crash right after it leaves | repaired by |
//! | --- | --- | --- | --- |
//! | 1 | read the task, and take a slot of each of its limits, in the order of their names | a holder whose attempt never started | a claimer that finds no room, after the time of the lease |
//! | 2 | write the lease entry and swap the task: **the attempt has started** | a running attempt, as without limits | the lease reaper |
//!
//! The attempt starts at the time of step 1, in the records of the limits and of the task: all limits that count starts then count the same time,
//! however long the responses take. If they take half a lease, the claim gives up.
//!
//! If a limit has no room, or the swap is refused, the slots that were taken are returned. After a refusal the task is read first, because the
//! refusal may be the response to a second copy of a swap that was applied.
//!
//! # Steps of the end of an attempt
//!
//! | step | what | a crash right after it leaves | repaired by |
//! | --- | --- | --- | --- |
//! | 1 | swap the task: **the attempt has ended** | a holder whose attempt has ended | a claimer that finds no room, after the time of the lease |
//! | 2 | return the slots | nothing | |
//!
//! # Repair
//!
//! A claimer that finds a limit full reads the tasks of the holders whose time has passed. An attempt that runs longer than its first
//! lease gets more time. A holder is dropped only if the task proves that it is gone: the task does not exist, or has another revision than the one
//! that the claimer was about to swap, and does not run with the holder's lease. If the task still has that revision, the claimer may have been
//! suspended just before its swap. The task then gets a new revision first ([`Action::Fence`](qo_core::Action::Fence)), which makes that swap fail.
//! So no clock and no pause lets a limit be exceeded. While nobody needs a slot, nothing is repaired.
//!
//! # Waiting
//!
//! Each process remembers which limits are **full**. Ready entries contain the limit key of their task, so a page of the index shows which
//! tasks wait for a full limit; they are skipped without a request. A limit counts as full until a slot is returned in the same process, the
//! limits change, or a check of the record, every 1.5 s, finds room. Then the index is listed again.
//!
//! # Requests
//!
//! | operation | more than without a limit |
//! | --- | --- |
//! | claim | 1 PUT of the record, and 1 GET if another process has changed it since |
//! | end of an attempt | 1 PUT, and 1 GET if another process has changed it since; nothing if only starts are limited |
//! | full limit | 1 GET per process every 1.5 s; 1 GET per holder whose lease has passed |
//! | tasks without a limit | nothing: the limits are cached, and listed again when the signal announces a change |
//!
//! Claims and ends of one process share their writes ([`writer`]). Processes contend for the record: one write succeeds at a
//! time, and the others read it and try again.

mod full;
mod record;
mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use qo_core::keys::IndexEntry;
use qo_core::limit::{LimitUsage, LimitWait};
use qo_core::{
    DocumentKind, DocumentName, Json, LeaseId, Limit, LimitRules, Status, Task, Timestamp,
};
use qo_engine::EngineError;
use qo_store::StoreError;

use self::full::FullLimits;
use self::record::{Holder, HolderState, SlotChange, SlotOutcome};
use self::writer::LimitWriters;
use super::documents::ParsedDocuments;
use super::{CLAIM_CACHE_MAX, DirectEngine, StoredTask, lock};

/// How old the signal may be that shows whether the limits have changed. A busy worker does not poll it otherwise.
const SIGNAL_AGE_MAX: Duration = Duration::from_secs(3);

/// The limits as this process knows them.
#[derive(Default)]
pub(super) struct Limits {
    known: Mutex<KnownRules>,
    writers: LimitWriters,
    full: FullLimits,
    /// The slots that attempts of this process hold.
    held: Mutex<BTreeMap<LeaseId, Vec<DocumentName>>>,
}

#[derive(Default)]
struct KnownRules {
    /// When the signal was last asked for.
    asked_at: Option<Duration>,
    limits: ParsedDocuments<LimitRules>,
}

/// The slots of a claim.
pub(super) enum Slots {
    /// It has a slot of each of these limits.
    Taken(Vec<DocumentName>),
    /// A limit has no room.
    Full,
}

impl DirectEngine {
    /// The limits. They are read again after a signal that documents have changed, so a change takes effect within a few seconds.
    pub(super) async fn limit_rules(&self) -> Result<Arc<LimitRules>, EngineError> {
        self.poll_old_signal();
        let documents = self.cached_documents(DocumentKind::Limits).await?;
        let parse = |body: &Json| {
            Limit::read(body).and_then(|limit| {
                limit.validate()?;
                Ok(limit)
            })
        };
        let rules = {
            let mut known = lock(&self.shared.limits.known);
            let has_changed = known.limits.update(documents, parse);
            let rules = Arc::clone(&known.limits.rules);
            if !has_changed {
                return Ok(rules);
            }
            rules
        };
        let limits = &self.shared.limits;
        limits.writers.retain(|name| rules.get(name).is_some());
        limits.full.clear();
        self.relist_skipped();
        Ok(rules)
    }

    /// Reads the signal if nobody has done so for a while.
    fn poll_old_signal(&self) {
        let now = self.runtime().monotonic();
        let signal = &self.shared.signal;
        let is_old = {
            let mut known = lock(&self.shared.limits.known);
            // A process that has just started is about to list the limits.
            let asked_at = *known.asked_at.get_or_insert(now);
            let is_old = signal.polled_at().max(Some(asked_at)) <= now.checked_sub(SIGNAL_AGE_MAX);
            if is_old {
                known.asked_at = Some(now);
            }
            is_old
        };
        if is_old {
            signal.poll_in_background();
        }
    }

    /// Takes the slots that a claim needs, for an attempt that starts at `at`. `stored` is the pending task as it was read.
    pub(super) async fn take_slots(
        &self,
        stored: &StoredTask,
        lease: LeaseId,
        lease_ms: u64,
        at: Timestamp,
    ) -> Result<Slots, EngineError> {
        let rules = self.limit_rules().await?;
        let names = rules.applying_to(&stored.task);
        if names.is_empty() {
            return Ok(Slots::Taken(names));
        }
        if names
            .iter()
            .any(|name| self.shared.limits.full.contains(name))
        {
            return Ok(Slots::Full);
        }
        let holder = Holder {
            task: stored.task.id,
            lease,
            revision: stored.task.revision,
            until: at.plus_millis(lease_ms),
        };
        for (number, name) in names.iter().enumerate() {
            let Some(rule) = rules.get(name) else {
                continue;
            };
            let change = SlotChange::Take(holder, at);
            let taken = self.change_slots(name, rule, change).await;
            if matches!(taken, Ok(SlotOutcome::Done)) {
                continue;
            }
            self.return_each(&rules, &names[..number], SlotChange::TakeBack(lease, at))
                .await;
            let SlotOutcome::Full(wait) = taken? else {
                continue;
            };
            self.mark_full(name, &wait);
            return Ok(Slots::Full);
        }
        Ok(Slots::Taken(names))
    }

    /// Remembers the slots of an attempt that has started.
    pub(super) fn hold_slots(&self, lease: LeaseId, names: Vec<DocumentName>) {
        let mut held = lock(&self.shared.limits.held);
        // Without the entry, the slots follow from the limits.
        if !names.is_empty() && held.len() < CLAIM_CACHE_MAX {
            held.insert(lease, names);
        }
    }

    /// Returns the slots of a claim that did not succeed, and that would have started at `at`. If its swap was sent and refused, the task must
    /// prove that it did not succeed.
    pub(super) async fn take_back_slots(
        &self,
        read: &StoredTask,
        lease: LeaseId,
        at: Timestamp,
        names: &[DocumentName],
        was_sent: bool,
    ) {
        let holder = Holder {
            task: read.task.id,
            lease,
            revision: read.task.revision,
            until: Timestamp::MIN,
        };
        let is_gone = !was_sent
            || match self.read(read.task.id).await {
                Ok(found) => holder.compare(&found.task) == HolderState::Gone,
                Err(error) => error.is_not_found(),
            };
        if is_gone && let Ok(rules) = self.limit_rules().await {
            self.return_each(&rules, names, SlotChange::TakeBack(lease, at))
                .await;
        }
    }

    /// Returns the slots of an attempt that has ended. A failure is only logged: a claimer that needs a slot finds out.
    pub(super) async fn return_slots(&self, before: &Task, after: &Task) {
        let Some(lease) = before.lease_id.filter(|_| after.status != Status::Running) else {
            return;
        };
        let held = lock(&self.shared.limits.held).remove(&lease);
        let rules = match self.limit_rules().await {
            Ok(rules) => rules,
            Err(error) => {
                tracing::debug!(task = %after.id, %error, "cannot tell which limits apply to a task that has ended");
                return;
            }
        };
        let names = held.unwrap_or_else(|| rules.applying_to(before));
        self.return_each(&rules, &names, SlotChange::Return(lease))
            .await;
    }

    async fn return_each(&self, rules: &LimitRules, names: &[DocumentName], change: SlotChange) {
        for name in names {
            let Some(rule) = rules.get(name).filter(|rule| rule.concurrent.is_some()) else {
                continue;
            };
            match self.change_slots(name, rule, change).await {
                Ok(_) => {
                    if self.shared.limits.full.remove(name) {
                        self.relist_skipped();
                        self.shared.signal.wake();
                    }
                }
                Err(error) => {
                    tracing::warn!(limit = %name, %error, "a slot was not returned; the next claim that needs it will free it");
                }
            }
        }
    }

    fn mark_full(&self, name: &DocumentName, wait: &LimitWait) {
        let interval = self.config().signal_interval;
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let check_at = self.client().now().plus_millis(interval_ms.max(1));
        let check_at = wait.until.map_or(check_at, |until| until.max(check_at));
        self.shared.limits.full.insert(name, check_at);
    }

    /// Checks whether full limits have room again.
    pub(super) async fn recheck_full_limits(&self) -> Result<(), EngineError> {
        let full = &self.shared.limits.full;
        if full.is_empty() {
            return Ok(());
        }
        let rules = self.limit_rules().await?;
        let mut any_has_room = false;
        for name in full.due(self.client().now()) {
            let outcome = match rules.get(&name) {
                Some(rule) => self.change_slots(&name, rule, SlotChange::Check).await?,
                None => SlotOutcome::Done,
            };
            match outcome {
                SlotOutcome::Done => any_has_room |= full.remove(&name),
                SlotOutcome::Full(wait) => self.mark_full(&name, &wait),
            }
        }
        if any_has_room {
            self.relist_skipped();
        }
        Ok(())
    }

    /// When to check the next full limit.
    pub(super) fn next_limit_check(&self) -> Option<Timestamp> {
        self.shared.limits.full.next()
    }

    /// Whether a ready task waits for a full limit.
    pub(super) fn waits_for_limit(&self, entry: &IndexEntry) -> bool {
        let full = &self.shared.limits.full;
        if full.is_empty() {
            return false;
        }
        let rules = Arc::clone(&lock(&self.shared.limits.known).limits.rules);
        let names = rules.applying(&entry.queue, &entry.task_type, entry.limit_key.as_ref());
        names.iter().any(|name| full.contains(name))
    }

    /// Whether any limit is full.
    pub(super) fn any_limit_full(&self) -> bool {
        !self.shared.limits.full.is_empty()
    }

    /// What is used of these limits: one GET for each, some at a time.
    pub(super) async fn read_limit_usage(
        &self,
        limits: &[(DocumentName, Limit)],
    ) -> Result<BTreeMap<DocumentName, LimitUsage>, EngineError> {
        let reads = futures_util::stream::iter(limits.to_vec())
            .map(|(name, rule)| async move {
                match self.limit_record(&name).await {
                    Ok(record) => Ok(Some((name, record.usage(&rule, self.client().now())))),
                    // One damaged record must not hide the others.
                    Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                        tracing::warn!(limit = %name, %error, "cannot read the usage of a limit");
                        Ok(None)
                    }
                    Err(error) => Err(error),
                }
            })
            .buffer_unordered(self.config().concurrency);
        reads
            .try_filter_map(|read| std::future::ready(Ok(read)))
            .try_collect()
            .await
    }

    /// The limit that keeps a due task from starting, if there is one.
    pub(super) async fn find_limit_wait(
        &self,
        task: &Task,
    ) -> Result<Option<LimitWait>, EngineError> {
        let now = self.client().now();
        if task.status != Status::Pending || task.available_at > now {
            return Ok(None);
        }
        let rules = self.limit_rules().await?;
        for name in rules.applying_to(task) {
            if let Some(rule) = rules.get(&name)
                && let Some(wait) = self.limit_record(&name).await?.wait(rule, now)
            {
                return Ok(Some(wait));
            }
        }
        Ok(None)
    }
}
