//! The queue in SlateDB, on the same object store: one writer, and few store requests per task.
//!
//! ```text
//! group ──► one WriteBatch ──► SlateDB's memory ──► write-ahead log: one PUT for all groups that arrived meanwhile
//!                                   │                        │
//!                                   ▼                        ▼
//!                     tables, compacted in the background   durable: the callers get responses, in order
//! ```
//!
//! Live tasks are in memory and in the database. A finished task leaves the memory and stays in the database for the retention time.
//! The state in memory is ahead of the durable state by the groups in flight. No response reveals a change before it is durable.
//!
//! | step | action | effect of a crash right after it |
//! | --- | --- | --- |
//! | 1 | a large payload is stored as its own object | an orphan, which no task refers to |
//! | 2 | the group is applied to the state and sent to SlateDB as one batch | none: the group was in memory only |
//! | 3 | the write-ahead log is written: **the group is durable** | the whole group is stored; a caller without a response retries |
//! | 4 | the callers get their responses | none |
//!
//! Live tasks of a later version are skipped: their rows stay as they are, they cannot be claimed, listed or changed, their leases are
//! not ended, and their ids and idempotency keys stay taken ([`qo_core::task::Outline`]). All other tasks are served.
//!
//! A second engine that opens the database ends the first ([`fence`]): the first engine's writes and reads fail with
//! [`EngineError::NotLeader`], and it stops.

mod cache;
mod clock;
mod config;
mod database;
mod error;
mod fence;
#[cfg(test)]
mod newer_tests;
mod settings;
mod writer;

use std::sync::Arc;

use object_store::ObjectStore;
use qo_engine::EngineError;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;
use slatedb::Db;

pub use config::SlateConfig;

use self::clock::RuntimeClock;
use self::database::SlateDatabase;
use self::error::{DB_PATH, from_slate};
use self::fence::WriterFence;
use self::writer::SlateWriter;
use super::BrokerEngine;
use super::rows::RowsConfig;

impl BrokerEngine {
    /// The engine that stores the queue in SlateDB. Opening it takes over: an engine that had the database open before stops.
    pub async fn slate(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<StoreClock>,
        runtime: Arc<dyn Runtime>,
        client: ClientConfig,
        config: SlateConfig,
    ) -> Result<Self, EngineError> {
        let client = StoreClient::new(Arc::clone(&objects), clock, Arc::clone(&runtime), client);
        let fence = WriterFence::take(&client, &runtime).await?;
        let fenced_at = runtime.monotonic();
        let slate_clock = RuntimeClock::new(&runtime, client.now());
        let opening = Db::builder(DB_PATH, objects)
            .with_settings(settings::settings(&config))
            .with_db_cache(settings::cache(), 0)
            .with_block_cache_policy(settings::cache_policy())
            .with_system_clock(Arc::clone(&slate_clock) as _)
            .with_seed(runtime.random())
            .build();
        // Boxed, so that these one-time futures do not enlarge the futures of all callers.
        let db = Box::pin(opening)
            .await
            .map_err(|error| from_slate(&error))?;
        slate_clock.catch_up(&db).await?;
        let rows_config = RowsConfig {
            state: config.state.clone(),
            retention: config.retention,
            cleanup_interval: config.cleanup_interval,
        };
        let writer = SlateWriter::start(db.clone(), fence.clone(), &runtime, &config);
        Self::rows(
            Arc::new(SlateDatabase::new(db)),
            Box::new(writer),
            Arc::new(fence),
            fenced_at,
            client,
            runtime,
            rows_config,
        )
        .await
    }
}
