//! When a worker stops: on a signal, when there is nothing more to do, or when it has done enough.

use std::sync::Arc;
use std::time::Duration;

use qo_store::world::World;
use tokio_util::sync::CancellationToken;

use crate::commands::activity::Activity;
use crate::failure::Failure;
use crate::signals::Stop;

/// How often a worker that ends by itself looks whether it should.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Hears of two signals: the first asks to stop, the second to stop at once.
#[derive(Debug, Clone, Default)]
pub(in crate::commands) struct Signals {
    /// Somebody asked to stop.
    pub(in crate::commands) stop: CancellationToken,
    /// Somebody asked again.
    pub(in crate::commands) stop_at_once: CancellationToken,
}

impl Signals {
    /// Listens from now on.
    pub(in crate::commands) fn listen(world: &Arc<dyn World>) -> Result<Self, Failure> {
        let signals = Self::default();
        let mut heard = Stop::listen()?;
        let told = signals.clone();
        world.spawn(Box::pin(async move {
            heard.asked().await;
            told.stop.cancel();
            heard.asked().await;
            told.stop_at_once.cancel();
        }));
        Ok(signals)
    }
}

/// What makes a worker end by itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    /// No task has run for so long.
    pub(super) idle: Option<Duration>,
    /// So many attempts have ended.
    pub(super) attempts: Option<u64>,
}

impl Limits {
    /// Waits until the worker should stop, and says why.
    pub(super) async fn reached(
        self,
        signals: &Signals,
        activity: &Activity,
        world: &Arc<dyn World>,
    ) -> &'static str {
        loop {
            if self.attempts.is_some_and(|max| activity.attempts() >= max) {
                return "it has run as many tasks as it should";
            }
            if let (Some(limit), Some(idle)) = (self.idle, activity.idle())
                && idle >= limit
            {
                return "there is nothing to do";
            }
            let next_look = async {
                if self.idle.is_some() || self.attempts.is_some() {
                    world.sleep(LOOK_INTERVAL).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = signals.stop.cancelled() => return "asked to",
                () = next_look => {}
            }
        }
    }
}
