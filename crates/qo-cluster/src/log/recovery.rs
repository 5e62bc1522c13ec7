//! Reads the log when a node starts.
//!
//! | what is found | why | what happens |
//! | --- | --- | --- |
//! | the last file ends within a frame, or with a damaged one | the node died while it wrote | the frame was never acknowledged and is cut off |
//! | the last file has no whole frame | the node died while it began a file | the file is deleted |
//! | a damaged frame before a whole one, or in an earlier file | the disk lost or changed data that was acknowledged | the node refuses to start |
//! | a file is missing, or entries do not follow each other | the same, or somebody deleted files | the node refuses to start |

use std::io;

use bytes::Bytes;

use super::files::LogFiles;
use super::frame::{self, HEADER_BYTES, Record, SegmentName};
use super::state::{EntryLocation, LogState, Segment};
use crate::raft_types::LogId;

/// Reads all files.
pub(super) async fn recover(files: &dyn LogFiles) -> io::Result<LogState> {
    let mut names: Vec<SegmentName> = files
        .list()
        .await?
        .iter()
        .filter_map(|name| SegmentName::parse(name))
        .collect();
    names.sort_unstable();
    let mut state = LogState::default();
    let last = names.last().copied();
    let mut previous: Option<SegmentName> = None;
    for name in names {
        if previous.is_some_and(|previous| previous.number + 1 != name.number) {
            return Err(damaged(&format!("a file before {name} is missing")));
        }
        previous = Some(name);
        let is_last = Some(name) == last;
        let file_name = name.to_string();
        let size = files.size(&file_name).await?;
        let content = files
            .read(&file_name, 0, usize::try_from(size).unwrap_or(usize::MAX))
            .await?;
        let whole = read_segment(&mut state, name, &content, is_last)?;
        if whole == 0 && is_last {
            // The node died before it wrote anything into it. The next file gets its number: a gap would look like a lost file.
            files.remove(&file_name).await?;
            state.next_segment = name.number;
            continue;
        }
        if (whole as u64) < size {
            tracing::warn!(
                file = file_name,
                bytes = size - whole as u64,
                "cut off the end of the log, which was never acknowledged"
            );
            files.truncate(&file_name, whole as u64).await?;
        }
        let last_index = state.last().map(|last| last.index);
        state.segments.push_back(Segment {
            name,
            bytes: whole as u64,
            last_index,
        });
        state.next_segment = name.number + 1;
    }
    Ok(state)
}

/// Reads one file into the state. Returns the size of its whole frames.
fn read_segment(
    state: &mut LogState,
    name: SegmentName,
    content: &Bytes,
    is_last: bool,
) -> io::Result<usize> {
    let mut offset = 0;
    while offset < content.len() {
        let Some(body) = frame::body_at(name.salt, content, offset) else {
            if !is_last {
                return Err(damaged(&format!(
                    "{name} is damaged at byte {offset}, and a later file exists"
                )));
            }
            if let Some(next) = frame::next_frame(name.salt, content, offset + 1) {
                return Err(damaged(&format!(
                    "{name} is damaged at byte {offset}, before a valid part at byte {next}"
                )));
            }
            return Ok(offset);
        };
        let records = frame::decode(&body).map_err(|error| damaged(&format!("{name}: {error}")))?;
        let start = offset + HEADER_BYTES;
        for (record, position) in records {
            let location = EntryLocation {
                segment: name,
                offset: (start + position) as u64,
            };
            state
                .replay(record, location)
                .map_err(|detail| damaged(&format!("{name}, byte {offset}: {detail}")))?;
        }
        offset = start + body.len();
    }
    Ok(offset)
}

fn damaged(detail: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "the log of this node is damaged: {detail}. It contains entries that this node has acknowledged, so it must not start without \
             them. Check the disk. Then either restore the data directory as it was when the node stopped, or replace the node: remove it \
             from the cluster, delete its data directory, and add it again with a new number"
        ),
    )
}

impl LogState {
    /// Applies a stored record.
    fn replay(&mut self, record: Record, location: EntryLocation) -> Result<(), String> {
        match record {
            Record::Entry(log_id, bytes) => {
                let expected = self.next_index();
                if log_id.index != expected {
                    return Err(format!("entry {log_id} follows where {expected} must"));
                }
                let checksum = crc32fast::hash(&bytes);
                self.push_stored(log_id, location, bytes.len(), checksum);
            }
            Record::Vote(vote) => self.vote = Some(vote),
            Record::Truncate(after) => {
                self.truncate_after(after);
                // A purged entry is never truncated, but the one that the first file continues may be: it is purged only by a later
                // record, which allowed its own file to be deleted, and which may mean the entry that took its place.
                let index = |id: LogId| id.index;
                if self.purged.map(index) > after.map(index) {
                    self.purged = after;
                }
            }
            Record::Purged(log_id) => self.purge(log_id),
            Record::Continues(last) => {
                let is_first = self.segments.is_empty();
                match last {
                    // The files before this one were deleted, because nothing in them was needed.
                    Some(last) if is_first => self.purge(last),
                    last if self.last() == last => {}
                    _ => return Err("the file does not continue the one before it".to_owned()),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use openraft::vote::RaftLeaderId;

    use super::*;
    use crate::raft_types::LeaderId;

    fn id(term: u64, index: u64) -> LogId {
        LogId::new(LeaderId::new(term, 1), index)
    }

    fn replay(records: Vec<Record>) -> Result<LogState, String> {
        let mut state = LogState::default();
        let segment = SegmentName { number: 7, salt: 1 };
        for record in records {
            let location = EntryLocation { segment, offset: 0 };
            state.replay(record, location)?;
        }
        Ok(state)
    }

    fn entry(term: u64, index: u64) -> Record {
        Record::Entry(id(term, index), Bytes::from_static(b"entry"))
    }

    /// The first file continues an entry of a deleted file, which was truncated before another one in its place was purged.
    #[test]
    fn the_entry_that_the_first_file_continues_may_be_truncated() {
        let begin = || {
            vec![
                Record::Purged(id(4, 30)),
                Record::Continues(Some(id(4, 42))),
                Record::Truncate(Some(id(4, 41))),
                entry(5, 42),
                entry(5, 43),
            ]
        };
        let state = replay(begin()).unwrap();
        assert_eq!((state.first_index(), state.last()), (42, Some(id(5, 43))));
        let mut purged = begin();
        purged.push(Record::Purged(id(5, 42)));
        let state = replay(purged).unwrap();
        assert_eq!((state.first_index(), state.last()), (43, Some(id(5, 43))));
        let emptied = vec![
            Record::Continues(Some(id(1, 3))),
            Record::Truncate(None),
            entry(2, 0),
        ];
        assert_eq!(replay(emptied).unwrap().last(), Some(id(2, 0)));
        let mut missing = begin();
        missing.push(entry(5, 45));
        assert!(replay(missing).is_err());
    }
}
