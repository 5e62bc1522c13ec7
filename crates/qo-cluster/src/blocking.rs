//! Jobs that block their thread, behind an interface: the simulator runs them in place.

use std::io;
use std::sync::Arc;

use qo_store::runtime::BoxFuture;
use tokio::sync::oneshot;

/// Runs jobs that block.
pub trait BlockingPool: Send + Sync + 'static {
    /// Runs a job. The future resolves when it is done.
    fn run(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<()>;
}

/// tokio's threads for blocking jobs.
pub(crate) struct TokioPool;

impl BlockingPool for TokioPool {
    fn run(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<()> {
        let running = tokio::task::spawn_blocking(job);
        Box::pin(async move {
            // A job that panicked has dropped its reply.
            let _ = running.await;
        })
    }
}

/// Runs a job and returns its result.
pub(crate) async fn run<T: Send + 'static>(
    pool: &Arc<dyn BlockingPool>,
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (reply, result) = oneshot::channel();
    let running = pool.run(Box::new(move || {
        // The caller may have gone.
        let _ = reply.send(job());
    }));
    running.await;
    result
        .await
        .unwrap_or_else(|_| Err(io::Error::other("a job of this node was dropped")))
}
