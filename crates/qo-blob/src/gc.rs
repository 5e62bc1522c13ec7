//! Collects the blobs that no task refers to.
//!
//! # Steps
//!
//! 1. List the records of all blobs. A blob whose record was written within the grace time is kept.
//! 2. Read all tasks, and keep every blob that one of them refers to ([`crate::references`]).
//! 3. For each blob that is left: read its record. If it is still in the state of step 1, mark it as collected by compare-and-swap. If the
//!    swap succeeds, delete the bytes.
//!
//! A batch of 50,000 blobs is held in memory at a time. More blobs take more passes over the tasks.
//!
//! # Why no blob is lost that a concurrent submit refers to
//!
//! A client that submits a task that refers to a blob uploads or touches the blob first, and a worker uploads an output before it completes its
//! task. Both write a new state of the record, unless the record is at most 15 minutes old. Let a collection run at the same time:
//!
//! | the touch comes | then |
//! | --- | --- |
//! | before step 1 | the record is younger than the grace time and the blob is kept; if the touch was longer ago than the grace time, the task was written meanwhile, and step 2 finds it |
//! | between step 1 and the swap of step 3 | the record has changed, so the swap fails and the blob is kept |
//! | after the swap | the touch finds a collected blob and fails with "not found", before the task is written; an upload stores the blob again, as the next generation |
//!
//! The swap decides, not a clock: a collection that was suspended for hours between two steps still loses the race. A clock matters in one
//! place only: between its touch and its write, a submit has the grace time less 15 minutes (45 minutes at least). A submit that was
//! suspended for longer must touch the blob again after its write, and cancel the task if that fails; the job routes of the HTTP API do.
//!
//! Deletes have no condition and may arrive late. That is harmless, because only bytes of a collected generation are deleted, and no later
//! upload uses that generation.
//!
//! # Crashes
//!
//! | step | a crash right after it leaves |
//! | --- | --- |
//! | list, read tasks | nothing |
//! | mark as collected | bytes that nobody uses; the next collection deletes them |
//! | delete the bytes | a record, which is removed when it is a week old |
//! | remove the record | nothing |
//!
//! If a blob is uploaded again in the moment in which its old record is removed, its bytes are left without a record. They can be read like
//! any other, and the next collection writes a new record for them, as it does for the bytes of an upload that crashed.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::keys::{BLOB_DATA_PREFIX, BLOB_RECORDS_PREFIX, Key};
use qo_core::{BlobAddress, Status, Timestamp};
use qo_engine::Engine;
use qo_engine::api::{TaskFilter, TaskQuery};
use qo_store::client::{Entry, PAGE_LIMIT_MAX, Tag};
use serde::{Deserialize, Serialize};

use crate::blobs::{Blobs, StoredRecord, TOUCH_INTERVAL_MS};
use crate::error::BlobError;
use crate::references;

/// The default grace time.
pub const GRACE_DEFAULT_MS: u64 = 24 * 60 * 60 * 1_000;
/// The shortest grace time.
pub const GRACE_MIN_MS: u64 = 4 * TOUCH_INTERVAL_MS;
/// How long the record of a collected blob is kept, so that late deletes of its bytes cannot meet a new upload.
pub const COLLECTED_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// The most blobs that are held in memory at a time.
const BATCH: usize = 50_000;
/// The tasks in one page.
const TASKS_PAGE: usize = 500;

/// Settings of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcOptions {
    /// A blob that was uploaded or touched within this time is kept.
    pub grace_ms: u64,
    /// Whether to only count what would be collected.
    pub dry_run: bool,
}

impl GcOptions {
    /// A collection with this grace time.
    pub fn new(grace_ms: u64, dry_run: bool) -> Self {
        Self { grace_ms, dry_run }
    }
}

impl Default for GcOptions {
    fn default() -> Self {
        Self {
            grace_ms: GRACE_DEFAULT_MS,
            dry_run: false,
        }
    }
}

/// The result of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GcReport {
    /// The blobs that are stored and were looked at.
    pub blobs: u64,
    /// The tasks that were read, in all passes.
    pub tasks: u64,
    /// The blobs that were collected; with a dry run, those that would be.
    pub collected: u64,
    /// Their bytes.
    pub collected_bytes: u64,
    /// The blobs to which a task refers. Blobs within the grace time are not checked.
    pub referenced: u64,
    /// The blobs that were kept because they are within the grace time or were touched meanwhile.
    pub recent: u64,
    /// The uploads that had crashed and got a record. They are collected after another grace time, unless a task refers to them.
    pub adopted: u64,
    /// The blobs with a record but without bytes. Somebody else deleted the bytes.
    pub missing: u64,
    /// The blobs whose records cannot be read.
    pub unreadable: u64,
}

