//! Being asked to stop: Ctrl-C, and on Unix also SIGTERM.

use crate::failure::{Failure, FailureKind};

/// Hears when somebody asks to stop.
#[derive(Debug)]
pub struct Stop {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    /// From now on these signals do not end the process, but this hears them.
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

    /// From now on Ctrl-C does not end the process, but this hears it.
    #[cfg(not(unix))]
    pub fn listen() -> Result<Self, Failure> {
        Ok(Self {})
    }

    /// Waits until somebody asks.
    pub async fn asked(&mut self) {
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
