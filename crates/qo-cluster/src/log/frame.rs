//! The format of a log file.
//!
//! A file is a sequence of frames. A frame is written and synced as a whole before the next one is begun:
//!
//! | field | size | content |
//! | --- | --- | --- |
//! | mark | 4 | `qoL1` |
//! | length | 4 | the size of the body |
//! | checksum | 4 | CRC-32 of the salt, the length and the body |
//! | body | | records: a kind, a length and the content |
//!
//! The salt is a random number in the name of the file, so no content can look like a frame by chance or by intent.
//!
//! Because a frame is begun only after the previous one was synced, only the last frame of the last file can be torn by a crash. It was
//! never acknowledged, so it is cut off. A damaged frame that is followed by a whole one was acknowledged: the disk has lost data, and the
//! node must not continue as if it had not ([`super::recovery`]).

use bytes::Bytes;

use crate::codec::{DecodeError, Decoder, Encoder, malformed};
use crate::raft_types::{LogId, Vote, get_log_id, get_vote, put_log_id, put_vote};

const MARK: [u8; 4] = *b"qoL1";
pub(super) const HEADER_BYTES: usize = 12;
/// No frame is larger: a group is bounded, and a frame takes only so many.
pub(super) const BODY_MAX_BYTES: usize = 1024 * 1024 * 1024;

const ENTRY: u8 = 1;
const VOTE: u8 = 2;
const TRUNCATE: u8 = 3;
const PURGED: u8 = 4;
const CONTINUES: u8 = 5;

/// The name of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SegmentName {
    pub(super) number: u64,
    pub(super) salt: u32,
}

impl SegmentName {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (number, salt) = name.strip_suffix(".log")?.split_once('-')?;
        let parsed = Self {
            number: number.parse().ok()?,
            salt: u32::from_str_radix(salt, 16).ok()?,
        };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for SegmentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:010}-{:08x}.log", self.number, self.salt)
    }
}

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// An entry in its binary form.
    Entry(LogId, Bytes),
    Vote(Vote),
    /// All entries after this one are void.
    Truncate(Option<LogId>),
    /// All entries up to this one are no longer needed.
    Purged(LogId),
    /// At the start of a file: the entry before it, which is in an earlier file or no longer needed.
    Continues(Option<LogId>),
}

/// Where an entry is in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryPlace {
    pub(super) log_id: LogId,
    pub(super) offset: usize,
    pub(super) length: usize,
    pub(super) checksum: u32,
}

/// A frame ready to be written, and where its entries are, counted from the start of the frame.
pub(super) fn encode(salt: u32, records: &[Record]) -> (Bytes, Vec<EntryPlace>) {
    let size: usize = records
        .iter()
        .map(|record| match record {
            Record::Entry(_, bytes) => bytes.len() + 32,
            _ => 64,
        })
        .sum();
    // The header is filled in at the end, so that the body is not copied.
    let mut body = Encoder::with_capacity(HEADER_BYTES + size);
    body.raw(&[0; HEADER_BYTES]);
    let mut places = Vec::new();
    for record in records {
        match record {
            Record::Entry(log_id, bytes) => {
                body.u8(ENTRY);
                put_log_id(&mut body, *log_id);
                body.bytes(bytes);
                places.push(EntryPlace {
                    log_id: *log_id,
                    offset: body.len() - bytes.len(),
                    length: bytes.len(),
                    checksum: crc32fast::hash(bytes),
                });
            }
            Record::Vote(vote) => {
                body.u8(VOTE);
                put_vote(&mut body, *vote);
            }
            Record::Truncate(after) => {
                body.u8(TRUNCATE).option(*after, put_log_id);
            }
            Record::Continues(last) => {
                body.u8(CONTINUES).option(*last, put_log_id);
            }
            Record::Purged(log_id) => {
                body.u8(PURGED);
                put_log_id(&mut body, *log_id);
            }
        }
    }
    let content = &body.written()[HEADER_BYTES..];
    let mut header = Encoder::with_capacity(HEADER_BYTES);
    header.raw(&MARK).count(content.len());
    header.u32(checksum(salt, content));
    body.overwrite(&header.finish());
    (body.finish(), places)
}

