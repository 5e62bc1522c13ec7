//! What the engine on SlateDB can be told.

use std::time::Duration;

use crate::BrokerConfig;

/// Settings of the engine that keeps the queue in SlateDB.
#[derive(Debug, Clone)]
pub struct SlateConfig {
    /// What both journals share.
    pub state: BrokerConfig,
    /// How long tasks that have come to their end are kept.
    pub retention: Duration,
    /// How long changes are gathered before they are written, if no write is under way.
    pub flush_interval: Duration,
    /// How many groups may be on their way at once.
    pub in_flight_max: usize,
    /// How often SlateDB looks for work for its compactor.
    pub poll_interval: Duration,
    /// How often what nobody needs any more is deleted.
    pub garbage_interval: Duration,
    /// How often the engine looks whether another one has taken over, although nobody asks it anything.
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
            leader_interval: Duration::from_secs(5),
        }
    }
}
