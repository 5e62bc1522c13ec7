//! Checks the indexes: their sizes, and whether workers and maintenance process them.
//!
//! It only sends LISTs, for a limited number of pages each, and reads no task. Stale and missing entries are found and repaired by
//! the sweeper, not here.

use std::time::Duration;

use futures_util::future::join_all;
use qo_core::Timestamp;
use qo_core::keys::{Key, LATER_PREFIX, LEASES_PREFIX, READY_PREFIX, WORKERS_PREFIX};
use qo_store::StoreError;
use qo_store::client::{Entry, PAGE_LIMIT_MAX};

use super::DoctorRun;
use super::report::{DoctorCheck, Health};

/// Where the sweeper moves records that it cannot parse.
const QUARANTINE_PREFIX: &str = "quarantine";

/// The number of entries of each index.
#[derive(Default)]
struct IndexCounts {
    ready: PrefixListing,
    later: PrefixListing,
    leases: PrefixListing,
    quarantine: PrefixListing,
    workers: PrefixListing,
    oldest_ready: Option<Timestamp>,
    later_overdue: usize,
    leases_overdue: usize,
    workers_alive: usize,
}

/// The listed entries of one prefix.
#[derive(Default)]
pub(super) struct PrefixListing {
    pub(super) entries: Vec<Entry>,
    has_more: bool,
}

impl PrefixListing {
    fn count_text(&self) -> String {
        let more = if self.has_more { "more than " } else { "" };
        format!("{more}{}", self.entries.len())
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        let entries = self.entries.iter();
        entries.filter_map(|entry| entry.key.parse().ok())
    }
}

impl DoctorRun<'_> {
    pub(super) async fn index(&self) -> DoctorCheck {
        match self.count_index().await {
            Ok(counts) => assess(&counts, self.client.now(), self.options.overdue_after),
            Err(error) => DoctorCheck::new("index", Health::Failed, error.to_string()),
        }
    }

    async fn count_index(&self) -> Result<IndexCounts, StoreError> {
        let prefixes = [
            READY_PREFIX,
            LATER_PREFIX,
            LEASES_PREFIX,
            QUARANTINE_PREFIX,
            WORKERS_PREFIX,
        ];
        let mut listings = join_all(prefixes.map(|prefix| self.list_prefix(prefix)))
            .await
            .into_iter();
        let mut next = || {
            listings
                .next()
                .unwrap_or_else(|| Ok(PrefixListing::default()))
        };
        let mut counts = IndexCounts {
            ready: next()?,
            later: next()?,
            leases: next()?,
            quarantine: next()?,
            workers: next()?,
            ..IndexCounts::default()
        };
        let now = self.client.now();
        let overdue_ms = u64::try_from(self.options.overdue_after.as_millis()).unwrap_or(u64::MAX);
        let overdue = now.minus_millis(overdue_ms);
        counts.oldest_ready = counts
            .ready
            .keys()
            .filter_map(|key| match key {
                Key::Ready(entry) => Some(entry.available_at),
                _ => None,
            })
            .min();
        let is_overdue = |key: &Key| match key {
            Key::Later(entry) => entry.available_at < overdue,
            Key::Lease { minute, .. } => *minute < overdue.minute(),
            _ => false,
        };
        counts.later_overdue = counts.later.keys().filter(is_overdue).count();
        counts.leases_overdue = counts.leases.keys().filter(is_overdue).count();
        let stale = now.minus_millis(self.options.worker_stale_ms);
        let workers = counts.workers.entries.iter();
        counts.workers_alive = workers.filter(|entry| entry.last_modified >= stale).count();
        Ok(counts)
    }

    pub(super) async fn list_prefix(&self, prefix: &str) -> Result<PrefixListing, StoreError> {
        let mut listing = PrefixListing::default();
        let mut after: Option<String> = None;
        for _ in 0..self.options.index_pages_max {
            let page = self
                .client
                .page(prefix, after.as_deref(), PAGE_LIMIT_MAX)
                .await?;
            listing.entries.extend(page.entries);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        listing.has_more = after.is_some();
        Ok(listing)
    }
}

fn assess(counts: &IndexCounts, now: Timestamp, overdue_after: Duration) -> DoctorCheck {
    let stale = counts.workers.entries.len() - counts.workers_alive;
    let age_ms = counts
        .oldest_ready
        .map(|oldest| now.since(oldest).as_millis());
    let waited = age_ms.map_or_else(String::new, |age_ms| {
        let seconds = age_ms / 1_000;
        format!("; the oldest ready task has waited for {seconds} s")
    });
    let summary = format!(
        "{} ready, {} later, {} running, {} in quarantine; {} workers alive, {stale} without a recent heartbeat{waited}",
        counts.ready.count_text(),
        counts.later.count_text(),
        counts.leases.count_text(),
        counts.quarantine.count_text(),
        counts.workers_alive,
    );
    let mut hints = Vec::new();
    if counts.workers_alive == 0 && !counts.ready.entries.is_empty() {
        hints.push("tasks are ready and no worker is alive: start one".to_owned());
    }
    if counts.leases_overdue > 0 || counts.later_overdue > 0 {
        hints.push(format!(
            "{} leases expired and {} delayed tasks became due more than {} minutes ago without being processed: run a worker or `qo monitor`",
            counts.leases_overdue,
            counts.later_overdue,
            overdue_after.as_secs() / 60
        ));
    }
    if !counts.quarantine.entries.is_empty() {
        hints.push(format!(
            "inspect the objects under {QUARANTINE_PREFIX}/: qo could not parse them, and the note beside each gives the reason"
        ));
    }
    let health = if hints.is_empty() {
        Health::Ok
    } else {
        Health::Warning
    };
    let mut check = DoctorCheck::new("index", health, summary)
        .hint(hints.join("; "))
        .figure("ready", counts.ready.entries.len())
        .figure("later", counts.later.entries.len())
        .figure("later_overdue", counts.later_overdue)
        .figure("leases", counts.leases.entries.len())
        .figure("leases_overdue", counts.leases_overdue)
        .figure("quarantine", counts.quarantine.entries.len())
        .figure("workers_alive", counts.workers_alive)
        .figure("workers_stale", stale);
    for (name, listing) in [
        ("ready_has_more", &counts.ready),
        ("later_has_more", &counts.later),
        ("leases_has_more", &counts.leases),
        ("quarantine_has_more", &counts.quarantine),
    ] {
        if listing.has_more {
            check = check.figure(name, 1);
        }
    }
    match age_ms {
        Some(age_ms) => check.figure("oldest_ready_age_ms", age_ms),
        None => check,
    }
}
