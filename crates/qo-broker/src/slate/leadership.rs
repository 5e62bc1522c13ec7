//! Who writes.
//!
//! SlateDB fences out an old writer: its next write fails. A read needs more, because it writes nothing and would learn of
//! nothing. So every engine that opens the database first puts its mark into one small object, by compare-and-swap, and before
//! an answer is given that no write of its own has confirmed, the mark is looked at again (a conditional GET, answered 304).
//!
//! | step of a takeover | the old one | the new one |
//! | --- | --- | --- |
//! | 1. the mark is replaced | answers no more reads; its writes still count | |
//! | 2. the database is opened | its writes fail, for good | |
//! | 3. what is durable is loaded | | holds all that was ever acknowledged |

use std::time::Duration;

use bytes::Bytes;
use qo_core::{OpId, Timestamp};
use qo_store::client::Tag;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use serde::{Deserialize, Serialize};

use qo_engine::EngineError;

/// Where the mark is.
const KEY: &str = "meta/writer.json";
/// How often the mark is tried to be put where others do the same.
const TRIES_MAX: u32 = 32;
/// How many earlier marks are remembered, so that a write whose answer was lost is recognised.
const RECENT_OPS_MAX: usize = 32;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Mark {
    /// How many writers there were.
    epoch: u64,
    op_id: Option<OpId>,
    #[serde(default)]
    recent_ops: Vec<OpId>,
    #[serde(default)]
    taken_at: Option<Timestamp>,
}

/// This engine's mark.
#[derive(Debug, Clone)]
pub(super) struct Leadership {
    client: StoreClient,
    tag: Tag,
}

impl Leadership {
    /// Puts the mark, whoever has it.
    pub(super) async fn take(
        client: &StoreClient,
        runtime: &dyn Runtime,
    ) -> Result<Self, EngineError> {
        let op = runtime.new_op_id();
        for round in 0..TRIES_MAX {
            if round > 0 {
                let pause_ms = runtime.random_below(u64::from(round) * 20);
                runtime.sleep(Duration::from_millis(pause_ms)).await;
            }
            let (mut mark, tag) = match client.get(KEY).await {
                Ok(object) => {
                    let mark: Mark =
                        serde_json::from_slice(&object.body).map_err(|error| corrupt(&error))?;
                    (mark, Some(object.tag))
                }
                Err(StoreError::NotFound { .. }) => (Mark::default(), None),
                Err(error) => return Err(error.into()),
            };
            mark.epoch = mark.epoch.saturating_add(1);
            mark.recent_ops.extend(mark.op_id.replace(op));
            let excess = mark.recent_ops.len().saturating_sub(RECENT_OPS_MAX);
            mark.recent_ops.drain(..excess);
            mark.taken_at = Some(client.now());
            let body = Bytes::from(serde_json::to_vec(&mark).map_err(|error| corrupt(&error))?);
            let written = match &tag {
                Some(tag) => client.swap(KEY, body, tag, &op).await,
                None => client.create(KEY, body, &op).await,
            };
            match written {
                Ok(written) => match written.tag() {
                    Some(tag) => {
                        return Ok(Self {
                            client: client.clone(),
                            tag: tag.clone(),
                        });
                    }
                    // Somebody came after us already, and has it.
                    None => return Err(EngineError::NotLeader),
                },
                Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Store(StoreError::Conflict {
            key: KEY.to_owned(),
        }))
    }

    /// Makes sure that nobody has taken over.
    pub(super) async fn check(&self) -> Result<(), EngineError> {
        match self.client.get_if_changed(KEY, &self.tag).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(StoreError::NotFound { .. }) => Err(EngineError::NotLeader),
            Err(error) => Err(error.into()),
        }
    }
}

fn corrupt(error: &serde_json::Error) -> EngineError {
    EngineError::Store(StoreError::Corrupt {
        key: KEY.to_owned(),
        detail: error.to_string(),
    })
}
