//! Promotes scheduled tasks to the ready index when they become due.
//!
//! Their entries are under `later/`, ordered by due time, so one LIST from the front returns all due entries and the next due time.
//! Promotion writes the ready entry first and then deletes the later entry. A crash between the two leaves one entry too many,
//! never one too few. Any number of processes may promote concurrently.
//!
//! So that they rarely do, the live workers share the duty by rank:
//!
//! | process | lists `later/` | promotes a task |
//! | --- | --- | --- |
//! | the first worker | after a signal of new scheduled tasks, and at the fallback interval | when it is due |
//! | the second | the same | 2 s later: the first is gone or stuck |
//! | the third and fourth, in a fleet of up to four | at five times the fallback interval | 4 and 6 s later if it wrote the later entry itself, otherwise 10 s later |
//! | any other, and a process without a worker | at five times the fallback interval | 10 s later |
//! | any process, if there are no live workers | as the first | when it is due |
//!
//! A process remembers the entries of the last page and its own new ones, and promotes them without another LIST. Whoever comes second
//! reads the later entry first: if it is gone, the task was promoted. If a remembered task has changed in the meantime, its ready entry is
//! stale, and the claim that finds it deletes it. In a fleet of up to four, the worker that ends the attempt of a dead one also promotes its
//! retry if need be: the first two workers may be the dead ones.
//!
//! One call lists one page. Entries that cannot be parsed are skipped: if a page has nothing else, the next call continues behind it.
//!
//! A claim waits for a promotion only briefly, and never fails with it: other tasks may be ready. The promotion then goes on in the background.
//! Entries are taken out of memory while they are promoted. If the promotion fails or is dropped, [`TakenEntries`] puts them back, those included
//! whose ready entries are written already: they are announced only at the end, and another PUT of a ready entry does no harm.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{IndexEntry, Key, LATER_PREFIX};
use qo_core::{TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::runtime::BoxFuture;

use super::assignment::Rank;
use super::peers::Standing;
use super::signal_record::{LATER, ready_topic};
use super::{DirectEngine, lock};

/// How long after its due time the second worker promotes a task, and all others do. In a small fleet each rank waits as long for the one
/// before.
const SECOND_DELAY_MS: u64 = 2_000;
const OTHERS_DELAY_MS: u64 = 10_000;
/// The maximum number of remembered entries.
const KNOWN_MAX: usize = 2_000;
/// How much less often the others list.
const OTHERS_INTERVALS: u32 = 5;
/// How long a claim waits for the promotion that it has begun.
const CLAIM_PATIENCE: Duration = Duration::from_secs(1);
/// How long after a failed promotion claims try again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Scheduled {
    schedule: Mutex<Schedule>,
    /// Locked during a promotion.
    promoting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Schedule {
    /// The known entries, in the order of their due times.
    known: BTreeMap<(Timestamp, TaskId), IndexEntry>,
    /// The entries that become due from this time on are not all known.
    unknown_from: Option<Timestamp>,
    /// When the entries were last listed, and at which epoch of their topic.
    listed: Option<(Duration, u64)>,
    /// Where the next LIST begins: the last page could not be parsed.
    after: Option<String>,
    /// The last promotion failed, and claims try again from this time on.
    retry_at: Option<Duration>,
}

impl Schedule {
    fn remember(&mut self, entry: IndexEntry) {
        self.known.insert((entry.available_at, entry.id), entry);
        while self.known.len() > KNOWN_MAX
            && let Some(((due, _), _)) = self.known.pop_last()
        {
            self.unknown_from = Some(self.unknown_from.map_or(due, |from| from.min(due)));
        }
    }

    /// When the first known entry is due, or the first unknown one may be.
    fn next_due(&self) -> Option<Timestamp> {
        let first = self.known.keys().next().map(|(due, _)| *due);
        [first, self.unknown_from].into_iter().flatten().min()
    }

    /// Takes out the entries that are due.
    fn take_due(&mut self, due_before: Timestamp) -> BTreeMap<(Timestamp, TaskId), IndexEntry> {
        let later = self.known.split_off(&first_after(due_before));
        std::mem::replace(&mut self.known, later)
    }

    fn has_due(&self, due_before: Timestamp) -> bool {
        let first = self.known.keys().next();
        first.is_some_and(|first| *first < first_after(due_before))
    }
}

/// The lowest key of an entry that is due later.
fn first_after(due_before: Timestamp) -> (Timestamp, TaskId) {
    (due_before.plus_millis(1), TaskId::from_bytes([0; 16]))
}

/// Entries that are taken out of the schedule. Unless they are settled, they are put back, even if the future that has them is dropped.
struct TakenEntries<'a> {
    schedule: &'a Mutex<Schedule>,
    entries: BTreeMap<(Timestamp, TaskId), IndexEntry>,
}

