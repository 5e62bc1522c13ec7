//! Configuration of the SlateDB engine.

use std::time::Duration;

use crate::BrokerConfig;

/// Settings of the engine that stores the queue in SlateDB.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SlateConfig {
    /// Settings that both journals share.
    pub state: BrokerConfig,
    /// How long finished tasks are kept.
    pub retention: Duration,
    /// How long changes are collected before they are written, if no write is in flight.
    pub flush_interval: Duration,
    /// How many groups may be in flight at once.
    pub in_flight_max: usize,
    /// How often SlateDB's compactor polls for work.
    pub poll_interval: Duration,
    /// How often SlateDB's garbage collector deletes unused files.
    pub garbage_interval: Duration,
    /// How often the payloads of dropped tasks are deleted.
    pub cleanup_interval: Duration,
    /// How often an idle engine checks whether another one has taken over.
    pub leader_interval: Duration,
}

impl Default for SlateConfig {
    fn default() -> Self {
        Self {
            state: BrokerConfig::default(),
            retention: Duration::from_hours(24),
            flush_interval: Duration::from_millis(2),
            in_flight_max: 64,
            poll_interval: Duration::from_secs(15),
            garbage_interval: Duration::from_mins(10),
            cleanup_interval: Duration::from_mins(10),
            leader_interval: Duration::from_secs(5),
        }
    }
}
