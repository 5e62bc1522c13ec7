//! The log of a node in a readable form.

use openraft::EntryPayload;

use crate::error::ClusterError;
use crate::node::ClusterNode;
use crate::proposal::Action;
use crate::raft_types::Entry;
use crate::status::LogLine;

/// The most entries that one call lists.
const LOG_LIMIT_MAX: usize = 1_000;

impl ClusterNode {
    /// Entries of this node's log, from the first one that is kept or `from`, up to `limit`.
    pub async fn log(&self, from: Option<u64>, limit: usize) -> Result<Vec<LogLine>, ClusterError> {
        let limit = limit.clamp(1, LOG_LIMIT_MAX);
        let from = from.unwrap_or(0).max(self.shared.log.stats().first_index);
        let mut lines = Vec::new();
        while lines.len() < limit {
            let next = from + lines.len() as u64;
            let end = from + limit as u64;
            let entries = self.shared.log.read(next, end).await?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                lines.push(line_of(&entry)?);
            }
        }
        Ok(lines)
    }
}

fn line_of(entry: &Entry) -> Result<LogLine, ClusterError> {
    let mut line = LogLine {
        index: entry.log_id.index,
        term: entry.log_id.leader_id.term,
        node: entry.log_id.leader_id.node_id,
        kind: "blank",
        time: None,
        rows: 0,
        bytes: 0,
        commands: Vec::new(),
        voters: Vec::new(),
    };
    match &entry.payload {
        EntryPayload::Blank => {}
        EntryPayload::Membership(members) => {
            line.kind = "members";
            line.voters = members.voter_ids().collect();
        }
        EntryPayload::Normal(proposal) => {
            line.bytes = proposal.as_bytes().len();
            let decoded = proposal.decode().map_err(std::io::Error::from)?;
            line.time = Some(decoded.time);
            let (kind, rows) = match decoded.action {
                Action::Barrier => ("barrier", 0),
                Action::Group {
                    commands, writes, ..
                } => {
                    line.commands = commands;
                    ("group", writes.len())
                }
                Action::Rows(writes) => ("rows", writes.len()),
                Action::Sweep { .. } => ("sweep", 0),
            };
            line.kind = kind;
            line.rows = rows;
        }
    }
    Ok(line)
}
