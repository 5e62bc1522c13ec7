//! Jobs that block their thread, behind an interface: the simulator runs them in place.
//!
//! All of them run on tokio's blocking threads, with the same priority. It is tempting to let the operating system run the largest jobs, which
//! write collected rows and build snapshots, with a lower one. But they hold the right to write to the database while they run
//! ([`crate::rows`]), and urgent jobs need it: sweeps, snapshots for other nodes, and every change once the memory for collected rows is full.
//! On busy cores a flush would then take many times as long, and a node would apply nothing meanwhile. A thread cannot raise its priority
//! again without privileges, so it cannot hurry when somebody begins to wait.

use std::io;
use std::sync::Arc;

use qo_store::runtime::BoxFuture;
use tokio::sync::oneshot;

/// A job that blocks its thread.
pub type BlockingJob = Box<dyn FnOnce() + Send>;

/// Runs jobs that block.
pub trait BlockingPool: Send + Sync + 'static {
    /// Runs a job. The future resolves when it is done.
    fn run(&self, job: BlockingJob) -> BoxFuture<()>;
}

/// The blocking threads of tokio.
pub(crate) struct Threads;

impl BlockingPool for Threads {
    fn run(&self, job: BlockingJob) -> BoxFuture<()> {
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
    let job: BlockingJob = Box::new(move || {
        // The caller may have gone.
        let _ = reply.send(job());
    });
    pool.run(job).await;
    result
        .await
        .unwrap_or_else(|_| Err(io::Error::other("a job of this node was dropped")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_that_panics_fails_alone() {
        let pool: Arc<dyn BlockingPool> = Arc::new(Threads);
        let panics = run(&pool, || -> io::Result<()> { panic!("on purpose") });
        assert!(panics.await.is_err());
        assert_eq!(run(&pool, || Ok(7)).await.unwrap(), 7);
    }
}
