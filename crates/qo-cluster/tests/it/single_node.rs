//! A cluster of one node, on a disk in memory that can be full.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use qo_cluster::{
    BlockingPool, ClusterConfig, ClusterNode, LogFiles, Member, MemoryRows, NodeParts,
    PendingResponse, Transport, TransportError,
};
use qo_core::{Json, Timestamp};
use qo_engine::Engine;
use qo_store::runtime::{BoxFuture, Runtime, TokioRuntime};

use crate::cluster::{claim, eventually, request, secret};

/// Files in memory, whether there is room for more, and whether reads take long.
#[derive(Default)]
pub(crate) struct Disk {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    is_full: AtomicBool,
    is_slow: AtomicBool,
}

impl Disk {
    fn with<T>(&self, name: &str, job: impl FnOnce(&mut Vec<u8>) -> T) -> io::Result<T> {
        let mut files = self.files.lock().unwrap();
        Ok(job(files.get_mut(name).ok_or(io::ErrorKind::NotFound)?))
    }

    fn check_room(&self) -> io::Result<()> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

/// The disk as the files of a log.
pub(crate) struct Files(pub(crate) Arc<Disk>);

#[async_trait]
impl LogFiles for Files {
    async fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.files.lock().unwrap().keys().cloned().collect())
    }

    async fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        if self.0.is_slow.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.0.with(name, |file| {
            let start = (offset as usize).min(file.len());
            let end = start.saturating_add(length).min(file.len());
            Bytes::copy_from_slice(&file[start..end])
        })
    }

    async fn size(&self, name: &str) -> io::Result<u64> {
        self.0.with(name, |file| file.len() as u64)
    }

    async fn create(&self, name: &str) -> io::Result<()> {
        self.0.check_room()?;
        let mut files = self.0.files.lock().unwrap();
        files.insert(name.to_owned(), Vec::new());
        Ok(())
    }

    async fn append(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        if let Err(full) = self.0.check_room() {
            // The first bytes still fit.
            self.0
                .with(name, |file| file.extend_from_slice(&bytes[..7]))?;
            return Err(full);
        }
        self.0.with(name, |file| file.extend_from_slice(&bytes))
    }

    async fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        self.0.with(name, |file| file.truncate(size as usize))
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.0.files.lock().unwrap().remove(name);
        Ok(())
    }
}

pub(crate) struct Pool;

