//! The blobs in an object store.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use qo_core::keys::{BLOB_DATA_PREFIX, Key};
use qo_core::{BlobAddress, Timestamp};
use qo_engine::Engine;
use qo_engine::environment::{self, ConfigError};
use qo_store::client::{ObjectInfo, PAGE_LIMIT_MAX, Tag};
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError, StoreKind};

use crate::api::{BlobInfo, BlobPage, BlobStore, BlobStream, PutBlob, ReadBlob};
use crate::digest::verified;
use crate::error::BlobError;
use crate::gc::{GcOptions, GcReport};
use crate::record::{BlobRecord, StoredBytes};
use crate::spool::Spool;

/// A blob that was touched less long ago than this is not touched again.
pub const TOUCH_INTERVAL_MS: u64 = 15 * 60 * 1_000;

/// The default limit of a blob in a bucket.
const BUCKET_MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// The largest limit that can be set: fewer than the 10,000 parts of 8 MiB that S3 accepts.
const MAX_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;

/// How often an operation starts again because another process changed the record.
const TRIES_MAX: u32 = 10;

/// The blobs in an object store. Clones share everything.
///
/// # Layout
///
/// A blob has a small record and its bytes. The bytes carry a generation: they are stored as generation 1, and as the next one if the
/// blob is uploaded again after it was collected. The record says which generation is stored or was collected, and when the blob was
/// last touched. Records change by compare-and-swap. Bytes of a generation that a record calls collected are never used again, so they
/// can be deleted at any time, and a delete that arrives late does no harm.
///
/// | operation | requests |
/// | --- | --- |
/// | `put` of a new blob | 1 GET, 2 PUT (above 16 MiB: 2 POST and 1 PUT per 8 MiB, and 1 PUT) |
/// | `put` of a known blob, `touch` | 1 GET, and 1 PUT every 15 minutes |
/// | `get` of a whole blob | 1 GET |
/// | `get` of a range | 1 HEAD, 1 GET |
/// | `head` | 1 HEAD |
/// | `list` | 1 LIST a page |
/// | `delete` | 1 GET, 1 PUT, 1 DELETE |
///
/// A blob that was collected before takes 2 requests more to read, and 1 DELETE more to store.
///
/// # Crashes
///
/// | operation | step | a crash right after it leaves |
/// | --- | --- | --- |
/// | put | 1. receive the upload, check size and address | nothing: the temporary file has no name |
/// | put | 2. write the bytes of the next generation | bytes without a record. They can be read, the next upload writes the same bytes again, and the garbage collection gives them a record after the grace time |
/// | put | 3. create or swap the record | a stored blob |
/// | touch | swap the record | a touched blob |
/// | delete, gc | 1. swap the record: collected | bytes that are not used any more; the next garbage collection deletes them |
/// | delete, gc | 2. delete the bytes | a record of a collected blob, which the garbage collection removes a week later |
///
/// Two uploads of one blob write the same bytes under the same key, so neither can damage the other. The one whose record loses the race
/// finds the other's record.
#[derive(Debug, Clone)]
pub struct Blobs {
    pub(crate) client: StoreClient,
    runtime: Arc<dyn Runtime>,
    max_bytes: u64,
}

/// A record as read from the store.
pub(crate) struct StoredRecord {
    pub(crate) record: BlobRecord,
    pub(crate) tag: Tag,
}

impl Blobs {
    /// The blobs in the store of a client. `max_bytes` limits each blob; [`Blobs::limit_of`] has the default.
    pub fn new(client: StoreClient, runtime: Arc<dyn Runtime>, max_bytes: u64) -> Self {
        Self {
            client,
            runtime,
            max_bytes,
        }
    }

    /// The default limit of a blob in a kind of store: 64 MiB in SQLite, 256 MiB in memory, 1 GiB in buckets.
    pub fn limit_of(kind: StoreKind) -> u64 {
        match kind {
            StoreKind::Sqlite | StoreKind::Memory => kind.object_max_bytes(),
            _ => BUCKET_MAX_BYTES,
        }
    }

