//! How long finished tasks are kept: as long as the settings of their queue say, or else as long as the engine is configured to.

use std::time::Duration;

use qo_core::{QueueName, QueueSettings, QueueState};

/// The configured retention, and where to find that of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retention {
    default_ms: u64,
}

impl Retention {
    pub(super) fn new(default: Duration) -> Self {
        Self {
            default_ms: u64::try_from(default.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The retention of a queue.
    pub(super) fn of_ms(self, state: &QueueState, queue: &QueueName) -> u64 {
        let own = state.settings(queue).retention_ms();
        own.unwrap_or(self.default_ms)
    }

    /// The shortest retention of all queues.
    pub(super) fn shortest_ms(self, state: &QueueState) -> u64 {
        self.all_ms(state).min().unwrap_or(self.default_ms)
    }

    /// The longest retention of all queues.
    #[cfg_attr(
        not(feature = "rows"),
        expect(dead_code, reason = "only the journal of rows needs it")
    )]
    pub(super) fn longest_ms(self, state: &QueueState) -> u64 {
        self.all_ms(state).max().unwrap_or(self.default_ms)
    }

    fn all_ms(self, state: &QueueState) -> impl Iterator<Item = u64> {
        let own = state.all_settings();
        own.filter_map(|(_, settings)| QueueSettings::retention_ms(settings))
            .chain([self.default_ms])
    }
}
