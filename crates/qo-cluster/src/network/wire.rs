//! The binary forms of requests and responses.

use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};
use qo_broker::rows::Row;

use crate::codec::{DecodeError, Decoder, Encoder, malformed};
use crate::proposal::put_row;
use crate::raft_types::{
    LogId, TypeConfig, Vote, entry_size, get_entry, get_log_id, get_vote, put_entry, put_log_id,
    put_vote,
};

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const SNAPSHOT_BEGIN: u8 = 4;
const SNAPSHOT_ROWS: u8 = 5;
const SNAPSHOT_END: u8 = 6;
const TRANSFER: u8 = 7;
/// Begins a message that names its group. The message itself follows.
pub(crate) const GROUPED: u8 = 8;

const OK: u8 = 0;
const FAILED: u8 = 1;

/// A request of another node.
pub(crate) enum NodeRequest {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<TypeConfig>),
    PreVote(VoteRequest<TypeConfig>),
    /// The rows of a snapshot follow. The number tells transfers apart.
    SnapshotBegin {
        transfer: u64,
    },
    SnapshotRows {
        transfer: u64,
        /// The position of this part.
        part: u64,
        rows: Vec<Row>,
    },
    /// All rows were sent.
    SnapshotEnd {
        transfer: u64,
        vote: Vote,
        parts: u64,
        /// The last entry that the snapshot contains.
        last: Option<LogId>,
    },
    Transfer(TransferLeaderRequest<TypeConfig>),
}

pub(crate) fn append_request(request: &AppendEntriesRequest<TypeConfig>) -> Bytes {
    let size: usize = request.entries.iter().map(entry_size).sum();
    let mut out = Encoder::with_capacity(size + 128);
    out.u8(APPEND);
    put_vote(&mut out, request.vote);
    out.option(request.prev_log_id, put_log_id)
        .option(request.leader_commit, put_log_id)
        .count(request.entries.len());
    for entry in &request.entries {
        put_entry(&mut out, entry);
    }
    out.finish()
}

pub(crate) fn vote_request(request: &VoteRequest<TypeConfig>, is_pre_vote: bool) -> Bytes {
    let mut out = Encoder::default();
    out.u8(if is_pre_vote { PRE_VOTE } else { VOTE });
    put_vote(&mut out, request.vote);
    out.option(request.last_log_id, put_log_id)
        .u8(u8::from(request.leadership_transfer));
    out.finish()
}

pub(crate) fn transfer_request(request: &TransferLeaderRequest<TypeConfig>) -> Bytes {
    let mut out = Encoder::default();
    out.u8(TRANSFER);
    put_vote(&mut out, *request.from_leader());
    out.u64(*request.to_node_id())
        .option(request.last_log_id().copied(), put_log_id);
    out.finish()
}

pub(crate) fn snapshot_begin(transfer: u64) -> Bytes {
    let mut out = Encoder::default();
    out.u8(SNAPSHOT_BEGIN).u64(transfer);
    out.finish()
}

pub(crate) fn snapshot_rows(transfer: u64, part: u64, rows: &[Row]) -> Bytes {
    let mut out = Encoder::default();
    out.u8(SNAPSHOT_ROWS)
        .u64(transfer)
        .u64(part)
        .count(rows.len());
    for row in rows {
        put_row(&mut out, row);
    }
    out.finish()
}

pub(crate) fn snapshot_end(transfer: u64, vote: Vote, parts: u64, last: Option<LogId>) -> Bytes {
    let mut out = Encoder::default();
    out.u8(SNAPSHOT_END).u64(transfer);
    put_vote(&mut out, vote);
    out.u64(parts).option(last, put_log_id);
    out.finish()
}

impl NodeRequest {
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(bytes);
        let request = match input.u8()? {
            APPEND => {
                let vote = get_vote(&mut input)?;
                let prev_log_id = input.option(get_log_id)?;
                let leader_commit = input.option(get_log_id)?;
                let count = input.count(25)?;
                let entries = (0..count).map(|_| get_entry(&mut input));
                Self::Append(AppendEntriesRequest {
                    vote,
                    prev_log_id,
                    entries: entries.collect::<Result<_, _>>()?,
                    leader_commit,
                })
            }
            VOTE => Self::Vote(get_vote_request(&mut input)?),
            PRE_VOTE => Self::PreVote(get_vote_request(&mut input)?),
            TRANSFER => {
                let from = get_vote(&mut input)?;
                let to = input.u64()?;
                let last = input.option(get_log_id)?;
                Self::Transfer(TransferLeaderRequest::new(from, to, last))
            }
            SNAPSHOT_BEGIN => Self::SnapshotBegin {
                transfer: input.u64()?,
            },
            SNAPSHOT_ROWS => {
                let (transfer, part) = (input.u64()?, input.u64()?);
                let count = input.count(9)?;
                let rows = (0..count).map(|_| get_row(&mut input));
                Self::SnapshotRows {
                    transfer,
                    part,
                    rows: rows.collect::<Result<_, _>>()?,
                }
            }
            SNAPSHOT_END => {
                let transfer = input.u64()?;
                let vote = get_vote(&mut input)?;
                Self::SnapshotEnd {
                    transfer,
                    vote,
                    parts: input.u64()?,
                    last: input.option(get_log_id)?,
                }
            }
            kind => {
                return malformed(format!(
                    "this version of qo does not know requests of kind {kind}: update this node"
                ));
            }
        };
        input.end()?;
        Ok(request)
    }
}

