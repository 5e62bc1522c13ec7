//! What the engine of direct mode can be told.

use std::str::FromStr;
use std::time::Duration;

use qo_core::limits::STORED_PAYLOAD_MAX_BYTES;
use thiserror::Error;

/// How workers find tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexMode {
    /// By the ready index alone. What is missing in it is put there by the sweeper.
    #[default]
    IndexOnly,
    /// By the ready index, and now and then by a page of the tasks themselves.
    Hybrid,
    /// By the tasks themselves: no index is needed, and every look costs a GET per task.
    LogScan,
}

/// A text that is not an index mode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not an index mode: use index-only, hybrid or log-scan")]
pub struct UnknownIndexMode(String);

impl FromStr for IndexMode {
    type Err = UnknownIndexMode;

    fn from_str(text: &str) -> Result<Self, UnknownIndexMode> {
        match text {
            "index-only" => Ok(Self::IndexOnly),
            "hybrid" => Ok(Self::Hybrid),
            "log-scan" => Ok(Self::LogScan),
            _ => Err(UnknownIndexMode(text.chars().take(64).collect())),
        }
    }
}

/// Settings of direct mode. The defaults are for S3; [`DirectConfig::local`] is for stores on the same machine.
#[derive(Debug, Clone)]
pub struct DirectConfig {
    /// How workers find tasks.
    pub index_mode: IndexMode,
    /// How many entries one look into the ready index yields.
    pub ready_page_size: usize,
    /// How many tasks one look at the tasks themselves yields.
    pub log_scan_page_size: usize,
    /// How long a claim holds without a renewal. A worker renews at a third of it, so that tasks that take less than 10 s
    /// never pay for a renewal, and those of a dead worker come back within a minute: 30 s for the lease to run out, and at
    /// most 30 s until the monitor looks.
    pub lease_ms: u64,
    /// How much later than its time a lease is ended, against clocks that are read wrongly.
    pub lease_margin_ms: u64,
    /// How often an idle worker asks whether something was submitted.
    pub signal_interval: Duration,
    /// How often a submitter says so at the most.
    pub touch_interval: Duration,
    /// How often a worker looks although nothing was said, because a submitter may have died before it could.
    pub fallback_interval: Duration,
    /// How long stale index entries are gathered before they are deleted together.
    pub index_gc_delay: Duration,
    /// How many tasks `submit_many` and bulk operations work on at once.
    pub concurrency: usize,
    /// A worker that was not heard of for so long counts as dead.
    pub worker_stale_ms: u64,
    /// How long a task that another worker is expected to take is left to it.
    pub steal_after_ms: u64,
    /// The largest input or output that is taken, at most [`STORED_PAYLOAD_MAX_BYTES`].
    pub payload_max_bytes: u64,
    /// How many tasks `stats` looks at before it says that its numbers are partial.
    pub stats_tasks_max: usize,
}

impl Default for DirectConfig {
    fn default() -> Self {
        Self {
            index_mode: IndexMode::default(),
            ready_page_size: 1_000,
            log_scan_page_size: 50,
            lease_ms: 30_000,
            lease_margin_ms: 1_000,
            signal_interval: Duration::from_millis(1_500),
            touch_interval: Duration::from_secs(1),
            fallback_interval: Duration::from_mins(1),
            index_gc_delay: Duration::from_millis(50),
            concurrency: 64,
            worker_stale_ms: 60_000,
            steal_after_ms: 2_000,
            payload_max_bytes: STORED_PAYLOAD_MAX_BYTES,
            stats_tasks_max: 100_000,
        }
    }
}

impl DirectConfig {
    /// Settings for a store on the same machine, where a request costs next to nothing.
    pub fn local() -> Self {
        Self {
            signal_interval: Duration::from_millis(100),
            touch_interval: Duration::from_millis(50),
            fallback_interval: Duration::from_secs(5),
            index_gc_delay: Duration::from_millis(10),
            concurrency: 256,
            steal_after_ms: 500,
            ..Self::default()
        }
    }
}
