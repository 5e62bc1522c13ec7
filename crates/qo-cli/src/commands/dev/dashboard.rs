//! The dashboard beside the live view: the queue behind HTTP, on this machine alone.

use std::net::SocketAddr;
use std::time::Duration;

use qo::Queue;
use qo_server::{ServeError, Server, ServerConfig};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long pages that are open may hold up the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A dashboard that is served.
#[derive(Debug)]
pub(super) struct Dashboard {
    /// Where a browser finds it.
    pub(super) url: String,
    stop: CancellationToken,
    stopped: oneshot::Receiver<()>,
}

impl Dashboard {
    /// Serves it, at this address or, if that is taken, at another port of it.
    pub(super) async fn serve(queue: &Queue, address: SocketAddr) -> Result<Self, ServeError> {
        let server = match Server::bind(queue.clone(), config(address)).await {
            Err(ServeError::Bind { .. }) => {
                let elsewhere = SocketAddr::new(address.ip(), 0);
                Server::bind(queue.clone(), config(elsewhere)).await?
            }
            bound => bound?,
        };
        let url = format!("{}/", server.url());
        let stop = CancellationToken::new();
        let asked = stop.clone();
        let (ended, stopped) = oneshot::channel();
        queue.runtime().spawn(Box::pin(async move {
            server
                .run_until(async move { asked.cancelled().await })
                .await;
            // Nobody waits if the process ends at once.
            let _ = ended.send(());
        }));
        Ok(Self { url, stop, stopped })
    }

    /// Stops it and waits for its end.
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
