//! The object that says who leads.

use std::time::Duration;

use bytes::Bytes;
use qo_core::extra::Extra;
use qo_core::keys::BROKER_KEY;
use qo_core::limits::COUNT_MAX;
use qo_core::{OpId, Timestamp};
use qo_store::client::Tag;
use qo_store::{StoreClient, StoreError};
use serde::{Deserialize, Serialize};

use super::{ANSWER_TIME_DEFAULT_MS, ANSWER_TIME_MAX_MS, ElectionError};

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
    /// How long it may take to answer a challenge, in milliseconds. For most of that time it trusts that nobody else leads, so that a
    /// challenger, whatever its own settings are, waits for at least as long.
    #[serde(default = "answer_time_default_ms")]
    pub answer_time_ms: u64,
}

fn answer_time_default_ms() -> u64 {
    ANSWER_TIME_DEFAULT_MS
}

/// A doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// Who has it.
    pub by: String,
    /// Since when.
    pub at: Timestamp,
}

/// The object as it was read.
pub(super) type Seen = (BrokerRecord, Tag);

/// Reads the object; nothing, if there never was a broker.
pub(super) async fn read(client: &StoreClient) -> Result<Option<Seen>, ElectionError> {
    match client.get(BROKER_KEY).await {
        Ok(object) => Ok(Some((BrokerRecord::decode(&object.body)?, object.tag))),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl BrokerRecord {
    /// Who leads, or led last; nothing, if there never was a broker.
    pub async fn read(client: &StoreClient) -> Result<Option<Self>, ElectionError> {
        Ok(read(client).await?.map(|(record, _)| record))
    }

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

    /// How long the leader has to answer a challenge. A record that asks for more than can be set is not believed.
    pub(super) fn answer_time(&self) -> Duration {
        let ms = self
            .holder
            .as_ref()
            .map_or(0, |holder| holder.answer_time_ms);
        Duration::from_millis(ms.min(ANSWER_TIME_MAX_MS))
    }

    /// Whether this is the epoch of that process.
    pub(super) fn is_held_by(&self, id: &str, epoch: u64) -> bool {
        self.epoch == epoch && self.holder.as_ref().is_some_and(|holder| holder.id == id)
    }

    /// Why somebody else does not lead.
    pub(super) fn lost(&self) -> ElectionError {
        let nobody = || "nobody".to_owned();
        ElectionError::Lost {
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

    pub(super) fn encode(&self) -> Result<Bytes, ElectionError> {
        serde_json::to_vec_pretty(self)
            .map(Bytes::from)
            .map_err(|error| unreadable(&error))
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, ElectionError> {
        let record: Self = serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
        if record.revision.max(record.epoch) > COUNT_MAX {
            return Err(ElectionError::Unreadable {
                key: BROKER_KEY,
                detail: "it counts further than anybody does".to_owned(),
            });
        }
        Ok(record)
    }
}

fn unreadable(error: &serde_json::Error) -> ElectionError {
    ElectionError::Unreadable {
        key: BROKER_KEY,
        detail: error.to_string(),
    }
}