impl TakenEntries<'_> {
    fn settle(&mut self, entry: &IndexEntry) {
        self.entries.remove(&(entry.available_at, entry.id));
    }
}

impl Drop for TakenEntries<'_> {
    fn drop(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        if entries.is_empty() {
            return;
        }
        let mut schedule = lock(self.schedule);
        for entry in entries.into_values() {
            schedule.remember(entry);
        }
    }
}

/// The part of a process in the promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Duty {
    delay_ms: u64,
    /// Whether it lists after a signal and when a task becomes due.
    watches: bool,
    /// Whether it promotes the tasks whose entries it has written, if nobody else does.
    promotes_own: bool,
}

impl Duty {
    fn of(standing: Standing) -> Self {
        let (delay_ms, watches, promotes_own) = match standing {
            Standing::Alone | Standing::Ranked(Rank { rank: 0, .. }) => (0, true, true),
            Standing::Ranked(Rank { rank: 1, .. }) => (SECOND_DELAY_MS, true, true),
            Standing::Ranked(rank) if rank.is_of_few() => {
                (SECOND_DELAY_MS * rank.rank, false, true)
            }
            Standing::Ranked(_) | Standing::Outside => (OTHERS_DELAY_MS, false, false),
        };
        Self {
            delay_ms,
            watches,
            promotes_own,
        }
    }
}

impl Scheduled {
    /// Remembers an entry that this process has written.
    pub(super) fn remember(&self, entry: IndexEntry) {
        lock(&self.schedule).remember(entry);
    }
}

impl DirectEngine {
    /// When this process should promote the first of the known entries.
    pub(super) fn next_promotion(&self) -> Option<Timestamp> {
        let duty = Duty::of(self.standing());
        let (next_due, retry_at) = {
            let schedule = lock(&self.shared.scheduled.schedule);
            (schedule.next_due(), schedule.retry_at)
        };
        let due = next_due
            .filter(|_| duty.watches)?
            .plus_millis(duty.delay_ms);
        let pause = retry_at.map(|at| at.saturating_sub(self.runtime().monotonic()));
        let retry = pause.map(|pause| {
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            self.client().now().plus_millis(pause_ms)
        });
        Some(retry.map_or(due, |retry| due.max(retry)))
    }

    /// Whether this process has to watch the scheduled tasks as one of the first workers.
    pub(super) fn watches_scheduled(&self) -> bool {
        matches!(self.standing(), Standing::Ranked(rank) if rank.rank < 2)
    }

    /// Promotes due tasks for a claim. What takes long goes on in the background, because other tasks may be ready. A claim that goes on
    /// waiting is woken by what was promoted.
    pub(super) async fn promote_for_claim(&self) {
        if !self.has_promotions() {
            return;
        }
        let engine = self.clone();
        let mut promotion: BoxFuture<()> = Box::pin(async move {
            if let Err(error) = engine.promote_due().await {
                tracing::warn!(%error, "could not promote the scheduled tasks that are due");
            }
        });
        tokio::select! {
            biased;
            () = &mut promotion => return,
            () = self.runtime().sleep(CLAIM_PATIENCE) => {}
        }
        self.shared.runtime.spawn(promotion);
    }

