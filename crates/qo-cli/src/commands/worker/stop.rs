//! When a worker stops: on a signal, when it is idle, or after a number of attempts.

use std::sync::Arc;
use std::time::Duration;

use qo_store::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::commands::activity::Activity;
use crate::failure::Failure;
use crate::signals::StopSignals;

/// Interval at which the exit limits are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Stop requests: the first signal asks to stop, the second to stop at once.
#[derive(Debug, Clone, Default)]
pub(in crate::commands) struct Signals {
    /// Cancelled by the first signal.
    pub(in crate::commands) stop: CancellationToken,
    /// Cancelled by the second signal.
    pub(in crate::commands) stop_at_once: CancellationToken,
}

impl Signals {
    /// Starts to listen for signals.
    pub(in crate::commands) fn listen(runtime: &Arc<dyn Runtime>) -> Result<Self, Failure> {
        let signals = Self::default();
        let mut received = StopSignals::listen()?;
        if let Some(mut terminal_gone) = hangup() {
            let tokens = signals.clone();
            runtime.spawn(Box::pin(async move {
                if terminal_gone.recv().await.is_some() {
                    tokens.stop.cancel();
                }
            }));
        }
        let tokens = signals.clone();
        runtime.spawn(Box::pin(async move {
            received.received().await;
            tokens.stop.cancel();
            received.received().await;
            tokens.stop_at_once.cancel();
        }));
        Ok(signals)
    }
}

/// Listens for SIGHUP, sent when the terminal is closed. By default it would kill the process and leave its commands running. Under
/// `nohup` the signal is ignored, and stays ignored. If that cannot be determined, nothing is changed.
fn hangup() -> Option<Signal> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    if ignores_hangup(&status)? {
        return None;
    }
    signal(SignalKind::hangup()).ok()
}

/// Whether the contents of `/proc/self/status` say that SIGHUP, signal 1, is ignored.
fn ignores_hangup(status: &str) -> Option<bool> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & 1 == 1)
}

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
        runtime: &Arc<dyn Runtime>,
    ) -> &'static str {
        loop {
            if self.attempts.is_some_and(|max| activity.attempts() >= max) {
                return "--max-tasks reached";
            }
            if let (Some(limit), Some(idle)) = (self.idle, activity.idle())
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
                () = next_check => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohup_is_respected() {
        let status = |mask: &str| format!("Name:\tqo\nSigBlk:\t0\nSigIgn:\t{mask}\nSigCgt:\t0\n");
        assert_eq!(ignores_hangup(&status("0000000000001000")), Some(false));
        assert_eq!(ignores_hangup(&status("0000000000001001")), Some(true));
        assert_eq!(ignores_hangup("Name:\tqo\n"), None);
    }
}
