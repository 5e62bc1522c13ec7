//! Settings of direct mode.

use std::str::FromStr;
use std::time::Duration;

use qo_core::limits::STORED_PAYLOAD_MAX_BYTES;
use thiserror::Error;

/// How workers find tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexMode {
    /// By the ready index only. The sweeper restores missing entries.
    #[default]
    IndexOnly,
    /// By the ready index, and occasionally by a page of the tasks themselves.
    Hybrid,
    /// By the tasks themselves. Needs no index, but each page costs a GET per task.
    LogScan,
}

/// An unknown index mode.
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
#[non_exhaustive]
pub struct DirectConfig {
    /// How workers find tasks.
    pub index_mode: IndexMode,
    /// The page size of LISTs of the ready index.
    pub ready_page_size: usize,
    /// The page size of scans of the tasks themselves.
    pub log_scan_page_size: usize,
    /// The lease duration. A worker renews after a third of it, so tasks that take less than 10 s cost no renewal. The tasks of a
    /// dead worker return within a minute: the lease expires after 30 s, and the lease reaper checks at most 30 s later.
    pub lease_ms: u64,
    /// How long after its expiry a lease is ended, to allow for clock error.
    pub lease_margin_ms: u64,
    /// How often an idle worker polls the signal.
    pub signal_interval: Duration,
    /// The minimum time between two writes of the signal by a submitter.
    pub touch_interval: Duration,
    /// How often a worker lists without a signal, because a submitter may have died before it wrote the signal.
    pub fallback_interval: Duration,
    /// How long stale index entries are collected before they are deleted in one batch.
    pub index_gc_delay: Duration,
    /// How many tasks `submit_many` and bulk operations process concurrently.
    pub concurrency: usize,
    /// A worker without a heartbeat for this long counts as dead.
    pub worker_stale_ms: u64,
    /// How long a task is reserved for the worker that should take it. That worker notices it after at most [`Self::touch_interval`] and
    /// [`Self::signal_interval`] together.
    pub steal_after_ms: u64,
    /// The largest accepted input or output, at most [`STORED_PAYLOAD_MAX_BYTES`].
    pub payload_max_bytes: u64,
    /// How many tasks `stats` counts before it stops and reports its counts as partial.
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
            steal_after_ms: 3_000,
            payload_max_bytes: STORED_PAYLOAD_MAX_BYTES,
            stats_tasks_max: 100_000,
        }
    }
}

impl DirectConfig {
    /// Settings for a store on the same machine, where requests are cheap.
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
