//! Ends attempts whose lease has expired, and deletes stale lease entries.
//!
//! An idle bucket is not listed: [`super::activity`] shows whether tasks may be running. A check costs one LIST as long as no more
//! than a thousand tasks are running, and a GET per entry whose minute has come. A task whose lease is still valid is not read
//! again before the lease expires. With more running tasks a check costs one LIST per shard, and one more per thousand entries
//! whose minute has come.
//!
//! | the task of an entry | action |
//! | --- | --- |
//! | runs that attempt, and its lease has expired | end the attempt: the task is retried or fails |
//! | runs that attempt, and its lease is valid | none; if a renewal has moved the lease to another minute, write the entry of that minute and delete this one |
//! | runs another attempt | write the entry of that attempt and delete this one |
//! | is pending | write its ready entry, which a crash may have prevented, and delete this one |
//! | is finished, or does not exist | delete the entry |
//! | could not be read | none: a failed read says nothing about the task |
//!
//! The live workers share the checks by rank: each shard has a first worker, and a second one that reads a task 15 s later, in case the
//! first is gone or stuck. In a fleet of up to four, the third and the fourth worker do the same, each 5 s after the one before: such a
//! fleet may lose two workers at once, for example to one task that kills them, and the roster shows that only a minute or two later. A
//! small fleet has one first worker for all shards, because one LIST shows them all; a large one has more, who share
//! the reads. All others list rarely, a few of them within five minutes, and read only tasks whose lease ended in an earlier minute, which a
//! living worker would have renewed. So a task that runs for long is read about twice a minute by the whole fleet. A process without a worker
//! checks as the first one if there are no live workers, and as the others do if there are.
//!
//! An entry that is ahead of its task is kept ([`super::repair`]). Any number of lease reapers may run concurrently: an attempt
//! is ended by compare-and-swap, so one of them wins, and everything else may be repeated.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{LEASES_PREFIX, leases_prefix};
use qo_core::{Action, Shard, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::{PAGE_LIMIT_MAX, Page};
use qo_store::runtime::RuntimeExt;

use super::assignment::Rank;
use super::peers::Standing;
use super::repair::{LeaseEntry, LeaseEntryState};
use super::{DirectEngine, StoredTask, lock};

/// For how many entries the expiry time is cached. The tasks of the others are read at every check.
const VALID_UNTIL_MAX: usize = 100_000;

/// How much later the second worker of a shard, each further one in a small fleet, and all others check a lease.
const SECOND_DELAY_MS: u64 = 15_000;
const FURTHER_DELAY_MS: u64 = 5_000;
const OTHERS_DELAY_MS: u64 = 60_000;
/// One of this many workers checks leases first.
const WORKERS_PER_FIRST: u64 = 16;
/// How often the others list the leases, in a small fleet each of them, in a larger one as many as in a fleet of this size.
const OTHERS_INTERVAL: Duration = Duration::from_mins(5);
const OTHERS_MAX: u64 = 10;
/// How many tasks a check reads at once. It must leave connections and time for the renewals of the same process.
const CHECKS_MAX: usize = 16;

/// The result of one check of the leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseReport {
    /// Entries whose minute had come.
    pub due: usize,
    /// Attempts that were ended because their lease had expired.
    pub expired: usize,
    /// Attempts whose lease is still valid.
    pub holding: usize,
    /// Stale entries, which are being deleted.
    pub stale: usize,
    /// Entries of changes that may be in flight; kept.
    pub in_flight: usize,
    /// Tasks that another process changed at the same time.
    pub contended: usize,
    /// Tasks that could not be read or changed because the store failed; checked again next time.
    pub failed: usize,
    /// Tasks whose record cannot be parsed; the sweeper quarantines them.
    pub unreadable: usize,
    /// Objects below the prefix that are not lease entries; skipped.
    pub foreign: usize,
}

#[derive(Default)]
pub(super) struct LeaseReaper {
    /// When this process checks the leases of all shards next.
    checks_all_at: Mutex<Duration>,
    /// The expiry time of valid leases, by entry. Their tasks are not read again before it.
    valid_until: Mutex<BTreeMap<String, Timestamp>>,
}

/// The result of checking one entry.
enum LeaseCheck {
    Expired,
    Holding,
    Stale,
    InFlight,
    Contended,
    Failed,
    Unreadable,
}

/// The part of a process in the checks of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Duty {
    First,
    /// Acts if none of this many workers before it does.
    Backup {
        behind: u64,
    },
    Other,
    None,
}

