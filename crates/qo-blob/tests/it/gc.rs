//! The garbage collection, step by step and under concurrent submits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use qo_blob::gc::{COLLECTED_KEPT_MS, GRACE_MIN_MS, GcOptions, GcReport};
use qo_blob::{BlobError, BlobStore, BlobStoreExt, Blobs, address_of, submit_with_blobs};
use qo_core::keys::{BLOBS_PREFIX, Key};
use qo_core::{BlobAddress, Json, TaskId};
use qo_direct::{DirectConfig, DirectEngine};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_fixtures::{Bucket, LayeredStore, StoreLayer};
use qo_store::runtime::Runtime;
use qo_store::wrap::{Delay, FaultKind, FaultPlan, FaultStore, LatencyStore, SplitMix64};

const HOUR: u64 = 60 * 60;

/// A process on a bucket.
struct Process {
    runtime: Arc<dyn Runtime>,
    engine: DirectEngine,
    blobs: Blobs,
}

impl Process {
    fn new(bucket: &Bucket, objects: Arc<dyn ObjectStore>) -> Self {
        let client = bucket.client_on(objects);
        let runtime: Arc<dyn Runtime> = bucket.runtime.clone();
        let config = DirectConfig::default();
        Self {
            engine: DirectEngine::new(client.clone(), None, Arc::clone(&runtime), config),
            blobs: Blobs::new(client, Arc::clone(&runtime), 1 << 30),
            runtime,
        }
    }

    async fn gc(&self, grace_ms: u64) -> GcReport {
        let options = GcOptions::new(grace_ms, false);
        self.blobs.gc(&self.engine, &options).await.unwrap()
    }

    async fn submit(&self, input: String, addresses: &[BlobAddress]) -> Result<TaskId, BlobError> {
        let input = Json::parse(input).unwrap();
        let request = SubmitRequest::new("wasi".parse().unwrap(), input);
        let runtime = self.runtime.as_ref();
        let submitted =
            submit_with_blobs(&self.engine, &self.blobs, runtime, request, addresses).await?;
        Ok(submitted.task.id)
    }

    async fn sleep(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }
}

fn quiet(bucket: &Bucket) -> Process {
    Process::new(bucket, bucket.counted())
}

