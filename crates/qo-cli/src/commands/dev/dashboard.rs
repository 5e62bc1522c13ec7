//! The dashboard of `qo dev`: an HTTP server on a loopback address.

use std::net::SocketAddr;
use std::time::Duration;

use qo::Queue;
use qo_server::{ServeError, Server, ServerConfig};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long open pages may delay the stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A running dashboard server.
#[derive(Debug)]
pub(super) struct Dashboard {
    /// Its URL.
    pub(super) url: String,
    /// Its address.
    pub(super) address: SocketAddr,
    stop: CancellationToken,
    stopped: oneshot::Receiver<()>,
}

impl Dashboard {
    /// Starts the server at this address, or on another port if this one is in use.
    pub(super) async fn serve(queue: &Queue, address: SocketAddr) -> Result<Self, ServeError> {
        let server = match Server::bind(queue.clone(), config(address)).await {
            Err(ServeError::Bind { .. }) => {
                let elsewhere = SocketAddr::new(address.ip(), 0);
                Server::bind(queue.clone(), config(elsewhere)).await?
            }
            bound => bound?,
        };
        let url = format!("{}/", server.url());
        let address = server.address();
        let stop = CancellationToken::new();
        let stop_requested = stop.clone();
        let (ended, stopped) = oneshot::channel();
        queue.runtime().spawn(Box::pin(async move {
            server
                .run_until(async move { stop_requested.cancelled().await })
                .await;
            // The receiver is gone if the process exits at once.
            let _ = ended.send(());
        }));
        Ok(Self {
            url,
            address,
            stop,
            stopped,
        })
    }

    /// Stops the server and waits until it has stopped.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let _ = self.stopped.await;
    }
}

fn config(address: SocketAddr) -> ServerConfig {
    let mut config = ServerConfig::new(address);
    config.limits.stop_timeout = STOP_TIMEOUT;
    config
}