impl Duty {
    fn of(standing: Standing, shard: Shard) -> Self {
        let rank = match standing {
            Standing::Alone => return Self::First,
            Standing::Outside => return Self::Other,
            Standing::Ranked(rank) => rank,
        };
        let is_of_few = rank.is_of_few();
        let Rank { rank, count } = rank;
        // The shards are spread over groups, and the groups over the ranks.
        let shards = u64::from(Shard::COUNT);
        let groups = (count / WORKERS_PER_FIRST).clamp(1, shards);
        let group = u64::from(shard.index()) * groups / shards;
        let first = group * count / groups;
        match (rank + count - first) % count {
            0 => Self::First,
            behind if behind == 1 || is_of_few => Self::Backup { behind },
            _ => Self::Other,
        }
    }

    fn without_others(self) -> Self {
        if self == Self::Other {
            Self::None
        } else {
            self
        }
    }

    fn delay_ms(self) -> Option<u64> {
        match self {
            Self::First => Some(0),
            Self::Backup { behind } => Some(SECOND_DELAY_MS + FURTHER_DELAY_MS * (behind - 1)),
            Self::Other => Some(OTHERS_DELAY_MS),
            Self::None => None,
        }
    }
}

impl DirectEngine {
    /// Checks the leases that are up to this process, if there may be any.
    pub(super) async fn check_leases_if_active(&self) -> Result<Option<LeaseReport>, EngineError> {
        if !self.may_have_leases().await {
            return Ok(None);
        }
        self.refresh_peers_if_due().await;
        let standing = self.standing();
        let now = self.runtime().monotonic();
        let checks_all = now >= *lock(&self.shared.lease_reaper.checks_all_at);
        let duties = Shard::all().map(|shard| Duty::of(standing, shard));
        let duties: Vec<Duty> = duties
            .map(|duty| {
                if checks_all {
                    duty
                } else {
                    duty.without_others()
                }
            })
            .collect();
        if duties.iter().all(|duty| *duty == Duty::None) {
            return Ok(None);
        }
        if checks_all {
            *lock(&self.shared.lease_reaper.checks_all_at) = now + self.others_interval(standing);
        }
        self.check_as(&duties).await.map(Some)
    }

    /// How long this process leaves the shards of others alone.
    fn others_interval(&self, standing: Standing) -> Duration {
        match standing {
            Standing::Ranked(Rank { count, .. }) if count > OTHERS_MAX => {
                // Random, so that workers that started together do not check together.
                let factor = u32::try_from(count / OTHERS_MAX).unwrap_or(u32::MAX);
                let interval = OTHERS_INTERVAL.saturating_mul(factor);
                interval.mul_f64(2.0 * self.runtime().random_unit())
            }
            _ => OTHERS_INTERVAL,
        }
    }

    /// Checks all leases that may have expired, once, and promotes due tasks to the ready index.
    pub async fn check_leases(&self) -> Result<LeaseReport, EngineError> {
        let report = self.check_as(&[Duty::First; Shard::COUNT as usize]).await?;
        self.promote_due().await?;
        Ok(report)
    }

    /// Checks the leases of each shard according to the duty of this process.
    async fn check_as(&self, duties: &[Duty]) -> Result<LeaseReport, EngineError> {
        let mut report = LeaseReport::default();
        let at = self.runtime().monotonic();
        let page = self
            .client()
            .page(LEASES_PREFIX, None, PAGE_LIMIT_MAX)
            .await?;
        if page.next.is_none() {
            self.check_page(&page, duties, &mut report).await;
        } else {
            for (shard, duty) in Shard::all().zip(duties) {
                if *duty != Duty::None {
                    self.check_shard(shard, duties, &mut report).await?;
                }
            }
        }
        self.record_lease_list(at, page.entries.is_empty());
        let now = self.conservative_now();
        lock(&self.shared.lease_reaper.valid_until).retain(|_, until| *until >= now);
        Ok(report)
    }

    async fn check_shard(
        &self,
        shard: Shard,
        duties: &[Duty],
        report: &mut LeaseReport,
    ) -> Result<(), EngineError> {
        let prefix = leases_prefix(shard);
        let mut after = None;
        loop {
            let page = self.full_page(&prefix, after.as_deref()).await?;
            let all_due = self.check_page(&page, duties, report).await;
            match page.next {
                Some(next) if all_due => after = Some(next),
                _ => return Ok(()),
            }
        }
    }

