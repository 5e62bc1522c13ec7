//! Reads records of live tasks, and counts those that this version cannot use.
//!
//! A record of a later version is intact: this version skips it, and its task waits for a worker of the later version. A damaged one
//! is quarantined by the sweeper. Live tasks are found through their index entries; all lines of a queue that is kept in one JSON
//! object are read with one request. The rows of SlateDB are not read: a broker reports them when it opens the database.

use futures_util::StreamExt;
use qo_core::TaskId;
use qo_core::keys::{Key, LATER_PREFIX, LEASES_PREFIX, READY_PREFIX};
use qo_core::task::{DecodeError, decode};
use qo_store::StoreError;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::DoctorRun;
use super::report::{DoctorCheck, Health};

/// How many tasks are read at once.
const CONCURRENCY: usize = 16;
/// The object of a queue that is kept as one JSON object.
const JSON_QUEUE_KEY: &str = "queue.json";

/// How many records were read, and how many of them cannot be used.
#[derive(Debug, Default, Clone, Copy)]
struct RecordCounts {
    read: usize,
    newer: usize,
    damaged: usize,
}

impl RecordCounts {
    fn add(&mut self, record: &[u8]) {
        self.read += 1;
        match decode(record) {
            Ok(_) => {}
            Err(DecodeError::Newer(_)) => self.newer += 1,
            Err(_) => self.damaged += 1,
        }
    }
}

impl DoctorRun<'_> {
    pub(super) async fn records(&self) -> DoctorCheck {
        const NAME: &str = "records";
        let counts = match self.count_records().await {
            Ok(counts) => counts,
            Err(error) => return DoctorCheck::new(NAME, Health::Failed, error.to_string()),
        };
        let RecordCounts {
            read,
            newer,
            damaged,
        } = counts;
        let check = if newer > 0 {
            let summary = format!(
                "{newer} of {read} tasks need a newer version of qo; this version leaves them alone"
            );
            DoctorCheck::new(NAME, Health::Warning, summary)
                .hint("update the workers and servers of this queue, or keep some of the newer version running")
        } else if damaged > 0 {
            let summary = format!("{damaged} of {read} tasks have damaged records");
            DoctorCheck::new(NAME, Health::Warning, summary).hint(
                "run `qo monitor` or a worker: the sweeper moves damaged records to quarantine/, with the reason next to each",
            )
        } else {
            let summary =
                format!("this version can read all {read} live tasks that were looked at");
            DoctorCheck::new(NAME, Health::Ok, summary)
        };
        check
            .figure("read", read)
            .figure("newer", newer)
            .figure("damaged", damaged)
    }

    async fn count_records(&self) -> Result<RecordCounts, StoreError> {
        let mut counts = RecordCounts::default();
        let ids = self.live_tasks().await?;
        let mut records = futures_util::stream::iter(ids)
            .map(|id| async move { self.client.get(&Key::Task(id).to_string()).await })
            .buffered(CONCURRENCY);
        while let Some(record) = records.next().await {
            match record {
                Ok(object) => counts.add(&object.body),
                // The index may lag behind.
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match self.client.get(JSON_QUEUE_KEY).await {
            Ok(object) => {
                #[derive(Deserialize)]
                struct Queue<'a> {
                    #[serde(borrow, default)]
                    tasks: Vec<&'a RawValue>,
                }
                let queue = serde_json::from_slice::<Queue<'_>>(&object.body);
                for line in queue.map(|queue| queue.tasks).unwrap_or_default() {
                    counts.add(line.get().as_bytes());
                }
            }
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(counts)
    }

    /// Tasks that have index entries.
    async fn live_tasks(&self) -> Result<Vec<TaskId>, StoreError> {
        let mut ids = Vec::new();
        for prefix in [READY_PREFIX, LEASES_PREFIX, LATER_PREFIX] {
            let listing = self.list_prefix(prefix).await?;
            ids.extend(listing.keys().filter_map(|key| match key {
                Key::Ready(entry) | Key::Later(entry) => Some(entry.id),
                Key::Lease { id, .. } => Some(id),
                _ => None,
            }));
        }
        ids.sort();
        ids.dedup();
        ids.truncate(self.options.records_max);
        Ok(ids)
    }
}
