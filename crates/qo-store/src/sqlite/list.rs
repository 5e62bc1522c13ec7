//! Listing as range scans over the keys.
//!
//! Keys are compared byte by byte, like paths in `object_store`. A prefix consists of whole segments: the keys under
//! `a/b` are those from `a/b/` up to, but not including, `a/b0`, because `0` is the character after `/`. A scan is
//! read in pages, each from its own snapshot. No connection is held between two pages, however slowly the stream is
//! read.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta, Result};
use rusqlite::types::Value;
use rusqlite::{Connection, params};

use super::connection::ReaderPool;
use super::error::{SqliteError, damaged};
use super::read::meta;

/// The number of keys read and held in memory at once.
const PAGE_LENGTH: usize = 1000;

/// The keys under a prefix, excluding the key equal to it.
struct Span {
    /// The common start of all keys: the prefix and a slash, or nothing.
    base: String,
    /// The first key after the span.
    end: Value,
}

impl Span {
    fn of(prefix: Option<&Path>) -> Self {
        match prefix.map(AsRef::<str>::as_ref) {
            None | Some("") => Self {
                base: String::new(),
                // In SQLite every text is less than every blob.
                end: Value::Blob(Vec::new()),
            },
            Some(prefix) => Self {
                base: format!("{prefix}/"),
                end: Value::Text(after_directory(prefix)),
            },
        }
    }
}

/// The first text that is greater than every key in a directory.
fn after_directory(directory: &str) -> String {
    format!("{directory}0")
}

/// All objects under a prefix with keys greater than `offset`.
pub(super) fn list(
    readers: Arc<ReaderPool>,
    prefix: Option<&Path>,
    offset: Option<&Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let span = Span::of(prefix);
    // No key equals the base, because no path ends with a slash.
    let after = match offset {
        Some(offset) if offset.as_ref() > span.base.as_str() => offset.as_ref().to_owned(),
        _ => span.base,
    };
    let end = Arc::new(span.end);
    stream::try_unfold(Some(after), move |after| {
        let (readers, end) = (Arc::clone(&readers), Arc::clone(&end));
        async move {
            let Some(after) = after else {
                return Ok::<_, object_store::Error>(None);
            };
            let page = readers
                .read(move |connection| page(connection, &after, &end))
                .await?;
            let next = if page.len() < PAGE_LENGTH {
                None
            } else {
                page.last().map(|last| last.location.to_string())
            };
            Ok(Some((stream::iter(page.into_iter().map(Ok)), next)))
        }
    })
    .try_flatten()
    .boxed()
}

fn page(connection: &Connection, after: &str, end: &Value) -> rusqlite::Result<Vec<ObjectMeta>> {
    let page_length = i64::try_from(PAGE_LENGTH).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "SELECT key, generation, last_modified_ms, size FROM objects
             WHERE key > ?1 AND key < ?2 ORDER BY key LIMIT ?3",
        )?
        .query_map(params![after, end, page_length], listed)?
        .collect()
}

fn listed(row: &rusqlite::Row<'_>) -> rusqlite::Result<ObjectMeta> {
    let key: String = row.get(0)?;
    let location = Path::parse(&key).map_err(|error| damaged(error.to_string()))?;
    let size = row.get::<_, i64>(3)?.unsigned_abs();
    Ok(meta(location, row.get(1)?, row.get(2)?, size))
}

/// The objects directly under a prefix, and its subdirectories.
pub(super) async fn list_directory(
    readers: &Arc<ReaderPool>,
    prefix: Option<&Path>,
) -> Result<ListResult> {
    let span = Span::of(prefix);
    readers
        .read(move |connection| directory(connection, &span))
        .await
        .map_err(|error: SqliteError| error.into())
}

/// Skips over each subdirectory instead of reading its contents.
fn directory(connection: &Connection, span: &Span) -> rusqlite::Result<ListResult> {
    let mut statement = connection.prepare_cached(
        "SELECT key, generation, last_modified_ms, size FROM objects
         WHERE key >= ?1 AND key < ?2 ORDER BY key",
    )?;
    let mut found = ListResult {
        common_prefixes: Vec::new(),
        objects: Vec::new(),
        extensions: object_store::Extensions::new(),
    };
    let mut from = span.base.clone();
    'leap: loop {
        let mut rows = statement.query(params![from, span.end])?;
        while let Some(row) = rows.next()? {
            let object = listed(row)?;
            let key: &str = object.location.as_ref();
            let within = key.get(span.base.len()..).unwrap_or_default();
            match within.split_once('/') {
                None => found.objects.push(object),
                Some((name, _)) => {
                    let directory = format!("{}{name}", span.base);
                    from = after_directory(&directory);
                    let path =
                        Path::parse(directory).map_err(|error| damaged(error.to_string()))?;
                    found.common_prefixes.push(path);
                    continue 'leap;
                }
            }
        }
        return Ok(found);
    }
}
