//! Reading one object within one snapshot.

use std::ops::Range;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use object_store::ObjectMeta;
use object_store::path::Path;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::damaged;
use super::write::{CHUNK_SIZE, chunk_ids};

/// A stored object without its bytes.
pub(super) struct ObjectRow {
    pub(super) generation: i64,
    pub(super) last_modified_ms: i64,
    pub(super) size: u64,
    pub(super) attributes: Option<String>,
}

impl ObjectRow {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            generation: row.get(0)?,
            last_modified_ms: row.get(1)?,
            size: row.get::<_, i64>(2)?.unsigned_abs(),
            attributes: row.get(3)?,
        })
    }

    pub(super) fn meta(&self, location: Path) -> ObjectMeta {
        meta(location, self.generation, self.last_modified_ms, self.size)
    }
}

/// The metadata of an object. Its generation is both its tag and its version.
pub(super) fn meta(
    location: Path,
    generation: i64,
    last_modified_ms: i64,
    size: u64,
) -> ObjectMeta {
    let tag = generation.to_string();
    ObjectMeta {
        location,
        // Stored times come from a `Timestamp`, and all of those have a date.
        last_modified: DateTime::<Utc>::from_timestamp_millis(last_modified_ms).unwrap_or_default(),
        size,
        e_tag: Some(tag.clone()),
        version: Some(tag),
    }
}

/// The current object of `key`.
pub(super) fn find(connection: &Connection, key: &str) -> rusqlite::Result<Option<ObjectRow>> {
    connection
        .prepare_cached(
            "SELECT generation, last_modified_ms, size, attributes FROM objects WHERE key = ?1",
        )?
        .query_row([key], ObjectRow::from_row)
        .optional()
}

/// One version of `key`, unless it is a delete marker. An invalid version text finds nothing.
pub(super) fn find_version(
    connection: &Connection,
    key: &str,
    version: &str,
) -> rusqlite::Result<Option<ObjectRow>> {
    let Some(generation) = parse_version(version) else {
        return Ok(None);
    };
    connection
        .prepare_cached(
            "SELECT generation, last_modified_ms, size, attributes FROM objects
             WHERE key = ?1 AND generation = ?2
             UNION ALL
             SELECT generation, last_modified_ms, size, attributes FROM versions
             WHERE key = ?1 AND generation = ?2 AND NOT is_delete_marker",
        )?
        .query_row(params![key, generation], ObjectRow::from_row)
        .optional()
}

/// Parses a version into its generation. Each version has exactly one spelling: `007` is invalid.
pub(super) fn parse_version(version: &str) -> Option<i64> {
    version
        .parse::<i64>()
        .ok()
        .filter(|generation| *generation > 0 && generation.to_string() == version)
}

/// Reads a range of an object's bytes in pieces. Only the chunks in the range are read.
pub(super) fn read_range(
    connection: &Connection,
    generation: i64,
    range: &Range<u64>,
) -> rusqlite::Result<Vec<Bytes>> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let chunk_size = CHUNK_SIZE as u64;
    let first_id = chunk_ids(generation).0;
    let id_of = |offset: u64| {
        i64::try_from(offset / chunk_size)
            .map(|chunk| first_id + chunk)
            .map_err(|_| damaged(format!("the size exceeds {offset} bytes")))
    };
    let mut statement = connection
        .prepare_cached("SELECT id, bytes FROM bodies WHERE id BETWEEN ?1 AND ?2 ORDER BY id")?;
    let mut rows = statement.query(params![id_of(range.start)?, id_of(range.end - 1)?])?;
    let mut pieces = Vec::new();
    let mut position = range.start;
    while let Some(row) = rows.next()? {
        let chunk = Bytes::from(row.get::<_, Vec<u8>>(1)?);
        let chunk_start = (row.get::<_, i64>(0)? - first_id).unsigned_abs() * chunk_size;
        let piece = clip(&chunk, chunk_start, position, range.end);
        position += piece.len() as u64;
        pieces.push(piece);
    }
    if position != range.end {
        return Err(damaged(format!(
            "generation {generation} is missing the bytes from {position} to {}",
            range.end
        )));
    }
    Ok(pieces)
}

/// The part of a chunk between two offsets of the object.
fn clip(chunk: &Bytes, chunk_start: u64, start: u64, end: u64) -> Bytes {
    let within = |offset: u64| {
        usize::try_from(offset.saturating_sub(chunk_start))
            .map_or(chunk.len(), |offset| offset.min(chunk.len()))
    };
    chunk.slice(within(start)..within(end))
}

/// Reads a range in one piece.
pub(super) fn read_bytes(
    connection: &Connection,
    generation: i64,
    range: &Range<u64>,
) -> rusqlite::Result<Bytes> {
    let mut pieces = read_range(connection, generation, range)?;
    Ok(match pieces.len() {
        0 => Bytes::new(),
        1 => pieces.swap_remove(0),
        _ => pieces.concat().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema::open_database;
    use crate::sqlite::write::WriteTransaction;
    use qo_core::Timestamp;

    #[test]
    fn a_version_has_one_spelling() {
        assert_eq!(parse_version("7"), Some(7));
        for other in [
            "",
            "0",
            "-7",
            "007",
            "+7",
            " 7",
            "null",
            "99999999999999999999",
        ] {
            assert_eq!(parse_version(other), None, "{other}");
        }
    }

    #[test]
    fn ranges_across_chunks_are_exact_and_a_missing_chunk_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open_database(&directory.path().join("qo.db")).unwrap();
        let body: Bytes = (0..CHUNK_SIZE * 2 + 1000)
            .map(|index| u8::try_from(index % 251).unwrap())
            .collect();
        let mut transaction = WriteTransaction::begin(&connection, Timestamp::MIN).unwrap();
        let generation = transaction.put("k", &body, None).unwrap();
        transaction.put("next", &body, None).unwrap();
        transaction.finish().unwrap();
        let chunk = CHUNK_SIZE as u64;
        let end = body.len() as u64;
        for range in [
            0..1,
            0..end,
            chunk - 1..chunk,
            chunk..chunk + 1,
            chunk - 1..chunk + 1,
            5..chunk * 2 + 5,
            end - 1..end,
            3..3,
        ] {
            let expected = body
                .slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap());
            assert_eq!(
                read_bytes(&connection, generation, &range).unwrap(),
                expected,
                "{range:?}"
            );
        }
        connection
            .execute(
                "DELETE FROM bodies WHERE id = ?1",
                [chunk_ids(generation).0 + 1],
            )
            .unwrap();
        assert!(read_bytes(&connection, generation, &(0..10)).is_ok());
        assert!(read_bytes(&connection, generation, &(0..end)).is_err());
    }
}
