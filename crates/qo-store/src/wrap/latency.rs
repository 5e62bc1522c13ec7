//! A wrapper that adds latency to a store.
//!
//! Half of each delay passes before the request reaches the store and half after, as on a real network: two writers
//! that start at the same time also reach the store at the same time. A list is delayed once per page. A body streams
//! without further delay after its response has arrived.

use std::f64::consts::TAU;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::PAGE;
use super::batches::batches;
use crate::runtime::Runtime;

/// The round-trip time of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delay {
    /// Constant.
    Fixed(Duration),
    /// Uniform between two bounds.
    Uniform {
        /// The minimum.
        low: Duration,
        /// The maximum.
        high: Duration,
    },
    /// Close to the median with a long tail, like real stores. At most ten times the 99th percentile.
    LogNormal {
        /// The median.
        median: Duration,
        /// The 99th percentile.
        p99: Duration,
    },
}

impl Delay {
    fn sample(self, random: &mut StdRng) -> Duration {
        match self {
            Self::Fixed(duration) => duration,
            Self::Uniform { low, high } => {
                low + high.saturating_sub(low).mul_f64(random.random::<f64>())
            }
            Self::LogNormal { median, p99 } => {
                // The 99th percentile of a normal distribution is this many standard deviations above
                // its median.
                const P99_DEVIATIONS: f64 = 2.326_347_874;
                let median_s = median.as_secs_f64();
                if median_s == 0.0 {
                    return Duration::ZERO;
                }
                let p99 = p99.max(median);
                let deviation = (p99.as_secs_f64() / median_s).ln() / P99_DEVIATIONS;
                // Box-Muller transform: two uniform numbers give one normal number. One minus the
                // first is never zero.
                let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
                let normal = radius * (TAU * random.random::<f64>()).cos();
                let drawn = Duration::try_from_secs_f64(median_s * (deviation * normal).exp());
                drawn.unwrap_or(Duration::MAX).min(p99.saturating_mul(10))
            }
        }
    }
}

/// A store with added latency.
#[derive(Debug)]
pub struct LatencyStore {
    inner: Arc<dyn ObjectStore>,
    waits: Arc<Waits>,
}

#[derive(Debug)]
struct Waits {
    runtime: Arc<dyn Runtime>,
    delay: Delay,
    random: Mutex<StdRng>,
}

impl Waits {
    /// Half of the next delay.
    fn half(&self) -> Duration {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        self.delay.sample(&mut random) / 2
    }

    async fn wait(&self, duration: Duration) {
        if !duration.is_zero() {
            self.runtime.sleep(duration).await;
        }
    }

    async fn around<T>(&self, request: impl Future<Output = T>) -> T {
        let half = self.half();
        self.wait(half).await;
        let result = request.await;
        self.wait(half).await;
        result
    }
}

impl LatencyStore {
    /// Delays every request to `inner`. The same seed and order of requests give the same delays.
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        runtime: Arc<dyn Runtime>,
        delay: Delay,
        seed: u64,
    ) -> Self {
        Self {
            inner,
            waits: Arc::new(Waits {
                runtime,
                delay,
                random: Mutex::new(StdRng::seed_from_u64(seed)),
            }),
        }
    }

    /// Starts the list only after half of the first delay, because some stores return their contents at the time
    /// of the call.
    fn delayed_list(
        &self,
        start: impl FnOnce(&dyn ObjectStore) -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = Arc::clone(&self.inner);
        let waits = Arc::clone(&self.waits);
        stream::once(async move {
            let half = waits.half();
            waits.wait(half).await;
            let entries = start(inner.as_ref());
            stream::unfold((entries, 0_usize), move |(mut entries, seen)| {
                let waits = Arc::clone(&waits);
                async move {
                    let entry = entries.next().await;
                    if seen == 0 {
                        waits.wait(half).await;
                    } else if seen % PAGE == 0 && entry.is_some() {
                        waits.around(std::future::ready(())).await;
                    }
                    entry.map(|entry| (entry, (entries, seen + 1)))
                }
            })
        })
        .flatten()
        .boxed()
    }
}