    /// Whether a promotion has anything to do now, and none is under way.
    fn has_promotions(&self) -> bool {
        let scheduled = &self.shared.scheduled;
        if scheduled.promoting.try_lock().is_err() {
            return false;
        }
        let duty = Duty::of(self.standing());
        let lists = self.should_list_scheduled(duty);
        let due_before = self.client().now().minus_millis(duty.delay_ms);
        let schedule = lock(&scheduled.schedule);
        let is_too_soon = (schedule.retry_at).is_some_and(|at| self.runtime().monotonic() < at);
        !is_too_soon && (lists || (duty.promotes_own && schedule.has_due(due_before)))
    }

    /// Promotes due tasks to the ready index, if there may be any and it is up to this process. Lists at most one page.
    pub(super) async fn promote_due(&self) -> Result<(), EngineError> {
        let scheduled = &self.shared.scheduled;
        let Ok(_promoting) = scheduled.promoting.try_lock() else {
            return Ok(());
        };
        let result = self.promote_alone().await;
        let retry_at = (result.is_err()).then(|| self.runtime().monotonic() + RETRY_PAUSE);
        lock(&scheduled.schedule).retry_at = retry_at;
        result
    }

    /// Promotes due tasks. The caller has locked the promotion.
    async fn promote_alone(&self) -> Result<(), EngineError> {
        let scheduled = &self.shared.scheduled;
        let standing = self.standing();
        let duty = Duty::of(standing);
        if self.should_list_scheduled(duty) {
            self.list_scheduled(duty).await?;
        } else if !duty.promotes_own {
            return Ok(());
        }
        let due_before = self.client().now().minus_millis(duty.delay_ms);
        let mut taken = TakenEntries {
            schedule: &scheduled.schedule,
            entries: lock(&scheduled.schedule).take_due(due_before),
        };
        if taken.entries.is_empty() {
            return Ok(());
        }
        let due: Vec<IndexEntry> = taken.entries.values().cloned().collect();
        let results: Vec<_> = futures_util::stream::iter(due)
            .map(|entry| async move {
                let result = self.promote(&entry, duty.delay_ms > 0).await;
                (entry, result)
            })
            .buffer_unordered(self.config().concurrency)
            .collect()
            .await;
        let mut failure = None;
        let mut promoted: BTreeMap<String, u64> = BTreeMap::new();
        let mut stale = Vec::new();
        for (entry, result) in results {
            match result {
                Ok(true) => {
                    taken.settle(&entry);
                    let topic = ready_topic(&entry.queue, &entry.task_type);
                    *promoted.entry(topic).or_default() += 1;
                    stale.push(Key::Later(entry));
                }
                Ok(false) => taken.settle(&entry),
                Err(error) => failure = Some(error),
            }
        }
        if duty.delay_ms > 0 && !stale.is_empty() {
            tracing::info!(
                count = stale.len(),
                "promoted scheduled tasks that the first worker has not"
            );
            self.expect_new_peers();
        }
        let has_peers = matches!(standing, Standing::Ranked(rank) if rank.count > 1);
        for (topic, count) in promoted {
            if has_peers {
                // The tasks are spread over all workers, and this process has one of them.
                self.shared.signal.touch_shared(&topic, count);
            } else {
                self.shared.signal.touch(&topic, count);
            }
        }
        self.shared.index_gc.enqueue(stale);
        failure.map_or(Ok(()), Err)
    }

