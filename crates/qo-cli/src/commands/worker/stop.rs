//! When a worker stops: on a signal, when there is nothing more to do, or when it has done enough.

use std::sync::Arc;
use std::time::Duration;

use qo_store::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
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
    pub(in crate::commands) fn listen(runtime: &Arc<dyn Runtime>) -> Result<Self, Failure> {
        let signals = Self::default();
        let mut heard = Stop::listen()?;
        if let Some(mut terminal_gone) = hangup() {
            let told = signals.clone();
            runtime.spawn(Box::pin(async move {
                if terminal_gone.recv().await.is_some() {
                    told.stop.cancel();
                }
            }));
        }
        let told = signals.clone();
        runtime.spawn(Box::pin(async move {
            heard.asked().await;
            told.stop.cancel();
            heard.asked().await;
            told.stop_at_once.cancel();
        }));
        Ok(signals)
    }
}

/// Hears when the terminal goes away, which would otherwise end the process without a word and leave its commands behind. Whoever starts
/// a worker with `nohup` wants it to go on: then the signal is ignored, and stays so. Where that cannot be found out, nothing is
/// changed.
fn hangup() -> Option<Signal> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    if ignores_hangup(&status)? {
        return None;
    }
    signal(SignalKind::hangup()).ok()
}

/// Whether the kernel's words about a process say that it ignores the first of all signals.
fn ignores_hangup(status: &str) -> Option<bool> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & 1 == 1)
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
        runtime: &Arc<dyn Runtime>,
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
                    runtime.sleep(LOOK_INTERVAL).await;
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