impl fmt::Display for LatencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Latency({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for LatencyStore {
    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let request = self.inner.put_opts(path, body, opts);
        self.waits.around(request).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let request = self.inner.put_multipart_opts(location, opts);
        let inner = self.waits.around(request).await?;
        Ok(Box::new(LatencyUpload {
            inner,
            waits: Arc::clone(&self.waits),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let request = self.inner.get_opts(location, options);
        self.waits.around(request).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.inner);
        let waits = Arc::clone(&self.waits);
        batches(locations)
            .then(move |batch| {
                let inner = Arc::clone(&inner);
                let waits = Arc::clone(&waits);
                async move {
                    let mut results = Vec::new();
                    if !batch.keys.is_empty() {
                        let keys = stream::iter(batch.keys).map(Ok).boxed();
                        results = waits.around(inner.delete_stream(keys).collect()).await;
                    }
                    results.extend(batch.error.map(Err));
                    stream::iter(results)
                }
            })
            .flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.cloned();
        self.delayed_list(move |inner| inner.list(prefix.as_ref()))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.cloned();
        let offset = offset.clone();
        self.delayed_list(move |inner| inner.list_with_offset(prefix.as_ref(), &offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let request = self.inner.list_with_delimiter(prefix);
        let result = self.waits.around(request).await?;
        let entries = result.objects.len() + result.common_prefixes.len();
        for _ in 1..entries.div_ceil(PAGE) {
            self.waits.around(std::future::ready(())).await;
        }
        Ok(result)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let request = self.inner.copy_opts(from, to, options);
        self.waits.around(request).await
    }
}

#[derive(Debug)]
struct LatencyUpload {
    inner: Box<dyn MultipartUpload>,
    waits: Arc<Waits>,
}

#[async_trait]
impl MultipartUpload for LatencyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let request = self.inner.put_part(data);
        let waits = Arc::clone(&self.waits);
        Box::pin(async move { waits.around(request).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.waits.around(self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.waits.around(self.inner.abort()).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::TryStreamExt;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::wrap::testing::PausableRuntime;

    const DELAY: Duration = Duration::from_millis(100);

    fn slow_memory(runtime: &Arc<dyn Runtime>) -> (Arc<InMemory>, LatencyStore) {
        let memory = Arc::new(InMemory::new());
        let inner = Arc::clone(&memory) as Arc<dyn ObjectStore>;
        let store = LatencyStore::new(inner, Arc::clone(runtime), Delay::Fixed(DELAY), 1);
        (memory, store)
    }

    #[tokio::test(start_paused = true)]
    async fn every_request_is_delayed_and_a_list_once_per_page() {
        let runtime = PausableRuntime::shared();
        let (memory, store) = slow_memory(&runtime);
        for n in 0..1_001 {
            let key = Path::from(format!("a/{n:04}"));
            memory.put(&key, "x".into()).await.unwrap();
        }
        let key = Path::from("a/0000");
        let started = runtime.monotonic();
        store.put(&key, "y".into()).await.unwrap();
        store.get(&key).await.unwrap().bytes().await.unwrap();
        store.head(&key).await.unwrap();
        store.copy(&key, &Path::from("b")).await.unwrap();
        store.delete(&Path::from("b")).await.unwrap();
        assert_eq!(runtime.monotonic(), started + 5 * DELAY);

        let started = runtime.monotonic();
        let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
        assert_eq!(listed.len(), 1_001);
        assert_eq!(runtime.monotonic(), started + 2 * DELAY);

        let started = runtime.monotonic();
        assert!(store.list(Some(&Path::from("none"))).next().await.is_none());
        assert_eq!(runtime.monotonic(), started + DELAY);

        let started = runtime.monotonic();
        let keys = stream::iter(listed).map(|meta| Ok(meta.location)).boxed();
        let deleted: Vec<_> = store.delete_stream(keys).try_collect().await.unwrap();
        assert_eq!(deleted.len(), 1_001);
        assert_eq!(runtime.monotonic(), started + 2 * DELAY);

        let started = runtime.monotonic();
        let mut upload = store.put_multipart(&key).await.unwrap();
        upload.put_part("part".into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!(runtime.monotonic(), started + 3 * DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_takes_effect_half_way() {
        let runtime = PausableRuntime::shared();
        let (memory, store) = slow_memory(&runtime);
        let key = Path::from("k");
        let written = Arc::new(store);
        let writer = Arc::clone(&written);
        let (done, finished) = tokio::sync::oneshot::channel();
        let writing = key.clone();
        runtime.spawn(Box::pin(async move {
            let _ = done.send(writer.put(&writing, "x".into()).await);
        }));
        runtime.sleep(DELAY * 4 / 10).await;
        assert!(memory.get(&key).await.is_err());
        runtime.sleep(DELAY * 2 / 10).await;
        assert!(memory.get(&key).await.is_ok());
        finished.await.unwrap().unwrap();
        assert_eq!(runtime.monotonic(), DELAY);
    }

    #[test]
    fn samples_are_repeatable_and_have_the_requested_distribution() {
        let sample = |delay: Delay, seed| {
            let mut random = StdRng::seed_from_u64(seed);
            let mut drawn: Vec<_> = (0..10_000).map(|_| delay.sample(&mut random)).collect();
            drawn.sort();
            drawn
        };
        let ms = Duration::from_millis;
        let uniform = Delay::Uniform {
            low: ms(10),
            high: ms(20),
        };
        let drawn = sample(uniform, 7);
        assert_eq!(drawn, sample(uniform, 7));
        assert_ne!(drawn, sample(uniform, 8));
        assert!(drawn[0] >= ms(10) && drawn[9_999] <= ms(20));

        let skewed = Delay::LogNormal {
            median: ms(30),
            p99: ms(300),
        };
        let drawn = sample(skewed, 7);
        assert!(
            (ms(28)..ms(32)).contains(&drawn[5_000]),
            "{:?}",
            drawn[5_000]
        );
        assert!(
            (ms(250)..ms(350)).contains(&drawn[9_900]),
            "{:?}",
            drawn[9_900]
        );
        assert!(drawn[9_999] <= ms(3_000));
        let none = Delay::LogNormal {
            median: Duration::ZERO,
            p99: ms(1),
        };
        assert_eq!(sample(none, 1)[9_999], Duration::ZERO);
    }
}
