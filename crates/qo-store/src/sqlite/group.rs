//! Group commit: one thread handles all writes of the process and commits concurrent ones together.
//!
//! A flush costs the same for one write as for hundreds. The thread takes all queued writes, applies them in order in
//! one immediate transaction, commits once, and then replies to all callers. While it flushes, the next group
//! accumulates, so no timer is needed and a single write never waits.
//!
//! Within a group, a job sees the effects of earlier jobs, as if each were a transaction of its own. A job whose
//! condition fails has written nothing and fails alone, through its return value. If SQLite itself fails, the whole
//! group is rolled back and every caller gets the error, including those whose condition failed: the reason may have
//! been a write that is now undone.

use std::io;
use std::sync::Arc;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::LogGuard;
use super::error::SqliteError;
use super::write::WriteTransaction;
use crate::runtime::Runtime;

/// How many writes may be queued before callers wait.
const QUEUE_LENGTH: usize = 1024;

/// The maximum number of writes in one commit.
const GROUP_LENGTH_MAX: usize = 1024;

/// A group with this many bytes takes no further write. This bounds the log and the duration of a commit.
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The queue of the writer thread. Dropping it ends the thread.
pub(super) struct WriteQueue {
    jobs: mpsc::Sender<Box<dyn Job>>,
}

impl WriteQueue {
    pub(super) fn start(connection: Connection, runtime: Arc<dyn Runtime>) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE_LENGTH);
        std::thread::Builder::new()
            .name("qo-sqlite-writer".to_owned())
            .spawn(move || write_groups(&connection, runtime.as_ref(), queue))?;
        Ok(Self { jobs })
    }

    /// Runs `work` as part of the next commit and returns its result once that is durable.
    ///
    /// `bytes` is the amount of data it writes. The work must not write anything before it rejects.
    pub(super) async fn write<T, F>(&self, bytes: usize, work: F) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTransaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, receiver) = oneshot::channel();
        let job = Box::new(Pending {
            bytes,
            work: Some(work),
            result: None,
            reply,
        });
        self.jobs
            .send(job)
            .await
            .map_err(|_| SqliteError::WriterStopped)?;
        receiver.await.map_err(|_| SqliteError::WriterStopped)?
    }
}

