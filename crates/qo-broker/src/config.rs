//! What the state engines can be told.

use std::time::Duration;

use qo_core::limits::{INLINE_PAYLOAD_MAX_BYTES, STORED_PAYLOAD_MAX_BYTES};

/// Settings that both journals share.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// How long a claim holds without a renewal.
    pub lease_ms: u64,
    /// How much later than its time a lease is ended, against clocks that are read wrongly.
    pub lease_margin_ms: u64,
    /// How many callers may wait to be taken in; the next ones wait outside.
    pub queue_max: usize,
    /// How many callers one commit serves at the most.
    pub group_max: usize,
    /// The largest payload that is kept inside the record; a larger one is an object of its own.
    pub inline_max_bytes: usize,
    /// The largest input or output that is taken.
    pub payload_max_bytes: u64,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            lease_ms: 30_000,
            lease_margin_ms: 1_000,
            queue_max: 8_192,
            group_max: 4_096,
            inline_max_bytes: INLINE_PAYLOAD_MAX_BYTES,
            payload_max_bytes: STORED_PAYLOAD_MAX_BYTES,
        }
    }
}

/// Settings of the engine that keeps the queue in one JSON object. The defaults are for S3; [`JsonConfig::local`] is for
/// stores on the same machine.
#[derive(Debug, Clone)]
pub struct JsonConfig {
    /// What both journals share.
    pub state: BrokerConfig,
    /// A submit that would make the object larger is refused.
    pub object_max_bytes: u64,
    /// How many tasks that have come to their end are kept in the object. Those that did so first are dropped first.
    pub finished_max: usize,
    /// How long they are kept.
    pub finished_keep: Duration,
    /// How often a process with a waiting claim asks whether others have changed the object.
    pub poll_interval: Duration,
    /// How often a process without one does.
    pub fallback_interval: Duration,
}

impl Default for JsonConfig {
    fn default() -> Self {
        Self {
            state: BrokerConfig {
                // The whole object is written with every commit, so that what is large is better kept beside it.
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
    /// Settings for a store on the same machine, where a request costs next to nothing.
    pub fn local() -> Self {
        Self {
            poll_interval: Duration::from_millis(100),
            fallback_interval: Duration::from_secs(5),
            ..Self::default()
        }
    }
}
