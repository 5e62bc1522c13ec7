//! When a worker stops: on a signal, when an operator asks for it, when it is idle, or after a number of attempts.

use std::sync::Arc;
use std::time::Duration;

use qo::{Idleness, WorkerRequests};
use qo_store::runtime::Runtime;

use crate::commands::activity::Activity;
use crate::signals::Signals;

/// Interval at which the exit limits are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Limits after which a worker exits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ExitLimits {
    /// Idle time.
    pub(super) idle: Option<Duration>,
    /// Number of ended attempts.
    pub(super) attempts: Option<u64>,
}

impl ExitLimits {
    /// Waits until the worker should stop. Returns the reason.
    pub(super) async fn reached(
        self,
        signals: &Signals,
        activity: &Activity,
        idleness: &Idleness,
        requests: &WorkerRequests,
        runtime: &Arc<dyn Runtime>,
    ) -> &'static str {
        loop {
            if self.attempts.is_some_and(|max| activity.attempts() >= max) {
                return "--max-tasks reached";
            }
            if let (Some(limit), Some(idle)) = (self.idle, idleness.idle_for())
                && idle >= limit
            {
                return "idle";
            }
            let next_check = async {
                if self.idle.is_some() || self.attempts.is_some() {
                    runtime.sleep(CHECK_INTERVAL).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = signals.stop.cancelled() => return "received a stop signal",
                _ = requests.stop() => return "asked by an operator",
                () = next_check => {}
            }
        }
    }
}