/// What a listing says about one blob.
struct Candidate {
    /// The record; `None` if there are only bytes.
    record: Option<Tag>,
    /// The generations of the bytes, with their sizes.
    data: BTreeMap<u64, u64>,
}

impl Blobs {
    /// Collects the blobs to which no task of `engine` refers.
    pub(crate) async fn collect_unreferenced(
        &self,
        engine: &dyn Engine,
        options: &GcOptions,
    ) -> Result<GcReport, BlobError> {
        if options.grace_ms < GRACE_MIN_MS {
            return Err(BlobError::GraceTooShort {
                min_seconds: GRACE_MIN_MS / 1_000,
            });
        }
        let mut report = GcReport::default();
        let mut listing = Listing::new(self);
        loop {
            // Taken before the listing, so that what is written after it counts as recent.
            let old = self.client.earliest_now().minus_millis(options.grace_ms);
            let (mut candidates, at_end) = self.candidates(&mut listing, old, &mut report).await?;
            if !candidates.is_empty() {
                self.drop_referenced(engine, &mut candidates, &mut report)
                    .await?;
                for (address, candidate) in candidates {
                    match self
                        .finish(address, &candidate, options, old, &mut report)
                        .await
                    {
                        Err(BlobError::Unreadable { address, detail }) => {
                            tracing::warn!(%address, detail, "skipping an unreadable record");
                            report.unreadable += 1;
                        }
                        other => other?,
                    }
                }
            }
            if at_end {
                return Ok(report);
            }
        }
    }

    /// The next blobs that are old enough, and whether they are the last ones.
    async fn candidates(
        &self,
        listing: &mut Listing<'_>,
        old: Timestamp,
        report: &mut GcReport,
    ) -> Result<(BTreeMap<BlobAddress, Candidate>, bool), BlobError> {
        let mut candidates = BTreeMap::new();
        while candidates.len() < BATCH {
            let Some(listed) = listing.next().await? else {
                return Ok((candidates, true));
            };
            if !listed.data.is_empty() {
                report.blobs += 1;
            }
            if listed.newest >= old {
                report.recent += 1;
                continue;
            }
            let candidate = Candidate {
                record: listed.record,
                data: listed.data,
            };
            candidates.insert(listed.address, candidate);
        }
        Ok((candidates, false))
    }

