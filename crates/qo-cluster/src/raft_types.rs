//! The types that openraft is used with, and their binary forms.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::vote::RaftLeaderId;
use openraft::{EntryPayload, Membership, StoredMembership};

use crate::codec::{DecodeError, Decoder, Encoder, malformed};
use crate::config::Member;
use crate::proposal::{Applied, Proposal};
use crate::runtime::NodeRuntime;

openraft::declare_raft_types!(
    /// The types of a node.
    pub TypeConfig:
        D = Proposal,
        R = Applied,
        NodeId = u64,
        Node = Member,
        AsyncRuntime = NodeRuntime,
);

pub(crate) type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, u64>;
pub(crate) type LogId = openraft::LogId<LeaderId>;
pub(crate) type Vote = openraft::impls::Vote<LeaderId>;
pub(crate) type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
pub(crate) type Members = Membership<u64, Member>;
pub(crate) type StoredMembers = StoredMembership<LeaderId, u64, Member>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;

const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

pub(crate) fn put_log_id(out: &mut Encoder, id: LogId) {
    out.u64(id.leader_id.term)
        .u64(id.leader_id.node_id)
        .u64(id.index);
}

pub(crate) fn get_log_id(input: &mut Decoder) -> Result<LogId, DecodeError> {
    let (term, node) = (input.u64()?, input.u64()?);
    Ok(LogId::new(LeaderId::new(term, node), input.u64()?))
}

pub(crate) fn put_vote(out: &mut Encoder, vote: Vote) {
    out.u64(vote.leader_id.term)
        .u64(vote.leader_id.node_id)
        .u8(u8::from(vote.committed));
}

pub(crate) fn get_vote(input: &mut Decoder) -> Result<Vote, DecodeError> {
    let (term, node) = (input.u64()?, input.u64()?);
    match input.u8()? {
        0 => Ok(Vote::new(term, node)),
        1 => Ok(Vote::new_committed(term, node)),
        _ => malformed("a vote is neither committed nor not"),
    }
}

pub(crate) fn put_members(out: &mut Encoder, members: &Members) {
    let configs = members.get_joint_config();
    out.count(configs.len());
    for config in configs {
        out.count(config.len());
        for node in config {
            out.u64(*node);
        }
    }
    let nodes: Vec<_> = members.nodes().collect();
    out.count(nodes.len());
    for (node, member) in nodes {
        out.u64(*node)
            .u64(member.node)
            .bytes(member.address.as_bytes())
            .bytes(member.url.as_bytes());
    }
}

pub(crate) fn get_members(input: &mut Decoder) -> Result<Members, DecodeError> {
    let mut configs = Vec::new();
    for _ in 0..input.count(4)? {
        let mut config = BTreeSet::new();
        for _ in 0..input.count(8)? {
            config.insert(input.u64()?);
        }
        configs.push(config);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..input.count(24)? {
        let node = input.u64()?;
        let member = Member {
            node: input.u64()?,
            address: input.text()?,
            url: input.text()?,
        };
        nodes.insert(node, member);
    }
    Members::new(configs, nodes).map_err(|error| DecodeError(error.to_string()))
}

pub(crate) fn put_stored_members(out: &mut Encoder, members: &StoredMembers) {
    out.option(*members.log_id(), put_log_id);
    put_members(out, members.membership());
}

pub(crate) fn get_stored_members(input: &mut Decoder) -> Result<StoredMembers, DecodeError> {
    let log_id = input.option(get_log_id)?;
    Ok(StoredMembers::new(log_id, get_members(input)?))
}

/// The binary form of an entry, in the log and between nodes.
pub(crate) fn put_entry(out: &mut Encoder, entry: &Entry) {
    put_log_id(out, entry.log_id);
    match &entry.payload {
        EntryPayload::Blank => {
            out.u8(BLANK);
        }
        EntryPayload::Normal(proposal) => {
            out.u8(NORMAL).bytes(proposal.as_bytes());
        }
        EntryPayload::Membership(members) => {
            out.u8(MEMBERSHIP);
            put_members(out, members);
        }
    }
}

pub(crate) fn get_entry(input: &mut Decoder) -> Result<Entry, DecodeError> {
    let log_id = get_log_id(input)?;
    let payload = match input.u8()? {
        BLANK => EntryPayload::Blank,
        NORMAL => EntryPayload::Normal(Proposal::from_bytes(input.bytes()?)),
        MEMBERSHIP => EntryPayload::Membership(get_members(input)?),
        kind => {
            return malformed(format!(
                "entry {log_id} has the kind {kind}, which this version of qo does not know: use a newer version of qo"
            ));
        }
    };
    Ok(Entry { log_id, payload })
}

/// About how many bytes an entry needs.
pub(crate) fn entry_size(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(proposal) => proposal.as_bytes().len() + 32,
        _ => 288,
    }
}

/// The bytes of an entry alone.
pub(crate) fn entry_bytes(entry: &Entry) -> Bytes {
    let mut out = Encoder::with_capacity(entry_size(entry));
    put_entry(&mut out, entry);
    out.finish()
}