    /// Checks the due entries of a page. Returns whether all entries were due, so that the next page may have more.
    async fn check_page(&self, page: &Page, duties: &[Duty], report: &mut LeaseReport) -> bool {
        let now = self.conservative_now();
        let mut all_due = true;
        let mut due = Vec::new();
        for listed in &page.entries {
            let Some(entry) = LeaseEntry::new(&listed.key, listed.last_modified) else {
                report.foreign += 1;
                continue;
            };
            let duty = duties.get(usize::from(entry.id.shard().index()));
            let Some(delay_ms) = duty.and_then(|duty| duty.delay_ms()) else {
                continue;
            };
            if entry.minute > now.minus_millis(delay_ms).minute() {
                all_due = false;
            } else if !self.shared.index_gc.is_pending(&listed.key) {
                due.push((listed.key.clone(), entry));
            }
        }
        report.due += due.len();
        let mut outcomes = futures_util::stream::iter(due)
            .map(|(key, entry)| async move { self.check_entry(&key, entry).await })
            .buffer_unordered(self.config().concurrency.min(CHECKS_MAX));
        while let Some(outcome) = outcomes.next().await {
            let count = match outcome {
                LeaseCheck::Expired => &mut report.expired,
                LeaseCheck::Holding => &mut report.holding,
                LeaseCheck::Stale => &mut report.stale,
                LeaseCheck::InFlight => &mut report.in_flight,
                LeaseCheck::Contended => &mut report.contended,
                LeaseCheck::Failed => &mut report.failed,
                LeaseCheck::Unreadable => &mut report.unreadable,
            };
            *count += 1;
        }
        all_due
    }

    async fn check_entry(&self, key: &str, entry: LeaseEntry) -> LeaseCheck {
        let valid_until = lock(&self.shared.lease_reaper.valid_until)
            .get(key)
            .copied();
        if valid_until.is_some_and(|until| until >= self.conservative_now()) {
            return LeaseCheck::Holding;
        }
        let stored = match self.read(entry.id).await {
            Ok(stored) => stored,
            // The store reports that the task does not exist.
            Err(error) if error.is_not_found() => return self.discard_entry(key),
            Err(EngineError::Unreadable { .. }) => return LeaseCheck::Unreadable,
            Err(error) => return failed(&entry, &error),
        };
        match entry.compare(&stored.task, self.conservative_now()) {
            LeaseEntryState::Expired => self.expire(&entry, stored).await,
            LeaseEntryState::Valid(until) => {
                let mut valid_until = lock(&self.shared.lease_reaper.valid_until);
                if valid_until.len() < VALID_UNTIL_MAX {
                    valid_until.insert(key.to_owned(), until);
                }
                LeaseCheck::Holding
            }
            LeaseEntryState::Stale => match self.restore_entry(&stored.task).await {
                Ok(()) => self.discard_entry(key),
                Err(error) => failed(&entry, &error),
            },
            LeaseEntryState::InFlight => LeaseCheck::InFlight,
        }
    }

    /// Ends an attempt. Tries once: if another process changed the task, that change takes precedence.
    async fn expire(&self, entry: &LeaseEntry, stored: StoredTask) -> LeaseCheck {
        let worker = stored.task.worker_id.clone();
        let action = Action::ExpireLease {
            jitter: self.jitter(),
        };
        match self
            .try_change(stored, self.runtime().new_op_id(), action)
            .await
        {
            Ok(changed) => {
                tracing::info!(
                    task = %entry.id,
                    attempt = entry.attempt,
                    worker = worker.as_ref().map(tracing::field::display),
                    status = %changed.task.status,
                    "ended an attempt whose lease had expired"
                );
                LeaseCheck::Expired
            }
            Err(EngineError::Store(StoreError::Conflict { .. }) | EngineError::Rejected(_)) => {
                LeaseCheck::Contended
            }
            Err(error) => failed(entry, &error),
        }
    }

    fn discard_entry(&self, key: &str) -> LeaseCheck {
        self.shared.index_gc.enqueue([key]);
        LeaseCheck::Stale
    }

    /// The time against which lease expiry is checked: the earliest time that the store's clock may show, less the margin.
    pub(super) fn conservative_now(&self) -> Timestamp {
        self.client()
            .earliest_now()
            .minus_millis(self.config().lease_margin_ms)
    }
}

fn failed(entry: &LeaseEntry, error: &EngineError) -> LeaseCheck {
    tracing::debug!(task = %entry.id, %error, "could not check a lease; trying again later");
    LeaseCheck::Failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_has_a_first_worker_and_backups() {
        for (count, backups) in [
            (1, 0),
            (2, 1),
            (3, 2),
            (4, 3),
            (5, 1),
            (15, 1),
            (16, 1),
            (17, 1),
            (100, 1),
            (1_000, 1),
        ] {
            for shard in Shard::all() {
                let duties =
                    (0..count).map(|rank| Duty::of(Standing::Ranked(Rank { rank, count }), shard));
                let duties: Vec<_> = duties.collect();
                let number = |duty| duties.iter().filter(|known| **known == duty).count();
                assert_eq!(number(Duty::First), 1, "{count}");
                // Each backup has a delay of its own.
                for behind in 1..count {
                    let expected = usize::from(behind <= backups);
                    assert_eq!(number(Duty::Backup { behind }), expected, "{count}");
                }
            }
        }
    }
}
