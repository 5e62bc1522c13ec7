//! The object that says who leads.

use bytes::Bytes;
use qo_core::extra::Extra;
use qo_core::keys::BROKER_KEY;
use qo_core::limits::COUNT_MAX;
use qo_core::{OpId, Timestamp};
use serde::{Deserialize, Serialize};

use super::LeadershipError;

/// How many earlier writes the record names, so that each is recognised although others have built upon it.
const RECENT_OPS_MAX: usize = 16;

/// Who leads, or led last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrokerRecord {
    /// Counts the leaders.
    pub epoch: u64,
    /// The leader; nobody, once it has stopped cleanly.
    pub holder: Option<Holder>,
    /// Who doubts that the leader is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
    /// Counts the writes, so that no two states of the record have the same bytes.
    pub revision: u64,
    /// Names the write that made this state.
    pub op_id: OpId,
    /// Names the writes before it, the newest first.
    #[serde(default)]
    pub recent_ops: Vec<OpId>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Names the process.
    pub id: String,
    /// Where it is reached; nowhere, if it serves only its own process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Since when it leads.
    pub since: Timestamp,
    /// When it last said that it is there.
    pub heartbeat: Timestamp,
}

/// A doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// Who has it.
    pub by: String,
    /// Since when.
    pub at: Timestamp,
}

impl BrokerRecord {
    /// The first record that there is.
    pub(super) fn first(holder: Holder, op: OpId) -> Self {
        Self {
            epoch: 1,
            holder: Some(holder),
            challenge: None,
            revision: 1,
            op_id: op,
            recent_ops: Vec::new(),
            extra: Extra::default(),
        }
    }

    /// The next state, not changed otherwise.
    pub(super) fn next(&self, op: OpId) -> Self {
        let mut next = self.clone();
        next.recent_ops.insert(0, self.op_id);
        next.recent_ops.truncate(RECENT_OPS_MAX);
        next.revision += 1;
        next.op_id = op;
        next
    }

    /// Whether this is the epoch of that process.
    pub(super) fn is_held_by(&self, id: &str, epoch: u64) -> bool {
        self.epoch == epoch && self.holder.as_ref().is_some_and(|holder| holder.id == id)
    }

    /// Why somebody else does not lead.
    pub(super) fn lost(&self) -> LeadershipError {
        let nobody = || "nobody".to_owned();
        LeadershipError::Lost {
            epoch: self.epoch,
            holder: self
                .holder
                .as_ref()
                .map_or_else(nobody, |holder| holder.id.clone()),
            address: self
                .holder
                .as_ref()
                .and_then(|holder| holder.address.clone())
                .unwrap_or_else(|| "no address".to_owned()),
        }
    }

    pub(super) fn encode(&self) -> Result<Bytes, LeadershipError> {
        serde_json::to_vec_pretty(self)
            .map(Bytes::from)
            .map_err(|error| unreadable(&error))
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, LeadershipError> {
        let record: Self = serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
        if record.revision.max(record.epoch) > COUNT_MAX {
            return Err(LeadershipError::Unreadable {
                key: BROKER_KEY,
                detail: "it counts further than anybody does".to_owned(),
            });
        }
        Ok(record)
    }
}

fn unreadable(error: &serde_json::Error) -> LeadershipError {
    LeadershipError::Unreadable {
        key: BROKER_KEY,
        detail: error.to_string(),
    }
}