    /// The limit of a blob in a kind of store: `QO_BLOB_MAX_BYTES`, or the default. SQLite and memory cannot exceed theirs.
    pub fn limit_from(
        kind: StoreKind,
        vars: &BTreeMap<String, String>,
    ) -> Result<u64, ConfigError> {
        let max = match kind {
            StoreKind::Sqlite | StoreKind::Memory => Self::limit_of(kind),
            _ => MAX_BYTES_MAX,
        };
        let limit = environment::number(vars, "QO_BLOB_MAX_BYTES", 1, MAX_BYTES_MAX)?;
        Ok(limit.unwrap_or(Self::limit_of(kind)).min(max))
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.client.now()
    }

    /// Reads the record of a blob.
    pub(crate) async fn record(
        &self,
        address: BlobAddress,
    ) -> Result<Option<StoredRecord>, BlobError> {
        let object = match self.client.get(&Key::BlobRecord(address).to_string()).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match BlobRecord::decode(&object.body, address) {
            Ok(record) => Ok(Some(StoredRecord {
                record,
                tag: object.tag,
            })),
            Err(detail) => Err(BlobError::Unreadable { address, detail }),
        }
    }

    /// Writes the record that `next` makes of the operation's id and time. Returns `None` if another process was faster.
    pub(crate) async fn write_record(
        &self,
        expected: Option<&Tag>,
        next: impl FnOnce(Timestamp, qo_core::OpId) -> BlobRecord,
    ) -> Result<Option<BlobRecord>, BlobError> {
        let op = self.runtime.new_op_id();
        let record = next(self.now(), op);
        let address = record.address;
        let body = record.encode().map_err(|error| BlobError::Unreadable {
            address,
            detail: error.to_string(),
        })?;
        let (key, body) = (Key::BlobRecord(address).to_string(), Bytes::from(body));
        let written = match expected {
            None => self.client.create(&key, body, &op).await,
            Some(tag) => self.client.swap(&key, body, tag, &op).await,
        };
        match written {
            Ok(_) => Ok(Some(record)),
            Err(StoreError::AlreadyExists { .. } | StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores an upload that was received.
    pub async fn store(&self, spool: &Spool) -> Result<PutBlob, BlobError> {
        let (address, size) = (spool.address(), spool.size());
        let put = |created| PutBlob {
            address,
            size,
            created,
        };
        for _ in 0..TRIES_MAX {
            let found = self.record(address).await?;
            if let Some(stored) = found.as_ref().filter(|stored| stored.record.is_stored()) {
                if self.touch_stored(stored).await?.is_some() {
                    return Ok(put(false));
                }
                continue;
            }
            let collected = found.as_ref().map_or(0, |found| found.record.generation);
            if collected > 0 {
                // Reads try the first generation first, so what is left of a collected one must go.
                self.delete_data(address, collected).await?;
            }
            let generation = collected + 1;
            let key = Key::BlobData {
                address,
                generation,
            };
            self.client.put_from(&key.to_string(), spool).await?;
            let written = self.write_stored(found.as_ref(), address, size, generation);
            if written.await?.is_some() {
                return Ok(put(true));
            }
        }
        Err(BlobError::Contended { address })
    }

    /// Records that the bytes of a generation are stored.
    pub(crate) async fn write_stored(
        &self,
        found: Option<&StoredRecord>,
        address: BlobAddress,
        size: u64,
        generation: u64,
    ) -> Result<Option<BlobRecord>, BlobError> {
        let tag = found.map(|found| &found.tag);
        let bytes = StoredBytes { size, generation };
        self.write_record(tag, |now, op| match found {
            None => BlobRecord::new(address, bytes, now, op),
            Some(found) => found.record.stored_again(bytes, now, op),
        })
        .await
    }

    /// Touches a stored blob unless it was touched a short time ago. Returns `None` if another process changed the record.
    async fn touch_stored(&self, stored: &StoredRecord) -> Result<Option<BlobRecord>, BlobError> {
        let renew_at = stored.record.touched_at.plus_millis(TOUCH_INTERVAL_MS);
        if renew_at > self.now() {
            return Ok(Some(stored.record.clone()));
        }
        self.write_record(Some(&stored.tag), |now, op| stored.record.touched(now, op))
            .await
    }

    /// The generation of bytes that are stored without a record that says so, with their size.
    pub(crate) async fn unrecorded(
        &self,
        address: BlobAddress,
        after: u64,
    ) -> Result<Option<(u64, u64)>, BlobError> {
        let folder = format!("{BLOB_DATA_PREFIX}/{}", address.group());
        let start = format!("{folder}/{address}");
        let page = self.client.page(&folder, Some(&start), 16).await?;
        let generations = page
            .entries
            .iter()
            .filter_map(|entry| match entry.key.parse() {
                Ok(Key::BlobData {
                    address: of,
                    generation,
                }) if of == address && generation > after => Some((generation, entry.size)),
                _ => None,
            });
        Ok(generations.max())
    }

    /// The generation of a blob whose first generation is not there.
    async fn later_generation(&self, address: BlobAddress) -> Result<u64, BlobError> {
        let found = self.record(address).await?;
        if let Some(found) = found.as_ref().filter(|found| found.record.is_stored())
            && found.record.generation > 1
        {
            return Ok(found.record.generation);
        }
        let collected = found.map_or(0, |found| found.record.generation);
        match self.unrecorded(address, collected).await? {
            Some((generation, _)) => Ok(generation),
            None => Err(BlobError::NotFound { address }),
        }
    }

    async fn head_generation(&self, address: BlobAddress) -> Result<(u64, ObjectInfo), BlobError> {
        let key = |generation| {
            Key::BlobData {
                address,
                generation,
            }
            .to_string()
        };
        match self.client.head(&key(1)).await {
            Ok(info) => Ok((1, info)),
            Err(StoreError::NotFound { .. }) => {
                let generation = self.later_generation(address).await?;
                let head = self.client.head(&key(generation)).await;
                Ok((generation, head.map_err(|error| missing(error, address))?))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn read_whole(&self, address: BlobAddress) -> Result<ReadBlob, BlobError> {
        let key = |generation| {
            Key::BlobData {
                address,
                generation,
            }
            .to_string()
        };
        let object = match self.client.read(&key(1), None).await {
            Err(StoreError::NotFound { .. }) => {
                let generation = self.later_generation(address).await?;
                let read = self.client.read(&key(generation), None).await;
                read.map_err(|error| missing(error, address))?
            }
            read => read?,
        };
        Ok(ReadBlob {
            address,
            size: object.info.size,
            range: 0..object.info.size,
            body: verified(address, body(object.body)),
        })
    }

    /// Marks the bytes of a record as collected, unless the record has changed, and deletes them.
    pub(crate) async fn collect(&self, stored: &StoredRecord) -> Result<bool, BlobError> {
        let written = self
            .write_record(Some(&stored.tag), |now, op| {
                stored.record.collected(now, op)
            })
            .await?;
        let Some(record) = written else {
            return Ok(false);
        };
        self.delete_data(record.address, record.generation).await?;
        Ok(true)
    }

    /// Deletes the bytes of a collected generation.
    pub(crate) async fn delete_data(
        &self,
        address: BlobAddress,
        generation: u64,
    ) -> Result<(), BlobError> {
        let key = Key::BlobData {
            address,
            generation,
        };
        match self.client.delete_many(&[key.to_string()]).await {
            Ok(()) => Ok(()),
            Err(mut failures) => match failures.failed.pop() {
                Some((_, error)) => Err(error.into()),
                None => Ok(()),
            },
        }
    }
}

fn missing(error: StoreError, address: BlobAddress) -> BlobError {
    match error {
        StoreError::NotFound { .. } => BlobError::NotFound { address },
        error => error.into(),
    }
}

fn body(stream: futures_util::stream::BoxStream<'static, Result<Bytes, StoreError>>) -> BlobStream {
    stream.map(|chunk| chunk.map_err(BlobError::from)).boxed()
}

#[async_trait]
impl BlobStore for Blobs {
    fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    async fn put(
        &self,
        body: BlobStream,
        expected: Option<BlobAddress>,
    ) -> Result<PutBlob, BlobError> {
        let spool = Spool::receive(body, self.max_bytes, expected).await?;
        self.store(&spool).await
    }

    async fn get(
        &self,
        address: BlobAddress,
        range: Option<Range<u64>>,
    ) -> Result<ReadBlob, BlobError> {
        let Some(range) = range else {
            return self.read_whole(address).await;
        };
        let (generation, info) = self.head_generation(address).await?;
        let size = info.size;
        BlobError::check_range(address, &range, size)?;
        let key = Key::BlobData {
            address,
            generation,
        };
        let read = self
            .client
            .read(&key.to_string(), Some(range.clone()))
            .await;
        let object = read.map_err(|error| missing(error, address))?;
        Ok(ReadBlob {
            address,
            size,
            range,
            body: body(object.body),
        })
    }

    async fn head(&self, address: BlobAddress) -> Result<BlobInfo, BlobError> {
        let (_, info) = self.head_generation(address).await?;
        Ok(BlobInfo {
            address,
            size: info.size,
            stored_at: info.last_modified,
        })
    }

    async fn touch(&self, address: BlobAddress) -> Result<BlobInfo, BlobError> {
        for _ in 0..TRIES_MAX {
            let found = self.record(address).await?;
            let stored = found.as_ref().filter(|found| found.record.is_stored());
            let touched = if let Some(stored) = stored {
                self.touch_stored(stored).await?
            } else {
                let collected = found.as_ref().map_or(0, |found| found.record.generation);
                let Some((generation, size)) = self.unrecorded(address, collected).await? else {
                    return Err(BlobError::NotFound { address });
                };
                self.write_stored(found.as_ref(), address, size, generation)
                    .await?
            };
            if let Some(record) = touched {
                return Ok(BlobInfo {
                    address,
                    size: record.size,
                    stored_at: record.stored_at,
                });
            }
        }
        Err(BlobError::Contended { address })
    }

    async fn list(&self, after: Option<BlobAddress>, limit: usize) -> Result<BlobPage, BlobError> {
        let limit = limit.clamp(1, PAGE_LIMIT_MAX);
        // A tilde sorts after every digit, so all generations of the blob are behind it.
        let after = after.map(|after| format!("{BLOB_DATA_PREFIX}/{}/{after}.~", after.group()));
        let page = self
            .client
            .page(BLOB_DATA_PREFIX, after.as_deref(), limit)
            .await?;
        let mut blobs: Vec<BlobInfo> = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            let Ok(Key::BlobData { address, .. }) = entry.key.parse() else {
                continue;
            };
            let info = BlobInfo {
                address,
                size: entry.size,
                stored_at: entry.last_modified,
            };
            // Of several generations the last one counts.
            match blobs.last_mut() {
                Some(last) if last.address == address => *last = info,
                _ => blobs.push(info),
            }
        }
        let next = page
            .next
            .and_then(|_| blobs.last().map(|last| last.address));
        Ok(BlobPage { blobs, next })
    }

    async fn delete(&self, address: BlobAddress) -> Result<bool, BlobError> {
        for _ in 0..TRIES_MAX {
            let found = self.record(address).await?;
            match found {
                Some(stored) if stored.record.is_stored() => {
                    if self.collect(&stored).await? {
                        return Ok(true);
                    }
                }
                found => {
                    let collected = found.as_ref().map_or(0, |found| found.record.generation);
                    let Some((generation, size)) = self.unrecorded(address, collected).await?
                    else {
                        return Ok(false);
                    };
                    self.write_stored(found.as_ref(), address, size, generation)
                        .await?;
                }
            }
        }
        Err(BlobError::Contended { address })
    }

    async fn gc(&self, engine: &dyn Engine, options: &GcOptions) -> Result<GcReport, BlobError> {
        self.collect_unreferenced(engine, options).await
    }
}
