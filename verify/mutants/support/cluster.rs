//! What planted bugs do at the ports of a simulated cluster, as `verify/sim/src/cluster/bugs.rs` of the copy that contains them.

use std::io;

use bytes::Bytes;
use qo_broker::rows::{Row, RowWrite};
use qo_cluster::{MemoryRows, RowChange, RowSnapshot, RowStage, RowStore};

use crate::random::Random;

/// A response that everything is fine.
pub(super) const SUCCESS: &[u8] = &[0, 0];
/// The first byte of a message with entries, and of those that ask for a vote.
const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
/// Of one that names its group, and the bytes before the message itself.
const GROUPED: u8 = 8;
const GROUPED_BYTES: usize = 9;
/// A message with entries is larger than this.
const WITHOUT_ENTRIES_BYTES: usize = 200;
/// The bytes of a vote in a message: term, node, and whether it is committed.
const VOTE_BYTES: usize = 17;
/// The key of the row that says what is applied.
const APPLIED: &[u8] = b"\0applied";

/// A message without the name of its group.
fn inner(message: &[u8]) -> &[u8] {
    match message.first() {
        Some(&GROUPED) => message.get(GROUPED_BYTES..).unwrap_or_default(),
        _ => message,
    }
}

pub(super) fn has_entries(message: &[u8]) -> bool {
    inner(message).first() == Some(&APPEND) && message.len() > WITHOUT_ENTRIES_BYTES
}

/// Names the next group in a message with entries, now and then.
pub(super) fn misdirected(message: Bytes, dice: &mut Random) -> Bytes {
    let is_grouped = message.first() == Some(&GROUPED);
    if !is_grouped || inner(&message).first() != Some(&APPEND) || !dice.chance(0.05) {
        return message;
    }
    let mut other = message.to_vec();
    // Both numbers are below 256: the groups, and the group.
    let (groups, group) = (other[4], other[8]);
    other[8] = (group + 1) % groups;
    Bytes::from(other)
}

/// Whether a vote is wanted for the term of the vote that a node has given.
pub(super) fn is_same_term(wanted: &[u8], held: &[u8]) -> bool {
    wanted[..8] == held[..8]
}

/// Whether a vote is wanted for the term of the vote that a node has given, or a later one.
pub(super) fn is_new_term(wanted: &[u8], held: &[u8]) -> bool {
    wanted[..8] >= held[..8]
}

/// The response to a message. A vote that was refused is given, if `gives` says so.
pub(super) fn with_vote(message: &[u8], response: Bytes, gives: fn(&[u8], &[u8]) -> bool) -> Bytes {
    let message = inner(message);
    let is_vote = matches!(message.first(), Some(&(VOTE | PRE_VOTE)));
    let (Some(wanted), Some(held)) = (message.get(1..=VOTE_BYTES), response.get(1..=VOTE_BYTES))
    else {
        return response;
    };
    if !is_vote || !gives(wanted, held) || response.first() != Some(&0) {
        return response;
    }
    let mut given = vec![0];
    given.extend_from_slice(wanted);
    // Granted, and no entry is known.
    given.extend([1, 0]);
    Bytes::from(given)
}

pub(super) fn is_key(change: &RowChange) -> bool {
    matches!(change, RowChange::Write(RowWrite::Put(row)) if row.key.first() == Some(&b'k'))
}

pub(super) fn is_delete(change: &RowChange) -> bool {
    matches!(change, RowChange::Write(RowWrite::Delete(_)))
}

/// Writes the changes without some.
pub(super) fn write_but(
    rows: &MemoryRows,
    changes: &[RowChange],
    is_forgotten: fn(&RowChange) -> bool,
) -> io::Result<()> {
    let mut kept = changes.iter().filter(|change| !is_forgotten(change));
    kept.try_for_each(|change| rows.write(std::slice::from_ref(change)))
}

/// Forgets what was not synced, except for the position of the log.
pub(super) fn crash_without_position(rows: &MemoryRows) {
    let position = rows.get(APPLIED).ok().flatten();
    rows.crash();
    if let Some(row) = position {
        // A disk that is full cannot be spoilt further.
        let _ = rows.write(&[RowChange::Write(RowWrite::Put(row))]);
    }
}

/// A snapshot without the rows of a kind.
pub(super) fn snapshot_without(rows: &MemoryRows, kind: u8) -> io::Result<Box<dyn RowSnapshot>> {
    let view = rows.snapshot()?;
    Ok(Box::new(PartialSnapshot { view, kind }))
}

struct PartialSnapshot {
    view: Box<dyn RowSnapshot>,
    kind: u8,
}

impl RowSnapshot for PartialSnapshot {
    fn get(&self, key: &[u8]) -> io::Result<Option<Row>> {
        self.view.get(key)
    }

    fn next_page(&mut self) -> io::Result<Vec<Row>> {
        let mut page = self.view.next_page()?;
        page.retain(|row| row.key.first() != Some(&self.kind));
        Ok(page)
    }
}

/// A stage that leaves out every second row of the queue.
pub(super) fn incomplete_stage(rows: &MemoryRows) -> io::Result<Box<dyn RowStage>> {
    Ok(Box::new(IncompleteStage(rows.stage()?)))
}

struct IncompleteStage(Box<dyn RowStage>);

impl RowStage for IncompleteStage {
    fn add(&mut self, mut rows: Vec<Row>) -> io::Result<()> {
        let mut number = 0;
        rows.retain(|row| {
            number += 1;
            number % 2 == 0 || matches!(row.key.first(), Some(0 | b'm'))
        });
        self.0.add(rows)
    }

    fn install(&mut self) -> io::Result<()> {
        self.0.install()
    }
}