#[tokio::test(start_paused = true)]
async fn only_old_blobs_without_a_task_are_collected() {
    let bucket = Bucket::new();
    let process = quiet(&bucket);
    let put = async |text: &'static str| {
        let put = process
            .blobs
            .put_bytes(Bytes::from_static(text.as_bytes()))
            .await;
        put.unwrap().address
    };
    let (in_input, in_output, in_error) =
        (put("input").await, put("output").await, put("error").await);
    let (in_large, unused) = (put("large").await, put("unused").await);
    process
        .submit(format!(r#"{{"a":"{in_input}"}}"#), &[in_input])
        .await
        .unwrap();
    let padding = "x".repeat(100_000);
    process
        .submit(format!(r#"["{padding}","{in_large}"]"#), &[in_large])
        .await
        .unwrap();
    let mut claim = ClaimRequest::new("w".parse().unwrap(), Vec::new());
    claim.max = 2;
    let tasks = process.engine.claim(&claim).await.unwrap();
    let output = Json::parse(format!(r#"{{"output_addr":"{in_output}"}}"#)).unwrap();
    process
        .engine
        .complete(tasks[0].id, tasks[0].lease_id.unwrap(), Some(output))
        .await
        .unwrap();
    let failure = qo_core::transition::Failure {
        kind: qo_core::transition::FailureKind::Permanent,
        error: format!("exit code 1; output {in_error}").into(),
    };
    process
        .engine
        .fail(tasks[1].id, tasks[1].lease_id.unwrap(), failure)
        .await
        .unwrap();

    let report = process.gc(GRACE_MIN_MS).await;
    assert_eq!((report.blobs, report.recent, report.collected), (5, 5, 0));
    process.sleep(2 * HOUR).await;
    let options = GcOptions::new(GRACE_MIN_MS, true);
    let dry = process.blobs.gc(&process.engine, &options).await.unwrap();
    assert_eq!((dry.collected, dry.collected_bytes), (1, 6));
    let report = process.gc(GRACE_MIN_MS).await;
    assert_eq!(
        (report.referenced, report.collected, report.tasks),
        (4, 1, 2),
        "{report:?}"
    );
    for kept in [in_input, in_output, in_error, in_large] {
        process.blobs.read_all(kept, 100).await.unwrap();
    }
    let gone = BlobError::NotFound { address: unused };
    assert_eq!(process.blobs.head(unused).await, Err(gone.clone()));
    assert_eq!(process.blobs.touch(unused).await, Err(gone.clone()));
    assert_eq!(
        process.submit(format!(r#""{unused}""#), &[unused]).await,
        Err(gone)
    );
    // A touch keeps a blob for another grace time, an archived task for ever.
    process.engine.archive(tasks[0].id).await.unwrap();
    process.engine.purge(tasks[1].id).await.unwrap();
    process.blobs.touch(in_error).await.unwrap();
    let report = process.gc(GRACE_MIN_MS).await;
    assert_eq!((report.collected, report.recent), (1, 2), "{report:?}");
    process.blobs.read_all(in_error, 100).await.unwrap();
    process.blobs.read_all(in_output, 100).await.unwrap();
    let short = GcOptions::new(GRACE_MIN_MS - 1, false);
    let error = process.blobs.gc(&process.engine, &short).await.unwrap_err();
    assert_eq!(error, BlobError::GraceTooShort { min_seconds: HOUR });
}

#[tokio::test(start_paused = true)]
async fn what_crashes_leave_is_finished() {
    let bucket = Bucket::new();
    let process = quiet(&bucket);
    let data = |address, generation| {
        Key::BlobData {
            address,
            generation,
        }
        .to_string()
    };
    // An upload that crashed before its record.
    let orphan = address_of(b"orphan");
    bucket.put(&data(orphan, 1), "orphan").await;
    // A collection that crashed before it deleted the bytes, and one after whose end the blob was uploaded again.
    let half = process
        .blobs
        .put_bytes(Bytes::from_static(b"half"))
        .await
        .unwrap()
        .address;
    process.blobs.delete(half).await.unwrap();
    bucket.put(&data(half, 1), "half").await;
    let again = process
        .blobs
        .put_bytes(Bytes::from_static(b"again"))
        .await
        .unwrap()
        .address;
    process.blobs.delete(again).await.unwrap();
    process
        .blobs
        .put_bytes(Bytes::from_static(b"again"))
        .await
        .unwrap();
    process.sleep(2 * HOUR).await;
    let report = process.gc(GRACE_MIN_MS).await;
    assert_eq!((report.adopted, report.collected), (1, 1), "{report:?}");
    assert_eq!(bucket.keys("blobs/data").await, [data(orphan, 1)]);
    process.sleep(2 * HOUR).await;
    assert_eq!(process.gc(GRACE_MIN_MS).await.collected, 1);
    assert!(bucket.keys("blobs/data").await.is_empty());
    // The records follow a week later.
    assert_eq!(bucket.keys("blobs/records").await.len(), 3);
    process.sleep(COLLECTED_KEPT_MS / 1_000 + HOUR).await;
    process.gc(GRACE_MIN_MS).await;
    assert!(bucket.keys(BLOBS_PREFIX).await.is_empty());
    // Bytes without a record, beside a collection: as after an upload at the moment in which the record is removed.
    bucket.put(&data(again, 2), "again").await;
    assert_eq!(process.blobs.read_all(again, 100).await.unwrap(), "again");
    process
        .submit(format!(r#""{again}""#), &[again])
        .await
        .unwrap();
    process.sleep(2 * HOUR).await;
    process.gc(GRACE_MIN_MS).await;
    assert_eq!(process.blobs.read_all(again, 100).await.unwrap(), "again");
}

/// The tasks that were acknowledged and not purged, with their blobs.
type Live = Arc<Mutex<BTreeMap<TaskId, BlobAddress>>>;

const CONTENTS: [&str; 3] = ["a", "b", "c"];

/// A bug that the campaign has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlantedBug {
    /// A submit does not touch the blobs of its task.
    NoTouch,
    /// A collection does not see the tasks.
    TasksUnread,
}

/// A store whose lists contain no tasks.
#[derive(Debug)]
struct WithoutTasks(Arc<dyn ObjectStore>);

#[async_trait::async_trait]
impl StoreLayer for WithoutTasks {
    fn inner(&self) -> &dyn ObjectStore {
        self.0.as_ref()
    }

    fn list(
        &self,
        prefix: Option<&Path>,
        offset: Option<&Path>,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let listed = match offset {
            Some(offset) => self.0.list_with_offset(prefix, offset),
            None => self.0.list(prefix),
        };
        let is_task = |meta: &ObjectMeta| meta.location.as_ref().starts_with("tasks/");
        listed
            .filter(move |entry| std::future::ready(!entry.as_ref().is_ok_and(is_task)))
            .boxed()
    }
}

/// Uploads or touches a blob, lets time pass, and submits a task that refers to the blob; purges tasks of its own.
async fn submitter(process: Process, live: Live, random: SplitMix64, planted: Option<PlantedBug>) {
    for _ in 0..25 {
        process.sleep(random.next_u64() % (2 * HOUR)).await;
        let content = CONTENTS[usize::try_from(random.next_u64() % 3).unwrap()];
        let address = address_of(content.as_bytes());
        if random.next_u64().is_multiple_of(2)
            && process.blobs.put_bytes(Bytes::from(content)).await.is_err()
        {
            continue;
        }
        let touched = match planted {
            Some(PlantedBug::NoTouch) => Vec::new(),
            _ => vec![address],
        };
        let Ok(id) = process
            .submit(format!(r#"{{"binary_addr":"{address}"}}"#), &touched)
            .await
        else {
            // The blob is gone, or the store failed: nothing was acknowledged.
            continue;
        };
        live.lock().unwrap().insert(id, address);
        process.sleep(random.next_u64() % (3 * HOUR)).await;
        live.lock().unwrap().remove(&id);
        while process.engine.cancel(id, None).await.is_err()
            && !process
                .engine
                .get(id)
                .await
                .is_ok_and(|task| task.status.is_terminal())
        {}
        while process
            .engine
            .purge(id)
            .await
            .is_err_and(|error| !error.is_not_found())
        {}
    }
}

/// Collects again and again, and checks what it must not touch.
async fn collector(
    process: Process,
    live: Live,
    random: SplitMix64,
    reader: Blobs,
) -> Result<u64, String> {
    let mut collected = 0;
    for _ in 0..40 {
        process.sleep(random.next_u64() % HOUR).await;
        let options = GcOptions::new(GRACE_MIN_MS, false);
        if let Ok(report) = process.blobs.gc(&process.engine, &options).await {
            collected += report.collected;
        }
        let referenced: Vec<_> = live
            .lock()
            .unwrap()
            .iter()
            .map(|(id, blob)| (*id, *blob))
            .collect();
        for (id, address) in referenced {
            let read = reader.read_all(address, 100).await;
            let is_live = live.lock().unwrap().contains_key(&id);
            if let Err(error) = read
                && is_live
            {
                return Err(format!("task {id} lost its blob {address}: {error}"));
            }
        }
    }
    Ok(collected)
}

/// The number of seeds of the campaign.
const SEEDS: u64 = 12;

/// Submitters and collectors of many processes at the same time, on a slow store that loses, delays and repeats requests. Returns how many
/// blobs were collected, or which task lost its blob.
async fn campaign(seed: u64, planted: Option<PlantedBug>) -> Result<u64, String> {
    let bucket = Bucket::new();
    let live = Live::default();
    let process = |number: u64, collects: bool| {
        let seed = SplitMix64::derive(seed, number);
        let runtime: Arc<dyn Runtime> = bucket.runtime.clone();
        let delay = Delay::LogNormal {
            median: Duration::from_millis(200),
            p99: Duration::from_mins(1),
        };
        let slow = LatencyStore::new(bucket.objects(), Arc::clone(&runtime), delay, seed);
        let kinds = [
            FaultKind::LostRequest,
            FaultKind::LostResponse,
            FaultKind::LateApply,
            FaultKind::ErrorAfterApply,
        ];
        let plan = FaultPlan::none().with_each(kinds, 0.01);
        let mut objects: Arc<dyn ObjectStore> =
            Arc::new(FaultStore::new(Arc::new(slow), runtime, plan, seed));
        if collects && planted == Some(PlantedBug::TasksUnread) {
            objects = Arc::new(LayeredStore(WithoutTasks(objects)));
        }
        (Process::new(&bucket, objects), SplitMix64::new(seed))
    };
    let submitters = (0..4).map(|number| {
        let (process, random) = process(number, false);
        submitter(process, Arc::clone(&live), random, planted)
    });
    let collectors = (10..12).map(|number| {
        let (process, random) = process(number, true);
        collector(process, Arc::clone(&live), random, quiet(&bucket).blobs)
    });
    let submitters = async {
        futures_util::future::join_all(submitters).await;
        Ok(())
    };
    let collectors = futures_util::future::try_join_all(collectors);
    let (collected, ()) = futures_util::future::try_join(collectors, submitters).await?;
    let last = quiet(&bucket);
    // A submit may have created its task although its response was lost. Such a task keeps its blob, rightly.
    bucket.delete_all("tasks/").await;
    for _ in 0..3 {
        last.sleep(COLLECTED_KEPT_MS / 1_000 + HOUR).await;
        last.gc(GRACE_MIN_MS).await;
    }
    let left = bucket.keys(BLOBS_PREFIX).await;
    if !left.is_empty() {
        return Err(format!("not collected: {left:?}"));
    }
    Ok(collected.into_iter().sum())
}

/// No acknowledged task loses its blob, and in the end everything is collected.
#[tokio::test(start_paused = true)]
async fn collections_under_concurrent_submits_lose_nothing() {
    let mut collected = 0;
    for seed in 0..SEEDS {
        match campaign(seed, None).await {
            Ok(count) => collected += count,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(
        collected > 50,
        "the collectors had too little to do: {collected}"
    );
}

/// The campaign can fail.
#[tokio::test(start_paused = true)]
async fn the_campaign_finds_planted_bugs() {
    for planted in [PlantedBug::NoTouch, PlantedBug::TasksUnread] {
        let mut found = None;
        for seed in 0..SEEDS {
            if let Err(error) = campaign(seed, Some(planted)).await {
                found = Some(error);
                break;
            }
        }
        let found = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        assert!(found.contains("lost its blob"), "{planted:?}: {found}");
    }
}
