//! The broker record, the object that names the leader.

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

/// How many earlier writes the record names, so that a process recognises its write after later ones.
const RECENT_OPS_MAX: usize = 16;

/// The current or last leader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrokerRecord {
    /// The number of the leadership, starting at 1.
    pub epoch: u64,
    /// The leader. `None` once it has stopped cleanly.
    pub holder: Option<Holder>,
    /// The challenge of a standby that does not reach the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
    /// The number of writes, so that no two states of the record have the same bytes.
    pub revision: u64,
    /// The operation id of the last write.
    pub op_id: OpId,
    /// The operation ids of the writes before it, the newest first.
    #[serde(default)]
    pub recent_ops: Vec<OpId>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The id of the process.
    pub id: String,
    /// The address where clients reach it. `None` if it serves only its own process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Since when it leads.
    pub since: Timestamp,
    /// The time of its last heartbeat.
    pub heartbeat: Timestamp,
    /// How long it may take to answer a challenge, in milliseconds. For most of that time it relies on being the only leader, so a
    /// challenger waits at least as long, whatever its own settings are.
    #[serde(default = "answer_time_default_ms")]
    pub answer_time_ms: u64,
}

fn answer_time_default_ms() -> u64 {
    ANSWER_TIME_DEFAULT_MS
}

/// A challenge to the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// The id of the challenger.
    pub by: String,
    /// The time of the challenge.
    pub at: Timestamp,
}

/// A record and its tag in the store.
pub(super) type TaggedRecord = (BrokerRecord, Tag);

/// Reads the record. `None` if there has never been a broker.
pub(super) async fn read(client: &StoreClient) -> Result<Option<TaggedRecord>, ElectionError> {
    match client.get(BROKER_KEY).await {
        Ok(object) => Ok(Some((BrokerRecord::decode(&object.body)?, object.tag))),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The error for a request that was given up after `limit`.
pub(super) fn no_response(limit: Duration) -> StoreError {
    StoreError::Unavailable {
        key: BROKER_KEY.to_owned(),
        detail: format!("no response within {limit:?}"),
        attempts: 1,
        elapsed: limit,
        in_doubt: false,
    }
}

impl BrokerRecord {
    /// Reads the record of the current or last leader. `None` if there has never been a broker.
    pub async fn read(client: &StoreClient) -> Result<Option<Self>, ElectionError> {
        Ok(read(client).await?.map(|(record, _)| record))
    }

    /// The record of the first leader.
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

    /// A copy of this record for the next write.
    pub(super) fn next(&self, op: OpId) -> Self {
        let mut next = self.clone();
        next.recent_ops.insert(0, self.op_id);
        next.recent_ops.truncate(RECENT_OPS_MAX);
        next.revision += 1;
        next.op_id = op;
        next
    }

    /// How long the leader has to answer a challenge, capped at the largest valid setting.
    pub(super) fn answer_time(&self) -> Duration {
        let ms = self
            .holder
            .as_ref()
            .map_or(0, |holder| holder.answer_time_ms);
        Duration::from_millis(ms.min(ANSWER_TIME_MAX_MS))
    }

    /// Whether the process `id` leads in this epoch.
    pub(super) fn is_held_by(&self, id: &str, epoch: u64) -> bool {
        self.epoch == epoch && self.holder.as_ref().is_some_and(|holder| holder.id == id)
    }

    /// The error for a process that no longer leads.
    pub(super) fn lost(&self) -> ElectionError {
        let none = || "none".to_owned();
        ElectionError::Lost {
            epoch: self.epoch,
            holder: self
                .holder
                .as_ref()
                .map_or_else(none, |holder| holder.id.clone()),
            address: self
                .holder
                .as_ref()
                .and_then(|holder| holder.address.clone())
                .unwrap_or_else(none),
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
                detail: "a counter is out of range".to_owned(),
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
