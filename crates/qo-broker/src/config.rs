//! Configuration of the broker engines.

use std::time::Duration;

use qo_core::limits::{INLINE_PAYLOAD_MAX_BYTES, STORED_PAYLOAD_MAX_BYTES};

/// Settings that both journals share.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BrokerConfig {
    /// How long a claim holds without a renewal.
    pub lease_ms: u64,
    /// How long after its expiry a lease is ended. This tolerates errors of the clock.
    pub lease_margin_ms: u64,
    /// Capacity of each of the three message queues: renewals and outcomes, submits, and everything else. Further callers wait until
    /// there is room.
    pub queue_max: usize,
    /// The most callers of each queue that one commit serves.
    pub group_max: usize,
    /// The most submitted tasks without a response. Further submits fail with [`qo_engine::EngineError::Overloaded`].
    pub submits_max: u64,
    /// The most bytes of submitted tasks without a response.
    pub submit_bytes_max: u64,
    /// The largest payload that is stored in the record. A larger one becomes its own object.
    pub inline_max_bytes: usize,
    /// The largest input or output that is accepted.
    pub payload_max_bytes: u64,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            lease_ms: 30_000,
            lease_margin_ms: 1_000,
            queue_max: 8_192,
            group_max: 4_096,
            submits_max: 50_000,
            submit_bytes_max: 128 * 1024 * 1024,
            inline_max_bytes: INLINE_PAYLOAD_MAX_BYTES,
            payload_max_bytes: STORED_PAYLOAD_MAX_BYTES,
        }
    }
}

/// Settings of the engine that stores the queue in one JSON object. The defaults are for S3; [`JsonConfig::local`] is for
/// stores on the same machine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JsonConfig {
    /// Settings that both journals share.
    pub state: BrokerConfig,
    /// A submit that would make the object larger than this is rejected.
    pub object_max_bytes: u64,
    /// How many finished tasks the object keeps. The oldest are dropped first.
    pub finished_max: usize,
    /// How long finished tasks are kept.
    pub finished_keep: Duration,
    /// How often a process with a waiting claim checks whether another process has changed the object.
    pub poll_interval: Duration,
    /// How often a process without a waiting claim checks it.
    pub fallback_interval: Duration,
}

impl Default for JsonConfig {
    fn default() -> Self {
        Self {
            state: BrokerConfig {
                // Every commit writes the whole object, so large payloads are stored separately.
                inline_max_bytes: 8 * 1024,
                ..BrokerConfig::default()
            },
            object_max_bytes: 16 * 1024 * 1024,
            finished_max: 1_000,
            finished_keep: Duration::from_hours(24),
            poll_interval: Duration::from_millis(1_500),
            fallback_interval: Duration::from_mins(1),
        }
    }
}

impl JsonConfig {
    /// Settings for a store on the same machine, where requests are cheap.
    pub fn local() -> Self {
        Self {
            poll_interval: Duration::from_millis(100),
            fallback_interval: Duration::from_secs(5),
            ..Self::default()
        }
    }
}
