//! Stop signals: Ctrl-C, and on Unix also SIGTERM.

use std::sync::Arc;
use std::time::Duration;

use qo_store::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, FailureKind};

/// Signals that follow the first one within this time count as the same.
const ONE_SIGNAL: Duration = Duration::from_millis(250);
/// How long a command waits for the store when it stops. What is not written then is repaired later, as after a crash.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A listener for stop signals.
#[derive(Debug)]
pub struct StopSignals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl StopSignals {
    /// Starts to listen. From now on these signals no longer end the process.
    #[cfg(unix)]
    pub fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |error| {
            Failure::new(
                FailureKind::Other,
                format!("cannot listen for signals: {error}"),
            )
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// Starts to listen. From now on Ctrl-C no longer ends the process.
    #[cfg(not(unix))]
    pub fn listen() -> Result<Self, Failure> {
        Ok(Self {})
    }

    /// Waits for the next signal.
    pub async fn received(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Stop requests: the first signal asks to stop, the second to stop at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    /// Cancelled by the first signal.
    pub(crate) stop: CancellationToken,
    /// Cancelled by the second signal.
    pub(crate) stop_at_once: CancellationToken,
}

impl Signals {
    /// Starts to listen for signals.
    pub(crate) fn listen(runtime: &Arc<dyn Runtime>) -> Result<Self, Failure> {
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
        let clock = Arc::clone(runtime);
        runtime.spawn(Box::pin(async move {
            received.received().await;
            tokens.stop.cancel();
            let first_at = clock.monotonic();
            // `timeout` sends its signal to the process and then to its group.
            loop {
                received.received().await;
                if clock.monotonic().saturating_sub(first_at) >= ONE_SIGNAL {
                    break;
                }
            }
            tokens.stop_at_once.cancel();
        }));
        Ok(signals)
    }

    /// The result of some work, unless a second signal arrives first.
    pub(crate) async fn unless_stopped_at_once<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.stop_at_once.cancelled() => Err(interrupted()),
            result = work => result,
        }
    }
}

/// The failure after a second stop signal.
pub(crate) fn interrupted() -> Failure {
    Failure::new(FailureKind::Interrupted, "stopped at once")
}

/// Waits until something is closed, but not for a store that does not respond.
pub(crate) async fn close_in_time(runtime: &dyn Runtime, closing: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = closing => {}
        () = runtime.sleep(CLOSE_TIMEOUT) => {
            tracing::warn!("the store does not respond; exiting without closing the queue");
        }
    }
}

/// Listens for SIGHUP, sent when the terminal is closed. By default it would kill the process and leave its commands running. Under
/// `nohup` the signal is ignored, and stays ignored. If that cannot be determined, nothing is changed.
fn hangup() -> Option<tokio::signal::unix::Signal> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    if ignores_hangup(&status)? {
        return None;
    }
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok()
}

/// Whether the contents of `/proc/self/status` say that SIGHUP, signal 1, is ignored.
fn ignores_hangup(status: &str) -> Option<bool> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & 1 == 1)
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