fn get_vote_request(input: &mut Decoder) -> Result<VoteRequest<TypeConfig>, DecodeError> {
    let mut request = VoteRequest::new(get_vote(input)?, input.option(get_log_id)?);
    request.leadership_transfer = input.u8()? == 1;
    Ok(request)
}

fn get_row(input: &mut Decoder) -> Result<Row, DecodeError> {
    let kind = input.u8()?;
    let key = input.bytes()?;
    let expires_at = match kind {
        1 => None,
        2 => Some(qo_core::Timestamp::from_millis(input.i64()?)),
        _ => return malformed("a row has an unknown kind"),
    };
    Ok(Row {
        key,
        value: input.bytes()?,
        expires_at,
    })
}

/// A response that the request failed.
pub(crate) fn failed(reason: &str) -> Bytes {
    let mut out = Encoder::default();
    out.u8(FAILED).bytes(reason.as_bytes());
    out.finish()
}

pub(crate) fn done() -> Bytes {
    Bytes::from_static(&[OK])
}

pub(crate) fn append_response(response: &AppendEntriesResponse<TypeConfig>) -> Bytes {
    let mut out = Encoder::default();
    out.u8(OK);
    match response {
        AppendEntriesResponse::Success => {
            out.u8(0);
        }
        AppendEntriesResponse::PartialSuccess(log_id) => {
            out.u8(1).option(*log_id, put_log_id);
        }
        AppendEntriesResponse::Conflict => {
            out.u8(2);
        }
        AppendEntriesResponse::HigherVote(vote) => {
            out.u8(3);
            put_vote(&mut out, *vote);
        }
    }
    out.finish()
}

pub(crate) fn vote_response(response: &VoteResponse<TypeConfig>) -> Bytes {
    let mut out = Encoder::default();
    out.u8(OK);
    put_vote(&mut out, response.vote);
    out.u8(u8::from(response.vote_granted))
        .option(response.last_log_id, put_log_id);
    out.finish()
}

pub(crate) fn snapshot_response(response: &SnapshotResponse<TypeConfig>) -> Bytes {
    let mut out = Encoder::default();
    out.u8(OK);
    put_vote(&mut out, response.vote);
    out.finish()
}

/// The content of a response. The error is the other node's.
pub(crate) fn open_response(bytes: Bytes) -> Result<Decoder, DecodeError> {
    let mut input = Decoder::new(bytes);
    match input.u8()? {
        OK => Ok(input),
        FAILED => Err(DecodeError(input.text()?)),
        _ => malformed("a response is neither a success nor a failure"),
    }
}

pub(crate) fn read_append_response(
    bytes: Bytes,
) -> Result<AppendEntriesResponse<TypeConfig>, DecodeError> {
    let mut input = open_response(bytes)?;
    let response = match input.u8()? {
        0 => AppendEntriesResponse::Success,
        1 => AppendEntriesResponse::PartialSuccess(input.option(get_log_id)?),
        2 => AppendEntriesResponse::Conflict,
        3 => AppendEntriesResponse::HigherVote(get_vote(&mut input)?),
        _ => return malformed("a response to entries is of an unknown kind"),
    };
    input.end()?;
    Ok(response)
}

pub(crate) fn read_vote_response(bytes: Bytes) -> Result<VoteResponse<TypeConfig>, DecodeError> {
    let mut input = open_response(bytes)?;
    let vote = get_vote(&mut input)?;
    let is_granted = input.u8()? == 1;
    let last_log_id = input.option(get_log_id)?;
    input.end()?;
    Ok(VoteResponse::new(vote, last_log_id, is_granted))
}

pub(crate) fn read_snapshot_response(
    bytes: Bytes,
) -> Result<SnapshotResponse<TypeConfig>, DecodeError> {
    let mut input = open_response(bytes)?;
    let vote = get_vote(&mut input)?;
    input.end()?;
    Ok(SnapshotResponse::new(vote))
}
