//! What a node knows about its log: where each entry is, and the newest entries themselves.

use std::collections::VecDeque;

use super::frame::{EntryPlace, SegmentName};
use crate::raft_types::{Entry, LogId, Vote};

/// Where an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryLocation {
    pub(super) segment: SegmentName,
    pub(super) offset: u64,
}

/// An entry of the log.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) log_id: LogId,
    pub(super) length: usize,
    /// Its place and checksum, once it is written.
    pub(super) stored: Option<(EntryLocation, u32)>,
    pub(super) cached: Option<Entry>,
}

/// A file of the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) name: SegmentName,
    pub(super) bytes: u64,
    /// The highest index that was written when the file was the last one. It needs nothing beyond it.
    pub(super) last_index: Option<u64>,
}

/// The log in memory.
#[derive(Debug, Default)]
pub(super) struct LogState {
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    pub(super) slots: VecDeque<Slot>,
    pub(super) segments: VecDeque<Segment>,
    pub(super) next_segment: u64,
    cached_bytes: usize,
    /// The index up to which entries have left the memory.
    evicted_below: u64,
}

impl LogState {
    /// The index that the next entry gets.
    pub(super) fn next_index(&self) -> u64 {
        self.last().map_or(0, |last| last.index + 1)
    }

    /// The index of the first entry that is kept.
    pub(super) fn first_index(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index + 1)
    }

    /// The index of the first entry that exists.
    pub(super) fn first_slot(&self) -> u64 {
        let first = self.slots.front().map(|slot| slot.log_id.index);
        first.unwrap_or_else(|| self.first_index())
    }

    pub(super) fn last(&self) -> Option<LogId> {
        self.slots.back().map(|slot| slot.log_id).or(self.purged)
    }

    pub(super) fn slot(&self, index: u64) -> Option<&Slot> {
        let position = index.checked_sub(self.slots.front()?.log_id.index)?;
        self.slots.get(usize::try_from(position).ok()?)
    }

    fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        let position = index.checked_sub(self.slots.front()?.log_id.index)?;
        self.slots.get_mut(usize::try_from(position).ok()?)
    }

    /// Adds an entry that is about to be written.
    pub(super) fn push(&mut self, entry: Entry, length: usize) {
        self.cached_bytes += length;
        self.slots.push_back(Slot {
            log_id: entry.log_id,
            length,
            stored: None,
            cached: Some(entry),
        });
    }

    /// Adds an entry that was read from a file.
    pub(super) fn push_stored(
        &mut self,
        log_id: LogId,
        location: EntryLocation,
        length: usize,
        checksum: u32,
    ) {
        self.slots.push_back(Slot {
            log_id,
            length,
            stored: Some((location, checksum)),
            cached: None,
        });
        self.evicted_below = log_id.index + 1;
    }

    /// Records that an entry was written. It may have been truncated since.
    pub(super) fn written(&mut self, segment: SegmentName, start: u64, place: &EntryPlace) {
        let location = EntryLocation {
            segment,
            offset: start + place.offset as u64,
        };
        if let Some(slot) = self.slot_mut(place.log_id.index)
            && slot.log_id == place.log_id
        {
            slot.stored = Some((location, place.checksum));
        }
    }

    /// Lets the oldest written entries leave the memory, until those in memory have at most so many bytes.
    pub(super) fn evict(&mut self, cache_bytes: usize) {
        self.evicted_below = self.evicted_below.max(self.first_slot());
        while self.cached_bytes > cache_bytes {
            let index = self.evicted_below;
            let Some(slot) = self.slot_mut(index) else {
                return;
            };
            if slot.stored.is_none() {
                return;
            }
            let length = slot.length;
            if slot.cached.take().is_some() {
                self.cached_bytes -= length;
            }
            self.evicted_below = index + 1;
        }
    }

    /// Drops all entries after this one.
    pub(super) fn truncate_after(&mut self, after: Option<LogId>) {
        let keep = after.map_or(0, |after| after.index + 1);
        while self
            .slots
            .back()
            .is_some_and(|slot| slot.log_id.index >= keep)
        {
            if let Some(slot) = self.slots.pop_back() {
                self.forget(&slot);
            }
        }
        self.evicted_below = self.evicted_below.min(keep);
    }

    /// Drops all entries up to this one.
    pub(super) fn purge(&mut self, upto: LogId) {
        if self.purged.is_some_and(|purged| purged.index >= upto.index) {
            return;
        }
        self.purged = Some(upto);
        while self
            .slots
            .front()
            .is_some_and(|slot| slot.log_id.index <= upto.index)
        {
            if let Some(slot) = self.slots.pop_front() {
                self.forget(&slot);
            }
        }
    }

    fn forget(&mut self, slot: &Slot) {
        if slot.cached.is_some() {
            self.cached_bytes -= slot.length;
        }
    }

    /// The first files, which contain nothing that is still needed. The last file stays.
    pub(super) fn unneeded_segments(&self) -> Vec<SegmentName> {
        let first = self.first_index();
        let unneeded = |segment: &&Segment| segment.last_index.is_none_or(|last| last < first);
        let count = self.segments.len().saturating_sub(1);
        let files = self.segments.iter().take(count);
        files.take_while(unneeded).map(|file| file.name).collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}
