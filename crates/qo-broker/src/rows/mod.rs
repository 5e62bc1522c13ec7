//! The queue as rows of an ordered database: which rows there are ([`keys`]), how a group becomes rows ([`batch`]), and how rows become
//! the state again ([`load`]).
//!
//! Live tasks are in memory and in the database. A finished task leaves the memory and stays in the database for the retention time.
//! Two engines share this code: `slate`, whose database is SlateDB on an object store, and cluster mode, whose database is a file on each
//! node that a replicated log keeps equal. Both implement the small interface in [`port`].

mod archive;
mod batch;
mod counts;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod in_flight;
mod journal;
pub(crate) mod keys;
pub(crate) mod live;
mod load;
mod payload_cleanup;
pub(crate) mod port;
mod proof;
mod time_index;

use std::sync::Arc;
use std::time::Duration;

use qo_engine::EngineError;
use qo_store::StoreClient;
use qo_store::runtime::Runtime;

pub use crate::command::{Command, CommandOutcome};
pub use port::{
    Row, RowDatabase, RowGroup, RowRange, RowScan, RowWrite, RowWriter, ScanPurpose, WriterCheck,
};

use self::archive::FinishedTasks;
use self::journal::RowJournal;
use self::payload_cleanup::PayloadCleanup;
use self::proof::WriterProof;
use super::retention::Retention;
use super::{BrokerConfig, BrokerEngine};

/// Settings of an engine whose queue is rows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RowsConfig {
    /// Settings that all broker engines share.
    pub state: BrokerConfig,
    /// How long finished tasks are kept.
    pub retention: Duration,
    /// How often the payloads of dropped tasks are deleted.
    pub cleanup_interval: Duration,
}

impl RowsConfig {
    /// Settings with these values.
    pub fn new(state: BrokerConfig, retention: Duration, cleanup_interval: Duration) -> Self {
        Self {
            state,
            retention,
            cleanup_interval,
        }
    }
}

impl BrokerEngine {
    /// The engine that keeps the queue as rows of a database. Loads the state. The caller made sure at `proven_at`, by the runtime's
    /// monotonic clock, that nobody else writes.
    pub async fn rows(
        db: Arc<dyn RowDatabase>,
        writer: Box<dyn RowWriter>,
        check: Arc<dyn WriterCheck>,
        proven_at: Duration,
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: RowsConfig,
    ) -> Result<Self, EngineError> {
        let proof = Arc::new(WriterProof::new(check, proven_at));
        // Boxed, so that this one-time future does not enlarge the futures of all callers.
        let retention = Retention::new(config.retention);
        let loading = load::load(&db, &runtime, retention, client.now());
        let (state, batch_builder) = Box::pin(loading).await?;
        let finished = FinishedTasks::new(Arc::clone(&db), client.clone(), &state);
        let (cleanup, cleanup_ended) = PayloadCleanup::new();
        let journal = RowJournal {
            writer,
            runtime: Arc::clone(&runtime),
            retention,
            finished: finished.clone(),
            batch_builder,
            ended_in_flight: in_flight::EndedInFlight::default(),
            proof,
            _cleanup: cleanup,
        };
        let archive = Some(Arc::new(finished) as Arc<dyn super::Archive>);
        let engine = Self::start(state, journal, client, runtime, config.state, archive);
        let weak = Arc::downgrade(&engine.shared);
        let cleanup = payload_cleanup::run(db, weak, config.cleanup_interval, cleanup_ended);
        engine.shared.runtime.spawn(Box::pin(cleanup));
        Ok(engine)
    }
}
