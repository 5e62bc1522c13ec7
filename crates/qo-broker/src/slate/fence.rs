//! The writer fence, which says which process is the writer of the database.
//!
//! SlateDB fences out an old writer: its next write fails. That does not protect reads, which write nothing. So every engine that
//! opens the database first replaces one small object, the fence, by compare-and-swap. Before an engine sends a response that none of
//! its own writes has confirmed, it checks that the fence has not changed (a conditional GET with the response 304; see
//! [`crate::rows`]).
//!
//! | step of a takeover | the old engine | the new engine |
//! | --- | --- | --- |
//! | 1. the fence is replaced | answers no more reads; its writes still count | |
//! | 2. the database is opened | all its writes fail from now on | |
//! | 3. the durable state is loaded | | holds everything that was ever acknowledged |

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use qo_core::{OpId, Timestamp};
use qo_store::client::Tag;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};
use serde::{Deserialize, Serialize};

use qo_engine::EngineError;

use crate::rows::WriterCheck;

/// The key of the fence.
const KEY: &str = "meta/writer.json";
/// The most attempts to replace the fence while other processes do the same.
const ATTEMPTS_MAX: u32 = 32;
/// How many earlier writes the fence names, so that a write whose response was lost is recognised.
const RECENT_OPS_MAX: usize = 32;
/// After how long a check without a response is sent again. Each further pause is twice as long.
const OVERLAP: Duration = Duration::from_millis(250);
/// The most checks in flight at once.
const CHECKS_MAX: usize = 4;
/// How long to wait for one response to a check.
const CHECK_TIMEOUT: Duration = Duration::from_millis(2_500);

#[derive(Debug, Default, Serialize, Deserialize)]
struct FenceRecord {
    /// The number of writers so far.
    epoch: u64,
    op_id: Option<OpId>,
    #[serde(default)]
    recent_ops: Vec<OpId>,
    #[serde(default)]
    taken_at: Option<Timestamp>,
}

/// The fence as this engine wrote it.
#[derive(Debug, Clone)]
pub(super) struct WriterFence {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    tag: Tag,
}

impl WriterFence {
    /// Replaces the fence of any earlier writer.
    pub(super) async fn take(
        client: &StoreClient,
        runtime: &Arc<dyn Runtime>,
    ) -> Result<Self, EngineError> {
        let op = runtime.new_op_id();
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                let pause_ms = runtime.random_below(u64::from(attempt) * 20);
                runtime.sleep(Duration::from_millis(pause_ms)).await;
            }
            let (mut record, tag) = match client.get(KEY).await {
                Ok(object) => {
                    let record: FenceRecord =
                        serde_json::from_slice(&object.body).map_err(|error| corrupt(&error))?;
                    (record, Some(object.tag))
                }
                Err(StoreError::NotFound { .. }) => (FenceRecord::default(), None),
                Err(error) => return Err(error.into()),
            };
            record.epoch = record.epoch.saturating_add(1);
            record.recent_ops.extend(record.op_id.replace(op));
            let excess = record.recent_ops.len().saturating_sub(RECENT_OPS_MAX);
            record.recent_ops.drain(..excess);
            record.taken_at = Some(client.now());
            let body = Bytes::from(serde_json::to_vec(&record).map_err(|error| corrupt(&error))?);
            let written = match &tag {
                Some(tag) => client.swap(KEY, body, tag, &op).await,
                None => client.create(KEY, body, &op).await,
            };
            match written {
                Ok(written) => match written.tag() {
                    Some(tag) => {
                        return Ok(Self {
                            client: client.with_request_timeout(CHECK_TIMEOUT),
                            runtime: Arc::clone(runtime),
                            tag: tag.clone(),
                        });
                    }
                    // Another process has replaced the fence since.
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
}

#[async_trait]
impl WriterCheck for WriterFence {
    /// Checks that no other process had taken over when this call began. A request without a response is repeated in parallel:
    /// responses to callers wait for this check, and one slow response of the store must not delay them all.
    async fn check(&self) -> Result<(), EngineError> {
        let mut checks = FuturesUnordered::new();
        let mut pause = OVERLAP;
        loop {
            checks.push(self.client.get_if_changed(KEY, &self.tag));
            let overlap = self.runtime.sleep(pause);
            tokio::pin!(overlap);
            loop {
                let checked = tokio::select! {
                    biased;
                    checked = checks.next() => checked,
                    () = &mut overlap, if checks.len() < CHECKS_MAX => break,
                };
                match checked {
                    Some(Ok(None)) => return Ok(()),
                    Some(Ok(Some(_)) | Err(StoreError::NotFound { .. })) => {
                        return Err(EngineError::NotLeader);
                    }
                    Some(Err(_)) if !checks.is_empty() => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => break,
                }
            }
            pause *= 2;
        }
    }
}

fn corrupt(error: &serde_json::Error) -> EngineError {
    EngineError::Store(StoreError::Corrupt {
        key: KEY.to_owned(),
        detail: error.to_string(),
    })
}