    /// Reads all tasks, and drops the blobs to which they refer.
    async fn drop_referenced(
        &self,
        engine: &dyn Engine,
        candidates: &mut BTreeMap<BlobAddress, Candidate>,
        report: &mut GcReport,
    ) -> Result<(), BlobError> {
        let filter = TaskFilter {
            statuses: Status::ALL.to_vec(),
            ..TaskFilter::default()
        };
        let mut cursor: Option<String> = None;
        loop {
            let query = TaskQuery::first(&filter, TASKS_PAGE).at(cursor.as_deref());
            let page = engine.list(query).await?;
            for task in &page.tasks {
                report.tasks += 1;
                let mut found = BTreeSet::new();
                references::of_task(engine, task, |address| {
                    found.insert(address);
                })
                .await?;
                for address in found {
                    if candidates.remove(&address).is_some() {
                        report.referenced += 1;
                    }
                }
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Collects one blob to which no task refers, or finishes what a crash left.
    async fn finish(
        &self,
        address: BlobAddress,
        candidate: &Candidate,
        options: &GcOptions,
        old: Timestamp,
        report: &mut GcReport,
    ) -> Result<(), BlobError> {
        let found = self.record(address).await?;
        let unchanged = match (&found, &candidate.record) {
            (None, None) => true,
            (Some(found), Some(listed)) => found.tag.matches(listed),
            _ => false,
        };
        if !unchanged {
            report.recent += 1;
            return Ok(());
        }
        match &found {
            Some(stored) if stored.record.is_stored() => {
                self.finish_stored(stored, candidate, options, old, report)
                    .await
            }
            found => {
                self.finish_unrecorded(address, found.as_ref(), candidate, options, report)
                    .await
            }
        }
    }

    async fn finish_stored(
        &self,
        stored: &StoredRecord,
        candidate: &Candidate,
        options: &GcOptions,
        old: Timestamp,
        report: &mut GcReport,
    ) -> Result<(), BlobError> {
        let record = &stored.record;
        // The store's clock dates the object, and the writer's estimate of it the touch. Either may be late.
        if record.touched_at >= old {
            report.recent += 1;
            return Ok(());
        }
        let Some(size) = candidate.data.get(&record.generation) else {
            report.missing += 1;
            return Ok(());
        };
        if !options.dry_run {
            // Left by a crash between two steps.
            for generation in candidate
                .data
                .keys()
                .filter(|old| **old < record.generation)
            {
                self.delete_data(record.address, *generation).await?;
            }
            if !self.collect(stored).await? {
                report.recent += 1;
                return Ok(());
            }
        }
        report.collected += 1;
        report.collected_bytes += size;
        Ok(())
    }

    /// Bytes without a record that says that they are stored: those of a collected blob are deleted, others get a record.
    async fn finish_unrecorded(
        &self,
        address: BlobAddress,
        found: Option<&StoredRecord>,
        candidate: &Candidate,
        options: &GcOptions,
        report: &mut GcReport,
    ) -> Result<(), BlobError> {
        if options.dry_run {
            return Ok(());
        }
        let collected = found.map_or(0, |found| found.record.generation);
        for generation in candidate.data.keys().filter(|old| **old <= collected) {
            self.delete_data(address, *generation).await?;
        }
        if let Some((generation, size)) = candidate.data.range(collected + 1..).next_back() {
            let written = self.write_stored(found, address, *size, *generation);
            report.adopted += u64::from(written.await?.is_some());
            return Ok(());
        }
        if let Some(found) = found {
            let removable_at = found.record.touched_at.plus_millis(COLLECTED_KEPT_MS);
            if removable_at < self.client.earliest_now() {
                self.remove_record(address).await?;
            }
        }
        Ok(())
    }

    async fn remove_record(&self, address: BlobAddress) -> Result<(), BlobError> {
        let key = Key::BlobRecord(address).to_string();
        match self.client.delete_many(&[key]).await {
            Ok(()) => Ok(()),
            Err(mut failures) => match failures.failed.pop() {
                Some((_, error)) => Err(error.into()),
                None => Ok(()),
            },
        }
    }
}

/// One blob of both listings.
struct Listed {
    address: BlobAddress,
    record: Option<Tag>,
    data: BTreeMap<u64, u64>,
    /// When the record or, without one, the bytes were last written.
    newest: Timestamp,
}

/// The listings of records and of bytes, both in the order of addresses, merged.
struct Listing<'a> {
    records: Pages<'a>,
    data: Pages<'a>,
}

impl<'a> Listing<'a> {
    fn new(blobs: &'a Blobs) -> Self {
        Self {
            records: Pages::new(blobs, BLOB_RECORDS_PREFIX),
            data: Pages::new(blobs, BLOB_DATA_PREFIX),
        }
    }

    async fn next(&mut self) -> Result<Option<Listed>, BlobError> {
        let record = self.records.peek().await?.map(|(address, _, _)| *address);
        let data = self.data.peek().await?.map(|(address, _, _)| *address);
        let Some(address) = record.into_iter().chain(data).min() else {
            return Ok(None);
        };
        let mut listed = Listed {
            address,
            record: None,
            data: BTreeMap::new(),
            newest: Timestamp::MIN,
        };
        let mut data_newest = Timestamp::MIN;
        while let Some((_, generation, entry)) = self.data.next_if(address).await? {
            data_newest = data_newest.max(entry.last_modified);
            listed.data.insert(generation, entry.size);
        }
        if let Some((_, _, entry)) = self.records.next_if(address).await? {
            listed.newest = entry.last_modified;
            listed.record = Some(entry.tag);
        }
        // Bytes that are newer than the record belong to an upload that is about to write it.
        listed.newest = listed.newest.max(data_newest);
        Ok(Some(listed))
    }
}

/// The entries of a prefix, page by page.
struct Pages<'a> {
    blobs: &'a Blobs,
    prefix: &'static str,
    entries: std::collections::VecDeque<(BlobAddress, u64, Entry)>,
    after: Option<String>,
    at_end: bool,
}

impl<'a> Pages<'a> {
    fn new(blobs: &'a Blobs, prefix: &'static str) -> Self {
        Self {
            blobs,
            prefix,
            entries: std::collections::VecDeque::new(),
            after: None,
            at_end: false,
        }
    }

    async fn fill(&mut self) -> Result<(), BlobError> {
        while self.entries.is_empty() && !self.at_end {
            let client = &self.blobs.client;
            let page = client
                .page(self.prefix, self.after.as_deref(), PAGE_LIMIT_MAX)
                .await?;
            self.at_end = page.next.is_none();
            self.after = page.next;
            for entry in page.entries {
                match entry.key.parse() {
                    Ok(Key::BlobRecord(address)) => self.entries.push_back((address, 0, entry)),
                    Ok(Key::BlobData {
                        address,
                        generation,
                    }) => self.entries.push_back((address, generation, entry)),
                    // Not an object of qo.
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn peek(&mut self) -> Result<Option<&(BlobAddress, u64, Entry)>, BlobError> {
        self.fill().await?;
        Ok(self.entries.front())
    }

    async fn next_if(
        &mut self,
        address: BlobAddress,
    ) -> Result<Option<(BlobAddress, u64, Entry)>, BlobError> {
        self.fill().await?;
        match self.entries.front() {
            Some((of, _, _)) if *of == address => Ok(self.entries.pop_front()),
            _ => Ok(None),
        }
    }
}
