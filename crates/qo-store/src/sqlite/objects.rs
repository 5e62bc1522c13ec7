//! The `ObjectStore` implementation.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult,
    GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, RenameTargetMode,
    Result, UpdateVersion,
};
use rusqlite::Connection;

use super::error::SqliteError;
use super::upload::Upload;
use super::write::{Current, WriteTransaction};
use super::{KEY_LENGTH_LIMIT, OBJECT_SIZE_LIMIT, SqliteStore, attributes, list, read};

/// The number of keys deleted in one transaction, as in one S3 request.
const DELETE_BATCH_LENGTH: usize = 1000;

/// Tags (`TagSet`) are accepted but not stored: the trait has no way to read them.
#[async_trait]
impl ObjectStore for SqliteStore {
    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.put_checked(path, body.into(), &opts.attributes, opts.mode)
            .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        check_key(location)?;
        Ok(Box::new(Upload::new(
            self.clone(),
            location.clone(),
            opts.attributes,
        )))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let location = location.clone();
        let found = self
            .inner
            .readers
            .read(move |connection| get(connection, &location, &options))
            .await??;
        Ok(GetResult {
            payload: GetResultPayload::Stream(
                stream::iter(found.pieces.into_iter().map(Ok)).boxed(),
            ),
            meta: found.meta,
            range: found.range,
            attributes: found.attributes,
            extensions: Extensions::new(),
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let location = location.clone();
        let ranges = ranges.to_vec();
        self.inner
            .readers
            .read(move |connection| get_ranges(connection, &location, ranges))
            .await?
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        // Ready keys are deleted together: a page of a list becomes one transaction, and a single key does
        // not wait.
        locations
            .ready_chunks(DELETE_BATCH_LENGTH)
            .then(move |batch| delete_batch(store.clone(), batch))
            .flat_map(stream::iter)
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(self.inner.readers.clone(), prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(self.inner.readers.clone(), prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        list::list_directory(&self.inner.readers, prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        check_key(to)?;
        let must_create = options.mode == CopyMode::Create;
        let (from, to) = (from.clone(), to.clone());
        self.inner
            .writes
            .write(0, move |tx| copy(tx, &from, &to, must_create))
            .await?
    }

    /// Moves in one transaction: no reader sees both objects or neither.
    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        check_key(to)?;
        let must_create = options.target_mode == RenameTargetMode::Create;
        let (from, to) = (from.clone(), to.clone());
        self.inner
            .writes
            .write(0, move |tx| rename(tx, &from, &to, must_create))
            .await?
    }
}

impl SqliteStore {
    /// Writes an object that is within the limits.
    pub(super) async fn put_checked(
        &self,
        location: &Path,
        body: Bytes,
        attributes: &Attributes,
        mode: PutMode,
    ) -> Result<PutResult> {
        check_key(location)?;
        if body.len() > OBJECT_SIZE_LIMIT {
            return Err(SqliteError::TooLarge { size: body.len() }.into());
        }
        let attributes = attributes::encode(attributes)?;
        let location = location.clone();
        self.inner.apply_lifecycle_if_due();
        self.inner
            .writes
            .write(body.len(), move |tx| {
                put(tx, &location, &body, attributes.as_deref(), &mode)
            })
            .await?
    }
}

fn check_key(location: &Path) -> Result<(), SqliteError> {
    match location.as_ref().len() {
        1..=KEY_LENGTH_LIMIT => Ok(()),
        length => Err(SqliteError::KeyLength { length }),
    }
}

/// The outer result is SQLite's and concerns the whole group. The inner one is this caller's.
fn put(
    tx: &mut WriteTransaction<'_>,
    location: &Path,
    body: &Bytes,
    attributes: Option<&str>,
    mode: &PutMode,
) -> rusqlite::Result<Result<PutResult>> {
    let key: &str = location.as_ref();
    let refusal = match mode {
        PutMode::Overwrite => None,
        PutMode::Create => tx.current(key)?.map(|_| already_exists(location)),
        PutMode::Update(expected) => refuse_update(location, expected, tx.current(key)?),
    };
    if let Some(refusal) = refusal {
        return Ok(Err(refusal));
    }
    let tag = tx.put(key, body, attributes)?.to_string();
    Ok(Ok(PutResult {
        e_tag: Some(tag.clone()),
        version: Some(tag),
        extensions: Extensions::new(),
    }))
}

/// Why an update is refused. The tag is compared, or the version if there is no tag; here they are equal.
fn refuse_update(
    location: &Path,
    expected: &UpdateVersion,
    current: Option<Current>,
) -> Option<Error> {
    let Some(expected) = expected.e_tag.as_ref().or(expected.version.as_ref()) else {
        return Some(SqliteError::MissingTag.into());
    };
    let source = match current {
        None => "there is no object to update".to_owned(),
        Some(current) => {
            let tag = current.generation.to_string();
            if tag == *expected {
                return None;
            }
            format!("the tag is {tag}, not {expected}")
        }
    };
    Some(Error::Precondition {
        path: location.to_string(),
        source: source.into(),
    })
}

fn copy(
    tx: &mut WriteTransaction<'_>,
    from: &Path,
    to: &Path,
    must_create: bool,
) -> rusqlite::Result<Result<()>> {
    if must_create && tx.current(to.as_ref())?.is_some() {
        // A missing source is reported first, as by other stores.
        return Ok(Err(match tx.current(from.as_ref())? {
            Some(_) => already_exists(to),
            None => not_found(from),
        }));
    }
    if tx.copy(from.as_ref(), to.as_ref())? {
        Ok(Ok(()))
    } else {
        Ok(Err(not_found(from)))
    }
}

fn rename(
    tx: &mut WriteTransaction<'_>,
    from: &Path,
    to: &Path,
    must_create: bool,
) -> rusqlite::Result<Result<()>> {
    if from == to && !must_create {
        // Copying and then deleting would lose the object.
        return Ok(match tx.current(from.as_ref())? {
            Some(_) => Ok(()),
            None => Err(not_found(from)),
        });
    }
    let copied = copy(tx, from, to, must_create)?;
    if copied.is_ok() {
        tx.delete(from.as_ref())?;
    }
    Ok(copied)
}

async fn delete_batch(store: SqliteStore, batch: Vec<Result<Path>>) -> Vec<Result<Path>> {
    let keys: Vec<Path> = batch
        .iter()
        .filter_map(|location| location.as_ref().ok().cloned())
        .collect();
    let deleted = store
        .inner
        .writes
        .write(0, move |tx| {
            for key in &keys {
                tx.delete(key.as_ref())?;
            }
            Ok(())
        })
        .await;
    batch
        .into_iter()
        .map(|location| {
            let location = location?;
            deleted.clone()?;
            Ok(location)
        })
        .collect()
}

/// The result of a read.
struct ReadObject {
    meta: ObjectMeta,
    range: Range<u64>,
    attributes: Attributes,
    pieces: Vec<Bytes>,
}

fn get(
    connection: &Connection,
    location: &Path,
    options: &GetOptions,
) -> rusqlite::Result<Result<ReadObject>> {
    let key: &str = location.as_ref();
    let stored = match &options.version {
        Some(version) => read::find_version(connection, key, version)?,
        None => read::find(connection, key)?,
    };
    let Some(stored) = stored else {
        return Ok(Err(not_found(location)));
    };
    let meta = stored.meta(location.clone());
    if let Err(refusal) = options.check_preconditions(&meta) {
        return Ok(Err(refusal));
    }
    let range = match resolve(options.range.as_ref(), stored.size) {
        Ok(range) => range,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let pieces = if options.head {
        Vec::new()
    } else {
        read::read_range(connection, stored.generation, &range)?
    };
    Ok(Ok(ReadObject {
        meta,
        range,
        attributes: attributes::decode(stored.attributes.as_deref())?,
        pieces,
    }))
}

fn get_ranges(
    connection: &Connection,
    location: &Path,
    ranges: Vec<Range<u64>>,
) -> rusqlite::Result<Result<Vec<Bytes>>> {
    let Some(stored) = read::find(connection, location.as_ref())? else {
        return Ok(Err(not_found(location)));
    };
    let mut parts = Vec::with_capacity(ranges.len());
    for range in ranges {
        match resolve(Some(&GetRange::Bounded(range)), stored.size) {
            Ok(range) => parts.push(read::read_bytes(connection, stored.generation, &range)?),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    Ok(Ok(parts))
}

fn resolve(range: Option<&GetRange>, size: u64) -> Result<Range<u64>> {
    match range {
        None => Ok(0..size),
        Some(range) => range.as_range(size).map_err(|invalid| Error::Generic {
            store: "SQLite",
            source: Box::new(invalid),
        }),
    }
}

fn not_found(location: &Path) -> Error {
    Error::NotFound {
        path: location.to_string(),
        source: "the object does not exist".into(),
    }
}

fn already_exists(location: &Path) -> Error {
    Error::AlreadyExists {
        path: location.to_string(),
        source: "the object already exists".into(),
    }
}