fn checksum(salt: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_be_bytes());
    hasher.update(&(body.len() as u64).to_be_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// The body of the frame at `offset`, if a whole frame is there.
pub(super) fn body_at(salt: u32, file: &Bytes, offset: usize) -> Option<Bytes> {
    let mut header = Decoder::new(
        file.get(offset..offset + HEADER_BYTES)
            .map(|slice| file.slice_ref(slice))?,
    );
    let mark: [u8; 4] = header.array().ok()?;
    let length = header.u32().ok()? as usize;
    let expected = header.u32().ok()?;
    let start = offset + HEADER_BYTES;
    if mark != MARK || length > BODY_MAX_BYTES {
        return None;
    }
    let body = file.get(start..start.checked_add(length)?)?;
    (checksum(salt, body) == expected).then(|| file.slice_ref(body))
}

/// Where the next whole frame after `offset` begins.
pub(super) fn next_frame(salt: u32, file: &Bytes, offset: usize) -> Option<usize> {
    let rest = file.get(offset..)?;
    let marks = rest.windows(MARK.len()).enumerate();
    marks
        .filter(|(_, window)| *window == MARK)
        .map(|(position, _)| offset + position)
        .find(|position| body_at(salt, file, *position).is_some())
}

/// A record, and where the entry is, counted from the start of the body.
pub(super) fn decode(body: &Bytes) -> Result<Vec<(Record, usize)>, DecodeError> {
    let mut input = Decoder::new(body.clone());
    let mut records = Vec::new();
    while !input.is_empty() {
        let mut offset = 0;
        let record = match input.u8()? {
            ENTRY => {
                let log_id = get_log_id(&mut input)?;
                let bytes = input.bytes()?;
                offset = bytes.as_ptr() as usize - body.as_ptr() as usize;
                Record::Entry(log_id, bytes)
            }
            VOTE => Record::Vote(get_vote(&mut input)?),
            TRUNCATE => Record::Truncate(input.option(get_log_id)?),
            PURGED => Record::Purged(get_log_id(&mut input)?),
            CONTINUES => Record::Continues(input.option(get_log_id)?),
            kind => {
                return malformed(format!(
                    "a record has the kind {kind}, which this version of qo does not know: use a newer version of qo"
                ));
            }
        };
        records.push((record, offset));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft_types::LeaderId;
    use openraft::vote::RaftLeaderId;

    fn records() -> Vec<Record> {
        let id = |index| LogId::new(LeaderId::new(2, 1), index);
        vec![
            Record::Vote(Vote::new_committed(2, 1)),
            Record::Entry(id(4), Bytes::from_static(b"four")),
            Record::Truncate(Some(id(4))),
            Record::Entry(id(5), Bytes::from_static(b"five")),
            Record::Purged(id(4)),
            Record::Truncate(None),
            Record::Continues(Some(id(3))),
        ]
    }

    #[test]
    fn frames_can_be_read_back() {
        let (frame, places) = encode(7, &records());
        let body = body_at(7, &frame, 0).unwrap();
        let decoded = decode(&body).unwrap();
        let read: Vec<_> = decoded.iter().map(|(record, _)| record.clone()).collect();
        assert_eq!(read, records());
        assert_eq!(places.len(), 2);
        let five = &frame[places[1].offset..places[1].offset + places[1].length];
        assert_eq!(five, b"five");
        assert_eq!(decoded[3].1 + HEADER_BYTES, places[1].offset);
    }

    #[test]
    fn damage_is_noticed_at_every_byte() {
        let (frame, _) = encode(7, &records());
        assert!(body_at(8, &frame, 0).is_none(), "another salt");
        for position in 0..frame.len() {
            let mut damaged = frame.to_vec();
            damaged[position] ^= 1;
            assert!(body_at(7, &damaged.into(), 0).is_none(), "{position}");
            assert!(body_at(7, &frame.slice(..position), 0).is_none());
        }
    }

    #[test]
    fn names_can_be_read_back() {
        let name = SegmentName {
            number: 12,
            salt: 0xabc,
        };
        assert_eq!(name.to_string(), "0000000012-00000abc.log");
        assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        for bad in [
            "",
            "1-2.log",
            "0000000012-00000ABC.log",
            "x.log",
            "0000000012-00000abc.tmp",
        ] {
            assert_eq!(SegmentName::parse(bad), None, "{bad}");
        }
    }
}
