//! The disk of a node: files whose unsynced end is lost or torn in a crash, and rows that fall back to their last sync. Each group has its
//! own files and rows on it, and what strikes the disk strikes all of them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use qo_broker::rows::Row;
use qo_cluster::{BlockingPool, LogFiles, MemoryRows, RowChange, RowSnapshot, RowStage, RowStore};
use qo_core::Timestamp;
use qo_store::runtime::BoxFuture;

use super::versions::Versions;
use crate::random::Random;
use crate::sched::{Scheduler, lock};

/// The disk of a node, with what each group has on it.
pub(super) struct NodeDisk {
    pub(super) groups: Vec<SimDisk>,
}

impl NodeDisk {
    pub(super) fn new(
        scheduler: &Scheduler,
        dice: &[u64],
        groups: u16,
        slow_ms: u64,
        versions: Option<&Arc<Versions>>,
    ) -> Self {
        let of_group = |group: u16| {
            let mut seeds = dice.to_vec();
            // Group 0 is as it is in a run without others.
            seeds.extend((group > 0).then_some(u64::from(group)));
            SimDisk {
                scheduler: scheduler.clone(),
                inner: Arc::new(Mutex::new(Inner {
                    files: BTreeMap::new(),
                    dice: Random::of(&seeds),
                    stalls: false,
                })),
                rows: SimRows {
                    rows: MemoryRows::default(),
                    group,
                    versions: versions.cloned(),
                },
                slow_ms,
            }
        };
        Self {
            groups: (0..groups).map(of_group).collect(),
        }
    }

    /// Lets the disk be full, or have room again.
    pub(super) fn set_full(&self, is_full: bool) {
        for group in &self.groups {
            group.rows.rows.set_full(is_full);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.rows.rows.is_full())
    }

    /// Lets everything take long, or not.
    pub(super) fn set_stalls(&self, stalls: bool) {
        for group in &self.groups {
            lock(&group.inner).stalls = stalls;
        }
    }

    /// What a crash leaves.
    pub(super) fn crash(&self) {
        for group in &self.groups {
            group.crash();
        }
    }
}

/// What a group has on a disk, which outlives the processes that use it. Clones share everything.
#[derive(Clone)]
pub(super) struct SimDisk {
    scheduler: Scheduler,
    inner: Arc<Mutex<Inner>>,
    pub(super) rows: SimRows,
    slow_ms: u64,
}

struct Inner {
    files: BTreeMap<String, SimFile>,
    dice: Random,
    /// Whether everything takes long at the moment.
    stalls: bool,
}

#[derive(Default)]
struct SimFile {
    synced: Vec<u8>,
    /// Written, and not synced yet.
    pending: Vec<u8>,
}

impl SimDisk {
    /// What a crash leaves: of the unsynced bytes a part, in which a byte may be wrong, or which may be zeros that were never written.
    fn crash(&self) {
        let mut inner = lock(&self.inner);
        let Inner { files, dice, .. } = &mut *inner;
        if let Some(last) = files.values_mut().next_back()
            && last.pending.is_empty()
            && dice.chance(0.3)
        {
            // The node had begun to write a frame.
            let length = dice.between(1, 60);
            last.pending = (0..length).map(|_| dice.bits().to_le_bytes()[0]).collect();
        }
        for file in files.values_mut() {
            let mut pending = std::mem::take(&mut file.pending);
            let kept = dice.below(pending.len() as u64 + 1);
            pending.truncate(usize::try_from(kept).unwrap_or_default());
            if !pending.is_empty() && dice.chance(0.3) {
                let place = usize::try_from(dice.below(pending.len() as u64)).unwrap_or_default();
                pending[place] ^= 0x55;
            } else if dice.chance(0.1) {
                pending.fill(0);
            }
            file.synced.extend(pending);
        }
        drop(inner);
        self.rows.rows.crash();
    }

    async fn work(&self) {
        let pause = {
            let mut inner = lock(&self.inner);
            let slow_ms = self.slow_ms;
            if inner.stalls {
                inner.dice.millis(100, 2_500)
            } else if inner.dice.chance(0.02) {
                inner.dice.millis(1, 20 * slow_ms)
            } else {
                Duration::from_micros(inner.dice.between(50, 1_000 * slow_ms))
            }
        };
        self.scheduler.sleep(pause).await;
    }

    fn with<T>(&self, name: &str, job: impl FnOnce(&mut SimFile) -> T) -> io::Result<T> {
        let mut inner = lock(&self.inner);
        let file = inner.files.get_mut(name);
        Ok(job(file.ok_or(io::ErrorKind::NotFound)?))
    }
}

#[async_trait]
impl LogFiles for SimDisk {
    async fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.inner).files.keys().cloned().collect())
    }

    async fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        self.with(name, |file| {
            let mut content = file.synced.clone();
            content.extend_from_slice(&file.pending);
            let start = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(content.len());
            let end = start.saturating_add(length).min(content.len());
            Bytes::copy_from_slice(&content[start..end])
        })
    }

    async fn size(&self, name: &str) -> io::Result<u64> {
        self.with(name, |file| (file.synced.len() + file.pending.len()) as u64)
    }

    async fn create(&self, name: &str) -> io::Result<()> {
        self.work().await;
        lock(&self.inner)
            .files
            .insert(name.to_owned(), SimFile::default());
        Ok(())
    }

    async fn append(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        if self.rows.rows.is_full() {
            let kept = lock(&self.inner).dice.below(bytes.len() as u64);
            let kept = usize::try_from(kept).unwrap_or_default();
            self.with(name, |file| file.pending.extend_from_slice(&bytes[..kept]))?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.with(name, |file| file.pending.extend_from_slice(&bytes))?;
        self.work().await;
        self.with(name, |file| {
            let pending = std::mem::take(&mut file.pending);
            file.synced.extend(pending);
        })
    }

    async fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        self.with(name, |file| {
            file.pending.clear();
            file.synced
                .truncate(usize::try_from(size).unwrap_or(usize::MAX));
        })
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.work().await;
        lock(&self.inner).files.remove(name);
        Ok(())
    }
}

impl BlockingPool for SimDisk {
    fn run(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<()> {
        let disk = self.clone();
        Box::pin(async move {
            let pause = lock(&disk.inner).dice.between(10, 2_000);
            disk.scheduler.sleep(Duration::from_micros(pause)).await;
            job();
        })
    }
}

/// Rows in memory, which tell what is applied to them.
#[derive(Clone)]
pub(super) struct SimRows {
    pub(super) rows: MemoryRows,
    group: u16,
    versions: Option<Arc<Versions>>,
}

impl RowStore for SimRows {
    fn get(&self, key: &[u8]) -> io::Result<Option<Row>> {
        self.rows.get(key)
    }

    fn page(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Row>> {
        self.rows.page(start, end, limit)
    }

    fn has_expired(&self, before: Timestamp) -> io::Result<bool> {
        self.rows.has_expired(before)
    }

    fn write(&self, changes: &[RowChange]) -> io::Result<()> {
        self.rows.write(changes)
    }

    fn sync(&self) -> io::Result<()> {
        self.rows.sync()
    }

    fn applied(&self, changes: &[RowChange]) {
        if let Some(versions) = &self.versions {
            versions.applied(self.group, changes);
        }
    }

    fn snapshot(&self) -> io::Result<Box<dyn RowSnapshot>> {
        self.rows.snapshot()
    }

    fn stage(&self) -> io::Result<Box<dyn RowStage>> {
        self.rows.stage()
    }
}
