//! Group commit: all writes of the process go through one thread, and those that wait together are committed together.
//!
//! A flush to disk costs the same for one write as for hundreds. The thread takes whatever is in the queue, applies it in
//! order in one immediate transaction, commits once, and only then answers everybody. While it flushes, the next group
//! gathers by itself, so that no timer is needed and a lone write never waits.
//!
//! Within a group a job sees what the jobs before it did, just as if each had been a transaction of its own. A job whose
//! condition does not hold has written nothing and fails alone, by what it returns. When SQLite itself fails, nothing of
//! the group is kept and everybody is told, including those whose condition did not hold: they may have been refused
//! because of a write that is now undone.

use std::io;
use std::sync::Arc;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::LogGuard;
use super::error::SqliteError;
use super::write::WriteTransaction;
use crate::runtime::Runtime;

/// How many writes may wait before their callers do.
const QUEUE_LENGTH: usize = 1024;

/// How many writes one commit takes.
const GROUP_LENGTH_MAX: usize = 1024;

/// A group takes no further write once it holds so many bytes, which bounds the log and the time of one commit.
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The way to the writer's thread, which ends when this is dropped.
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

    /// Has `work` done as a part of the next commit, and returns what it returned once that is durable.
    ///
    /// `bytes` is how much it writes. The work must not write anything before it refuses.
    pub(super) async fn write<T, F>(&self, bytes: usize, work: F) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTransaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Pending {
            bytes,
            work: Some(work),
            outcome: None,
            reply,
        });
        self.jobs
            .send(job)
            .await
            .map_err(|_| SqliteError::WriterStopped)?;
        answer.await.map_err(|_| SqliteError::WriterStopped)?
    }
}

trait Job: Send {
    fn bytes(&self) -> usize;
    fn apply(&mut self, transaction: &mut WriteTransaction<'_>) -> rusqlite::Result<()>;
    fn answer(self: Box<Self>, committed: Result<(), SqliteError>);
}

struct Pending<T, F> {
    bytes: usize,
    work: Option<F>,
    outcome: Option<T>,
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
            self.outcome = Some(work(transaction)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), SqliteError>) {
        let Self { outcome, reply, .. } = *self;
        let answer = committed.and_then(|()| outcome.ok_or(SqliteError::WriterStopped));
        // A caller that has gone needs no answer.
        let _ = reply.send(answer);
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
            job.answer(committed.clone());
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
        // The rollback of an earlier group failed with the group; without this no other could begin.
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

    /// Holds the writer's thread inside a job until told to go on, so that what is queued meanwhile forms one group.
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
    async fn a_failure_undoes_the_whole_group_and_tells_everybody() {
        let directory = tempfile::tempdir().unwrap();
        let queue = Arc::new(queue_on(&directory));
        let (go_on, held) = hold(&queue).await;
        let good = queue.write(1, |tx| tx.put("good", &Bytes::from_static(b"1"), None));
        let bad = queue.write(1, |_| {
            Err::<(), _>(damaged("as the test wants it".to_owned()))
        });
        let later = queue.write(1, |tx| tx.current("good").map(|found| found.is_some()));
        let ((), good, bad, later, ()) = tokio::join!(held, good, bad, later, async {
            // By now the other three have been polled, in order, and are in the queue.
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
    async fn what_waits_together_is_committed_together_and_in_order() {
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
        // The last connection to close takes the log with it.
        let log = directory.path().join("qo.db-wal");
        while log.exists() {
            tokio::task::yield_now().await;
        }
    }
}
