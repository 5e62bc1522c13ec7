//! Checks the permissions and the latency of requests, with a scratch object.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use qo_store::StoreError;

use super::DoctorRun;
use super::report::{DoctorCheck, Health};

/// How often each kind of request is timed. An odd number has a median element.
const SAMPLES: usize = 9;
/// How many versions of the scratch object are deleted: more than are ever written.
const VERSIONS_MAX: usize = 100;
/// About the size of a task's record.
const BODY: &[u8] = &[b'x'; 1_024];

impl DoctorRun<'_> {
    fn scratch_key(&self, name: &str) -> String {
        format!("probe/doctor-{:016x}/{name}", self.runtime.random())
    }

    pub(super) async fn permissions(&self) -> DoctorCheck {
        const NAME: &str = "permissions";
        let key = self.scratch_key("permissions");
        let mut problems = Vec::new();
        let put = self.client.put(&key, Bytes::from_static(BODY)).await;
        let was_put = put.is_ok();
        record_failure(&mut problems, "write (s3:PutObject)", put);
        match self.client.get(&key).await {
            Err(StoreError::NotFound { .. }) if !was_put => {}
            result => record_failure(&mut problems, "read (s3:GetObject)", result),
        }
        let list = self.client.page("probe", None, 1).await;
        record_failure(&mut problems, "list (s3:ListBucket)", list);
        let deleted = self.client.delete_many(std::slice::from_ref(&key)).await;
        if let Err(failures) = deleted {
            problems.extend(
                failures
                    .failed
                    .into_iter()
                    .map(|(_, error)| format!("delete (s3:DeleteObject): {error}")),
            );
        }
        if !problems.is_empty() {
            let summary = format!("these credentials cannot {}", problems.join("; "));
            return DoctorCheck::new(NAME, Health::Failed, summary)
                .hint("grant the permissions listed in docs/guides/buckets.md");
        }
        match self.remove_versions(&key).await {
            Ok(()) => DoctorCheck::new(
                NAME,
                Health::Ok,
                "these credentials can write, read, list and delete objects",
            ),
            Err(error) => DoctorCheck::new(
                NAME,
                Health::Warning,
                format!("versions cannot be listed or deleted: {error}"),
            )
            .hint("purge and `history --versions` need s3:ListBucketVersions, s3:GetObjectVersion and s3:DeleteObjectVersion"),
        }
    }

    pub(super) async fn latency(&self) -> DoctorCheck {
        const NAME: &str = "latency";
        let key = self.scratch_key("latency");
        let measured = self.measure(&key).await;
        // Clean up whether or not the measurement succeeded.
        if let Err(failures) = self.client.delete_many(std::slice::from_ref(&key)).await {
            tracing::debug!(%failures, "could not delete the scratch object");
        }
        if let Err(error) = self.remove_versions(&key).await {
            tracing::debug!(%error, "could not delete the versions of the scratch object");
        }
        match measured {
            Ok([put, get, list]) => DoctorCheck::new(
                NAME,
                Health::Ok,
                format!(
                    "medians of {SAMPLES}: PUT {}, GET {}, LIST {}",
                    in_ms(put),
                    in_ms(get),
                    in_ms(list)
                ),
            )
            .figure("put_median_us", put.as_micros())
            .figure("get_median_us", get.as_micros())
            .figure("list_median_us", list.as_micros()),
            Err(error) => DoctorCheck::new(NAME, Health::Failed, error.to_string()),
        }
    }

    async fn measure(&self, key: &str) -> Result<[Duration; 3], StoreError> {
        let put = self
            .median(|| self.client.put(key, Bytes::from_static(BODY)))
            .await?;
        let get = self.median(|| self.client.get(key)).await?;
        let list = self.median(|| self.client.page("probe", None, 1)).await?;
        Ok([put, get, list])
    }

    async fn median<T, Sent>(&self, send: impl Fn() -> Sent) -> Result<Duration, StoreError>
    where
        Sent: Future<Output = Result<T, StoreError>>,
    {
        let mut times = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            let started = self.runtime.monotonic();
            send().await?;
            times.push(self.runtime.monotonic().saturating_sub(started));
        }
        times.sort();
        Ok(times[SAMPLES / 2])
    }

    /// Deletes the stored versions of a deleted object.
    async fn remove_versions(&self, key: &str) -> Result<(), StoreError> {
        let Some(admin) = &self.store.admin else {
            return Ok(());
        };
        for version in admin.list_versions(key, VERSIONS_MAX).await?.versions {
            admin.delete_version(key, &version.version).await?;
        }
        Ok(())
    }
}

fn record_failure<T>(problems: &mut Vec<String>, action: &str, result: Result<T, StoreError>) {
    if let Err(error) = result {
        problems.push(format!("{action}: {error}"));
    }
}

fn in_ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}