trait Job: Send {
    fn bytes(&self) -> usize;
    fn apply(&mut self, transaction: &mut WriteTransaction<'_>) -> rusqlite::Result<()>;
    fn reply(self: Box<Self>, committed: Result<(), SqliteError>);
}

struct Pending<T, F> {
    bytes: usize,
    work: Option<F>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, SqliteError>>,
}

impl<T, F> Job for Pending<T, F>
where
    T: Send,
    F: FnOnce(&mut WriteTransaction<'_>) -> rusqlite::Result<T> + Send,
{
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn apply(&mut self, transaction: &mut WriteTransaction<'_>) -> rusqlite::Result<()> {
        if let Some(work) = self.work.take() {
            self.result = Some(work(transaction)?);
        }
        Ok(())
    }

    fn reply(self: Box<Self>, committed: Result<(), SqliteError>) {
        let Self { result, reply, .. } = *self;
        let result = committed.and_then(|()| result.ok_or(SqliteError::WriterStopped));
        // The caller may be gone.
        let _ = reply.send(result);
    }
}

fn write_groups(
    connection: &Connection,
    runtime: &dyn Runtime,
    mut queue: mpsc::Receiver<Box<dyn Job>>,
) {
    let mut log = LogGuard::new(connection);
    while let Some(first) = queue.blocking_recv() {
        let mut bytes = first.bytes();
        let mut group = vec![first];
        while group.len() < GROUP_LENGTH_MAX && bytes < GROUP_BYTES_MAX {
            let Ok(next) = queue.try_recv() else { break };
            bytes = bytes.saturating_add(next.bytes());
            group.push(next);
        }
        let committed = commit(connection, runtime, &mut group).map_err(SqliteError::from);
        if let Err(error) = &committed {
            tracing::warn!(%error, writes = group.len(), "a group of writes failed");
        }
        for job in group {
            job.reply(committed.clone());
        }
        log.check();
    }
}

fn commit(
    connection: &Connection,
    runtime: &dyn Runtime,
    group: &mut [Box<dyn Job>],
) -> rusqlite::Result<()> {
    if !connection.is_autocommit() {
        // Roll back first: if the rollback of an earlier group failed, no transaction could begin.
        connection.execute_batch("ROLLBACK")?;
    }
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let mut write = WriteTransaction::begin(&transaction, runtime.now())?;
    for job in group {
        job.apply(&mut write)?;
    }
    if write.finish()? {
        transaction.commit()
    } else {
        transaction.rollback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;
    use crate::sqlite::error::damaged;
    use crate::sqlite::schema::open_database;
    use bytes::Bytes;
    use std::sync::mpsc as sync_mpsc;

    fn queue_on(directory: &tempfile::TempDir) -> WriteQueue {
        let connection = open_database(&directory.path().join("qo.db")).unwrap();
        WriteQueue::start(connection, TokioRuntime::shared()).unwrap()
    }

    /// Blocks the writer thread inside a job until released, so that jobs queued meanwhile form one group.
    async fn hold(queue: &Arc<WriteQueue>) -> (sync_mpsc::Sender<()>, BoxedTask) {
        let (go_on, wait) = sync_mpsc::channel::<()>();
        let (started, has_started) = oneshot::channel();
        let queue = Arc::clone(queue);
        let task = Box::pin(async move {
            queue
                .write(0, move |_| {
                    let _ = started.send(());
                    let _ = wait.recv();
                    Ok(())
                })
                .await
                .unwrap();
        });
        let mut task: BoxedTask = task;
        tokio::select! {
            biased;
            () = &mut task => panic!("the job must wait"),
            started = has_started => started.unwrap(),
        }
        (go_on, task)
    }

    type BoxedTask = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

    #[tokio::test]
    async fn a_failure_rolls_back_the_group_and_fails_every_caller() {
        let directory = tempfile::tempdir().unwrap();
        let queue = Arc::new(queue_on(&directory));
        let (go_on, held) = hold(&queue).await;
        let good = queue.write(1, |tx| tx.put("good", &Bytes::from_static(b"1"), None));
        let bad = queue.write(1, |_| {
            Err::<(), _>(damaged("as the test wants it".to_owned()))
        });
        let later = queue.write(1, |tx| tx.current("good").map(|found| found.is_some()));
        let ((), good, bad, later, ()) = tokio::join!(held, good, bad, later, async {
            // By now the other three have been polled in order and are in the queue.
            go_on.send(()).unwrap();
        });
        for refused in [good.map(|_| ()), bad, later.map(|_| ())] {
            assert!(
                matches!(refused, Err(SqliteError::Corrupt { .. })),
                "{refused:?}"
            );
        }
        let found = queue.write(0, |tx| tx.current("good")).await.unwrap();
        assert!(found.is_none());
    }

    #[tokio::test]
    async fn concurrent_writes_are_committed_together_and_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let queue = Arc::new(queue_on(&directory));
        let (go_on, held) = hold(&queue).await;
        let first = queue.write(1, |tx| tx.put("k", &Bytes::from_static(b"1"), None));
        let second = queue.write(1, |tx| {
            let before = tx.current("k")?.map(|found| found.generation);
            Ok((before, tx.put("k", &Bytes::from_static(b"2"), None)?))
        });
        let ((), first, second, ()) = tokio::join!(held, first, second, async {
            go_on.send(()).unwrap();
        });
        let (before, after) = second.unwrap();
        assert_eq!(before, Some(first.unwrap()));
        assert!(Some(after) > before);
    }

    #[tokio::test]
    async fn a_full_disk_fails_the_write_and_not_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open_database(&directory.path().join("qo.db")).unwrap();
        connection
            .pragma_update(None, "max_page_count", 16)
            .unwrap();
        let queue = WriteQueue::start(connection, TokioRuntime::shared()).unwrap();
        let large = Bytes::from(vec![7; 1024 * 1024]);
        let refused = queue
            .write(large.len(), move |tx| tx.put("large", &large, None))
            .await;
        assert_eq!(refused, Err(SqliteError::DiskFull));
        let small = Bytes::from_static(b"fits");
        queue
            .write(small.len(), move |tx| tx.put("small", &small, None))
            .await
            .unwrap();
        let large = queue.write(0, |tx| tx.current("large")).await.unwrap();
        assert_eq!(large, None);
    }

    #[tokio::test]
    async fn the_thread_ends_with_the_queue() {
        let directory = tempfile::tempdir().unwrap();
        let queue = queue_on(&directory);
        queue
            .write(1, |tx| tx.put("k", &Bytes::from_static(b"1"), None))
            .await
            .unwrap();
        drop(queue);
        // Closing the last connection removes the log.
        let log = directory.path().join("qo.db-wal");
        while log.exists() {
            tokio::task::yield_now().await;
        }
    }
}