impl BlockingPool for Pool {
    fn run(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<()> {
        let running = tokio::task::spawn_blocking(job);
        Box::pin(async move { running.await.unwrap() })
    }
}

/// Nobody else responds.
struct Alone;

impl Transport for Alone {
    fn call(&self, target: &Member, _request: Bytes, _limit: Duration) -> PendingResponse {
        let node = target.node;
        Box::pin(async move { Err(TransportError::TimedOut { node }) })
    }
}

async fn start(disk: &Arc<Disk>, rows: &MemoryRows) -> ClusterNode {
    start_with(disk, rows, |_| ()).await
}

async fn start_with(
    disk: &Arc<Disk>,
    rows: &MemoryRows,
    set: impl FnOnce(&mut ClusterConfig),
) -> ClusterNode {
    start_by(TokioRuntime::shared(), disk, rows, set).await
}

async fn start_by(
    runtime: Arc<dyn Runtime>,
    disk: &Arc<Disk>,
    rows: &MemoryRows,
    set: impl FnOnce(&mut ClusterConfig),
) -> ClusterNode {
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut config = ClusterConfig::new(1, "test", "", listen, secret());
    config.members = vec![Member::new(1, "node1:1", "http://node1")];
    config.heartbeat = Duration::from_millis(50);
    config.election = (Duration::from_millis(300), Duration::from_millis(600));
    set(&mut config);
    let parts = NodeParts {
        files: Arc::new(Files(Arc::clone(disk))),
        rows: Arc::new(rows.clone()),
        pool: Arc::new(Pool),
        transport: Arc::new(Alone),
    };
    let node = ClusterNode::start_with(parts, config, runtime)
        .await
        .unwrap();
    eventually("the node serves", || node.is_serving().then_some(())).await;
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_can_be_read_and_recovers() {
    let (disk, rows) = (Arc::new(Disk::default()), MemoryRows::default());
    let node = start(&disk, &rows).await;
    let engine = node.engine();
    for number in 0..5 {
        engine.submit(request(number)).await.unwrap();
    }
    let kept = engine.get(request(0).id.unwrap()).await.unwrap();

    disk.is_full.store(true, Ordering::SeqCst);
    // The first change finds out. It may still be made later.
    let first = engine.submit(request(10)).await.unwrap_err().to_string();
    assert!(first.contains("disk") && first.contains("full"), "{first}");
    assert!(node.status().disk_full);
    // All others are refused at once.
    let began = Instant::now();
    for number in 11..15 {
        let error = engine.submit(request(number)).await.unwrap_err();
        assert!(error.to_string().contains("make room"), "{error}");
    }
    assert!(engine.claim(&claim(1)).await.is_err());
    assert!(began.elapsed() < Duration::from_secs(1), "{began:?}");
    // What was there can be read.
    assert_eq!(engine.get(kept.id).await.unwrap(), kept);
    assert_eq!(engine.history(kept.id).await.unwrap().len(), 1);

    disk.is_full.store(false, Ordering::SeqCst);
    eventually("there is room", || (!node.status().disk_full).then_some(())).await;
    engine.submit(request(20)).await.unwrap();
    let claimed = engine.claim(&claim(100)).await.unwrap();
    assert!(claimed.len() >= 6, "{}", claimed.len());
    node.shutdown().await;
    drop((node, engine));

    // The log has no torn frame in its middle.
    let node = start(&disk, &rows).await;
    let engine = node.engine();
    assert_eq!(engine.get(kept.id).await.unwrap().attempt, 1);
    engine.submit(request(30)).await.unwrap();
    for number in 11..15 {
        let missing = engine.get(request(number).id.unwrap()).await;
        assert!(missing.is_err(), "a refused task was stored");
    }
    node.shutdown().await;
}

/// Rows are collected in memory. That their disk is full is said when the first of them cannot be written, not when the memory is full, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_rows_is_reported_while_there_is_room_in_memory() {
    let (disk, rows) = (Arc::new(Disk::default()), MemoryRows::default());
    let node = start_with(&disk, &rows, |config| config.collected_bytes = 20_000).await;
    let engine = node.engine();
    rows.set_full(true);
    let (mut stored, mut refused) = (Vec::new(), Vec::new());
    for number in 0..1_000 {
        match engine.submit(request(number)).await {
            Ok(task) => stored.push(task.task.id),
            Err(_) => refused.push(request(number).id.unwrap()),
        }
        if node.status().disk_full {
            break;
        }
    }
    assert!(node.status().disk_full);
    let error = engine.submit(request(2_000)).await.unwrap_err();
    assert!(error.to_string().contains("make room"), "{error}");
    // It is not forgotten because rows are still collected.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(node.status().disk_full);
    assert!(rows.all().is_empty());

    rows.set_full(false);
    eventually("there is room", || (!node.status().disk_full).then_some(())).await;
    engine.submit(request(2_001)).await.unwrap();
    for id in stored {
        engine.get(id).await.unwrap();
    }
    // No change was under way that had to wait for room and was made later.
    for id in refused {
        assert!(
            engine.get(id).await.is_err(),
            "a refused task was stored: {id}"
        );
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_few_large_entries_is_cut() {
    let (disk, rows) = (Arc::new(Disk::default()), MemoryRows::default());
    let tune = |config: &mut ClusterConfig| {
        config.snapshot_bytes = 200_000;
        config.segment_bytes = 30_000;
    };
    let node = start_with(&disk, &rows, tune).await;
    let engine = node.engine();
    let large = |number| {
        let mut request = request(number);
        request.input = Json::parse(format!("\"{}\"", "x".repeat(5_000))).unwrap();
        request
    };
    for number in 0..100 {
        engine.submit(large(number)).await.unwrap();
    }
    // Far fewer entries than are kept for nodes that are behind.
    eventually("the log is cut", || {
        (node.status().log_bytes < 200_000).then_some(())
    })
    .await;
    node.shutdown().await;
    drop((node, engine));

    let node = start(&disk, &rows).await;
    let claimed = node.engine().claim(&claim(200)).await.unwrap();
    assert_eq!(claimed.len(), 100);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_restarts_leads_in_a_new_term() {
    let (disk, rows) = (Arc::new(Disk::default()), MemoryRows::default());
    let mut terms = Vec::new();
    for _ in 0..2 {
        let node = start(&disk, &rows).await;
        terms.push(node.status().term);
        node.shutdown().await;
    }
    assert!(terms[1] > terms[0], "{terms:?}");
}

/// A machine whose wall clock is behind by 8 s.
#[derive(Debug)]
struct Behind(Arc<dyn Runtime>);

impl Runtime for Behind {
    fn now(&self) -> Timestamp {
        self.0.now().minus_millis(8_000)
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        self.0.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<()>) {
        self.0.spawn(future);
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}

/// A node may be elected before it has applied what it has in its log. Its time must continue from the last entry nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_continues_from_entries_that_a_new_leader_applies_late() {
    let (disk, rows) = (Arc::new(Disk::default()), MemoryRows::default());
    let node = start(&disk, &rows).await;
    for number in 0..40 {
        node.engine().submit(request(number)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let last = node.engine().submit(request(40)).await.unwrap();
    node.shutdown().await;
    drop(node);

    // The rows were never synced, and everything is applied again, slowly.
    disk.is_slow.store(true, Ordering::SeqCst);
    let behind = Arc::new(Behind(TokioRuntime::shared()));
    let node = start_by(behind, &disk, &MemoryRows::default(), |_| ()).await;
    let next = node.engine().submit(request(41)).await.unwrap();
    let (last, next) = (last.task.created_at, next.task.created_at);
    assert!(next >= last, "{next} is before {last}");
    node.shutdown().await;
}
