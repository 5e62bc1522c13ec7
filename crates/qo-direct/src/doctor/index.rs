//! How the indexes look from outside: how much is in them, and whether somebody works through it.
//!
//! Only lists are made, of at most so many pages each; no task is read. What an index says too much or too little is found
//! and mended by the sweeper, not here.

use futures_util::future::join_all;
use qo_core::Timestamp;
use qo_core::keys::{Key, LATER_PREFIX, LEASES_PREFIX, READY_PREFIX, WORKERS_PREFIX};
use qo_store::StoreError;
use qo_store::client::{Entry, PAGE_LIMIT_MAX};

use super::Visit;
use super::report::{DoctorCheck, Health};

/// Where the sweeper puts what it cannot read.
const QUARANTINE_PREFIX: &str = "quarantine";
/// What is this much too late was forgotten, and not just about to be dealt with.
const OVERDUE_MS: u64 = 3 * 60_000;

/// What the lists have shown.
#[derive(Default)]
struct Found {
    ready: Counted,
    later: Counted,
    leases: Counted,
    quarantine: Counted,
    workers: Counted,
    oldest_ready: Option<Timestamp>,
    later_overdue: usize,
    leases_overdue: usize,
    workers_alive: usize,
}

/// The entries of one prefix, as far as they were listed.
#[derive(Default)]
struct Counted {
    entries: Vec<Entry>,
    has_more: bool,
}

impl Counted {
    fn say(&self) -> String {
        let more = if self.has_more { "more than " } else { "" };
        format!("{more}{}", self.entries.len())
    }

    fn keys(&self) -> impl Iterator<Item = Key> {
        let entries = self.entries.iter();
        entries.filter_map(|entry| entry.key.parse().ok())
    }
}

impl Visit<'_> {
    pub(super) async fn index(&self) -> DoctorCheck {
        match self.count_index().await {
            Ok(found) => judge(&found, self.client.now()),
            Err(error) => DoctorCheck::new("index", Health::Failed, error.to_string()),
        }
    }

    async fn count_index(&self) -> Result<Found, StoreError> {
        let prefixes = [
            READY_PREFIX,
            LATER_PREFIX,
            LEASES_PREFIX,
            QUARANTINE_PREFIX,
            WORKERS_PREFIX,
        ];
        let mut counted = join_all(prefixes.map(|prefix| self.count(prefix)))
            .await
            .into_iter();
        let mut next = || counted.next().unwrap_or_else(|| Ok(Counted::default()));
        let mut found = Found {
            ready: next()?,
            later: next()?,
            leases: next()?,
            quarantine: next()?,
            workers: next()?,
            ..Found::default()
        };
        let now = self.client.now();
        let overdue = now.minus_millis(OVERDUE_MS);
        found.oldest_ready = found
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
        found.later_overdue = found.later.keys().filter(is_overdue).count();
        found.leases_overdue = found.leases.keys().filter(is_overdue).count();
        let stale = now.minus_millis(self.options.worker_stale_ms);
        let workers = found.workers.entries.iter();
        found.workers_alive = workers.filter(|entry| entry.last_modified >= stale).count();
        Ok(found)
    }

    async fn count(&self, prefix: &str) -> Result<Counted, StoreError> {
        let mut counted = Counted::default();
        let mut after: Option<String> = None;
        for _ in 0..self.options.index_pages_max {
            let page = self
                .client
                .page(prefix, after.as_deref(), PAGE_LIMIT_MAX)
                .await?;
            counted.entries.extend(page.entries);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        counted.has_more = after.is_some();
        Ok(counted)
    }
}

fn judge(found: &Found, now: Timestamp) -> DoctorCheck {
    let stale = found.workers.entries.len() - found.workers_alive;
    let age_ms = found
        .oldest_ready
        .map(|oldest| now.since(oldest).as_millis());
    let waited = age_ms.map_or_else(String::new, |age_ms| {
        let seconds = age_ms / 1_000;
        format!("; the oldest ready task has waited for {seconds} s")
    });
    let said = format!(
        "{} ready, {} later, {} running, {} in quarantine; {} workers alive, {stale} not heard of{waited}",
        found.ready.say(),
        found.later.say(),
        found.leases.say(),
        found.quarantine.say(),
        found.workers_alive,
    );
    let mut hints = Vec::new();
    if found.workers_alive == 0 && !found.ready.entries.is_empty() {
        hints.push("tasks are ready and no worker is alive: start one".to_owned());
    }
    if found.leases_overdue > 0 || found.later_overdue > 0 {
        hints.push(format!(
            "{} leases ran out and {} delayed tasks fell due more than {} minutes ago, and nobody has dealt with them: run a worker or a monitor",
            found.leases_overdue,
            found.later_overdue,
            OVERDUE_MS / 60_000
        ));
    }
    if !found.quarantine.entries.is_empty() {
        hints.push(format!(
            "look at what is under {QUARANTINE_PREFIX}/: qo could not read it, and each object says why"
        ));
    }
    let health = if hints.is_empty() {
        Health::Ok
    } else {
        Health::Warning
    };
    let mut check = DoctorCheck::new("index", health, said)
        .hint(hints.join("; "))
        .figure("ready", found.ready.entries.len())
        .figure("later", found.later.entries.len())
        .figure("later_overdue", found.later_overdue)
        .figure("leases", found.leases.entries.len())
        .figure("leases_overdue", found.leases_overdue)
        .figure("quarantine", found.quarantine.entries.len())
        .figure("workers_alive", found.workers_alive)
        .figure("workers_stale", stale);
    for (name, counted) in [
        ("ready_has_more", &found.ready),
        ("later_has_more", &found.later),
        ("leases_has_more", &found.leases),
        ("quarantine_has_more", &found.quarantine),
    ] {
        if counted.has_more {
            check = check.figure(name, 1);
        }
    }
    match age_ms {
        Some(age_ms) => check.figure("oldest_ready_age_ms", age_ms),
        None => check,
    }
}