    fn should_list_scheduled(&self, duty: Duty) -> bool {
        let epoch = self.shared.signal.epoch_of(LATER);
        let due_before = self.client().now().minus_millis(duty.delay_ms);
        let schedule = lock(&self.shared.scheduled.schedule);
        let intervals = if duty.watches { 1 } else { OTHERS_INTERVALS };
        let interval = self.config().fallback_interval * intervals;
        schedule.listed.is_none_or(|(at, listed_epoch)| {
            let is_old = self.runtime().monotonic() >= at + interval;
            let is_unknown = schedule.unknown_from.is_some_and(|from| from <= due_before);
            is_old || (duty.watches && (is_unknown || listed_epoch != epoch))
        })
    }

    /// Lists one page of scheduled tasks, and remembers its entries. A process that does not watch remembers only those that it promotes now,
    /// and its own.
    async fn list_scheduled(&self, duty: Duty) -> Result<(), EngineError> {
        let scheduled = &self.shared.scheduled;
        let epoch = self.shared.signal.epoch_of(LATER);
        let at = self.runtime().monotonic();
        // Entries that are remembered from now on may be missing in the page.
        let (known, after) = {
            let mut schedule = lock(&scheduled.schedule);
            (std::mem::take(&mut schedule.known), schedule.after.take())
        };
        let mut taken = TakenEntries {
            schedule: &scheduled.schedule,
            entries: known,
        };
        let page_size = self.config().ready_page_size;
        let page = self
            .client()
            .page(LATER_PREFIX, after.as_deref(), page_size)
            .await?;
        let known = std::mem::take(&mut taken.entries);
        let mut schedule = lock(&scheduled.schedule);
        schedule.listed = Some((at, epoch));
        schedule.unknown_from = None;
        let due_before = self.client().now().minus_millis(duty.delay_ms);
        let mut left_out = None;
        let mut last_due = None;
        for listed in &page.entries {
            if let Ok(Key::Later(entry)) = listed.key.parse()
                && !self.shared.index_gc.is_pending(&listed.key)
            {
                let due = entry.available_at;
                last_due = last_due.max(Some(due));
                if duty.watches || due <= due_before || known.contains_key(&(due, entry.id)) {
                    schedule.remember(entry);
                } else {
                    left_out.get_or_insert(due);
                }
            }
        }
        if let Some(due) = left_out {
            let from = schedule.unknown_from.map_or(due, |from| from.min(due));
            schedule.unknown_from = Some(from);
        }
        if let Some(next) = page.next {
            if let Some(due) = last_due {
                let from = schedule.unknown_from.map_or(due, |from| from.min(due));
                schedule.unknown_from = Some(from);
            } else {
                // Nothing on this page could be parsed: the next call continues behind it.
                schedule.after = Some(next);
                schedule.unknown_from = Some(self.client().now());
            }
        }
        Ok(())
    }

    /// Writes the ready entry of a scheduled task. Returns false if it was promoted by another process.
    async fn promote(&self, entry: &IndexEntry, is_late: bool) -> Result<bool, EngineError> {
        if is_late && !self.entry_exists(&Key::Later(entry.clone())).await? {
            return Ok(false);
        }
        self.put_entry(&Key::Ready(entry.clone())).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(rank: u64) -> Duty {
        Duty::of(Standing::Ranked(Rank { rank, count: 5 }))
    }

    #[test]
    fn one_worker_promotes_at_once_and_the_others_later() {
        assert_eq!(ranked(0), Duty::of(Standing::Alone));
        assert_eq!(ranked(0).delay_ms, 0);
        assert!(ranked(1).delay_ms > 0 && ranked(1).watches);
        assert!(ranked(2).delay_ms > ranked(1).delay_ms && !ranked(2).watches);
        assert_eq!(Duty::of(Standing::Outside), ranked(2));
        let of_few = |rank| Duty::of(Standing::Ranked(Rank { rank, count: 4 }));
        assert_eq!((of_few(0), of_few(1)), (ranked(0), ranked(1)));
        assert!(of_few(2).delay_ms > of_few(1).delay_ms);
        assert!(of_few(3).delay_ms > of_few(2).delay_ms);
        assert!(!of_few(3).watches && of_few(3).promotes_own && !ranked(2).promotes_own);
    }
}
