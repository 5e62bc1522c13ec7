//! The write operations within one transaction of a group.
//!
//! Generations are counted in memory and stored once per transaction. Everything that is replaced or deleted goes
//! through `WriteTransaction::retire`, the only function that handles versioning:
//!
//! - off: a replaced object is gone.
//! - on: it becomes a version, and a deletion becomes a delete marker.
//! - suspended: as in S3, a key has at most one version that was written while versioning was not on. A write
//!   replaces that version and keeps all others.

use bytes::Bytes;
use qo_core::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::error::damaged;
use crate::admin::Versioning;

/// The number of bytes in one row of `bodies`.
pub(super) const CHUNK_SIZE: usize = 256 * 1024;

/// The maximum number of rows of `bodies` per generation. The row id is the generation times this, plus the chunk
/// number.
pub(super) const CHUNKS_MAX: i64 = 256;

/// The transaction of a group.
pub(super) struct WriteTransaction<'c> {
    connection: &'c Connection,
    now_ms: i64,
    versioning: Versioning,
    last_generation: i64,
    stored_generation: i64,
    has_changes: bool,
}

/// The current object of a key, as far as a write needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) generation: i64,
    /// Whether it was written while versioning was not on.
    unversioned: bool,
}

impl<'c> WriteTransaction<'c> {
    pub(super) fn begin(connection: &'c Connection, now: Timestamp) -> rusqlite::Result<Self> {
        let (last_generation, versioning) = connection
            .prepare_cached("SELECT last_generation, versioning FROM bucket")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Self {
            connection,
            now_ms: now.as_millis(),
            versioning: decode_versioning(versioning)?,
            last_generation,
            stored_generation: last_generation,
            has_changes: false,
        })
    }

    /// Stores the generation counter. Returns whether there is anything to commit.
    pub(super) fn finish(self) -> rusqlite::Result<bool> {
        if self.last_generation != self.stored_generation {
            self.run(
                "UPDATE bucket SET last_generation = ?1",
                params![self.last_generation],
            )?;
        }
        Ok(self.has_changes)
    }

    /// The current object of `key`.
    pub(super) fn current(&self, key: &str) -> rusqlite::Result<Option<Current>> {
        self.connection
            .prepare_cached("SELECT generation, unversioned FROM objects WHERE key = ?1")?
            .query_row([key], |row| {
                Ok(Current {
                    generation: row.get(0)?,
                    unversioned: row.get(1)?,
                })
            })
            .optional()
    }

    /// Writes an object unconditionally and returns its generation.
    pub(super) fn put(
        &mut self,
        key: &str,
        body: &Bytes,
        attributes: Option<&str>,
    ) -> rusqlite::Result<i64> {
        let generation = self.next_generation();
        for (id, chunk) in (first_chunk(generation)..).zip(body.chunks(CHUNK_SIZE)) {
            self.run(
                "INSERT INTO bodies (id, bytes) VALUES (?1, ?2)",
                params![id, chunk],
            )?;
        }
        let size = i64::try_from(body.len()).unwrap_or(i64::MAX);
        self.make_current(key, generation, size, attributes)?;
        Ok(generation)
    }

    /// Copies the object `from`. Returns whether it exists.
    pub(super) fn copy(&mut self, from: &str, to: &str) -> rusqlite::Result<bool> {
        let source: Option<(i64, i64, Option<String>)> = self
            .connection
            .prepare_cached("SELECT generation, size, attributes FROM objects WHERE key = ?1")?
            .query_row([from], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((source_generation, size, attributes)) = source else {
            return Ok(false);
        };
        let generation = self.next_generation();
        let (first, last) = chunk_ids(source_generation);
        self.run(
            "INSERT INTO bodies (id, bytes)
             SELECT id - ?1 + ?2, bytes FROM bodies WHERE id BETWEEN ?1 AND ?3",
            params![first, first_chunk(generation), last],
        )?;
        self.make_current(to, generation, size, attributes.as_deref())?;
        Ok(true)
    }

    /// Deletes an object. Returns whether it existed.
    ///
    /// If versions are kept, a delete marker replaces it. Unlike in S3, deleting a missing object leaves no
    /// marker, which would serve no purpose.
    pub(super) fn delete(&mut self, key: &str) -> rusqlite::Result<bool> {
        let Some(current) = self.current(key)? else {
            return Ok(false);
        };
        self.retire(key, Some(current))?;
        self.run("DELETE FROM objects WHERE key = ?1", params![key])?;
        if self.versioning != Versioning::Off {
            let generation = self.next_generation();
            self.run(
                "INSERT INTO versions (key, generation, last_modified_ms, size, unversioned, is_delete_marker)
                 VALUES (?1, ?2, ?3, 0, ?4, 1)",
                params![key, generation, self.now_ms, self.is_unversioned()],
            )?;
        }
        self.has_changes = true;
        Ok(true)
    }

    /// Deletes an object unless it was rewritten since `generation`. Returns whether it was deleted.
    pub(super) fn delete_generation(
        &mut self,
        key: &str,
        generation: i64,
    ) -> rusqlite::Result<bool> {
        match self.current(key)? {
            Some(current) if current.generation == generation => self.delete(key),
            _ => Ok(false),
        }
    }

    /// Removes one version permanently. Returns whether it existed. If it was the newest, the previous one
    /// becomes current.
    pub(super) fn delete_version(&mut self, key: &str, generation: i64) -> rusqlite::Result<bool> {
        let is_current = self
            .current(key)?
            .is_some_and(|current| current.generation == generation);
        let was_newest = if is_current {
            self.run("DELETE FROM objects WHERE key = ?1", params![key])?;
            true
        } else {
            let removed: Option<Option<i64>> = self
                .connection
                .prepare_cached(
                    "DELETE FROM versions WHERE key = ?1 AND generation = ?2
                     RETURNING noncurrent_since_ms",
                )?
                .query_row(params![key, generation], |row| row.get(0))
                .optional()?;
            let Some(noncurrent_since_ms) = removed else {
                return Ok(false);
            };
            noncurrent_since_ms.is_none()
        };
        self.has_changes = true;
        self.delete_body(generation)?;
        if was_newest {
            self.promote(key)?;
        }
        Ok(true)
    }

    /// Removes one version permanently unless it is the current object. Returns whether it was removed.
    pub(super) fn delete_noncurrent(
        &mut self,
        key: &str,
        generation: i64,
    ) -> rusqlite::Result<bool> {
        match self.current(key)? {
            Some(current) if current.generation == generation => Ok(false),
            _ => self.delete_version(key, generation),
        }
    }

    /// The bucket's versioning.
    pub(super) fn versioning(&self) -> Versioning {
        self.versioning
    }

    /// Sets the versioning for later writes.
    pub(super) fn set_versioning(&mut self, versioning: Versioning) -> rusqlite::Result<()> {
        self.versioning = versioning;
        self.has_changes = true;
        self.run(
            "UPDATE bucket SET versioning = ?1",
            params![encode_versioning(versioning)],
        )
    }

    /// Replaces the CORS rules.
    pub(super) fn set_cors(&mut self, json: &str) -> rusqlite::Result<()> {
        self.has_changes = true;
        self.run("UPDATE bucket SET cors = ?1", params![json])
    }

    /// Replaces the lifecycle rules.
    pub(super) fn set_lifecycle(&mut self, json: &str) -> rusqlite::Result<()> {
        self.has_changes = true;
        self.run("UPDATE bucket SET lifecycle = ?1", params![json])
    }

    fn make_current(
        &mut self,
        key: &str,
        generation: i64,
        size: i64,
        attributes: Option<&str>,
    ) -> rusqlite::Result<()> {
        let current = self.current(key)?;
        self.retire(key, current)?;
        self.run(
            "INSERT INTO objects (key, generation, last_modified_ms, size, attributes, unversioned)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (key) DO UPDATE SET generation = ?2, last_modified_ms = ?3, size = ?4,
                attributes = ?5, unversioned = ?6",
            params![
                key,
                generation,
                self.now_ms,
                size,
                attributes,
                self.is_unversioned()
            ],
        )?;
        self.has_changes = true;
        Ok(())
    }

    /// Keeps or drops the object that a write is about to replace. The caller replaces the row in `objects`.
    fn retire(&self, key: &str, current: Option<Current>) -> rusqlite::Result<()> {
        if self.versioning == Versioning::Off {
            return match current {
                Some(current) => self.delete_body(current.generation),
                None => Ok(()),
            };
        }
        match current {
            Some(current) if self.is_unversioned() && current.unversioned => {
                self.delete_body(current.generation)?;
            }
            Some(_) => {
                self.run(
                    "INSERT INTO versions SELECT key, generation, last_modified_ms, size, attributes,
                        unversioned, 0, ?2 FROM objects WHERE key = ?1",
                    params![key, self.now_ms],
                )?;
            }
            // A delete marker may be the newest version. It becomes noncurrent.
            None => {
                self.run(
                    "UPDATE versions SET noncurrent_since_ms = ?2
                     WHERE key = ?1 AND noncurrent_since_ms IS NULL",
                    params![key, self.now_ms],
                )?;
            }
        }
        if self.is_unversioned() {
            let replaced: Option<i64> = self
                .connection
                .prepare_cached(
                    "DELETE FROM versions WHERE key = ?1 AND unversioned RETURNING generation",
                )?
                .query_row([key], |row| row.get(0))
                .optional()?;
            if let Some(generation) = replaced {
                self.delete_body(generation)?;
            }
        }
        Ok(())
    }

    /// Makes the newest remaining version the current object.
    fn promote(&self, key: &str) -> rusqlite::Result<()> {
        let newest: Option<(i64, bool)> = self
            .connection
            .prepare_cached(
                "SELECT generation, is_delete_marker FROM versions WHERE key = ?1
                 ORDER BY generation DESC LIMIT 1",
            )?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match newest {
            None => Ok(()),
            Some((generation, true)) => self.run(
                "UPDATE versions SET noncurrent_since_ms = NULL WHERE key = ?1 AND generation = ?2",
                params![key, generation],
            ),
            Some((generation, false)) => {
                self.run(
                    "INSERT INTO objects SELECT key, generation, last_modified_ms, size, attributes,
                        unversioned FROM versions WHERE key = ?1 AND generation = ?2",
                    params![key, generation],
                )?;
                self.run(
                    "DELETE FROM versions WHERE key = ?1 AND generation = ?2",
                    params![key, generation],
                )
            }
        }
    }

    fn delete_body(&self, generation: i64) -> rusqlite::Result<()> {
        let (first, last) = chunk_ids(generation);
        self.run(
            "DELETE FROM bodies WHERE id BETWEEN ?1 AND ?2",
            params![first, last],
        )
    }

    /// Whether the current write does not create a version of its own.
    fn is_unversioned(&self) -> bool {
        self.versioning != Versioning::On
    }

    fn next_generation(&mut self) -> i64 {
        self.last_generation += 1;
        self.last_generation
    }

    fn run(&self, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(sql)?
            .execute(parameters)
            .map(|_| ())
    }
}

/// The id of a generation's first chunk.
fn first_chunk(generation: i64) -> i64 {
    generation * CHUNKS_MAX
}

/// The range of a generation's chunk ids.
pub(super) fn chunk_ids(generation: i64) -> (i64, i64) {
    let first = first_chunk(generation);
    (first, first + CHUNKS_MAX - 1)
}

fn encode_versioning(versioning: Versioning) -> i64 {
    match versioning {
        Versioning::Off => 0,
        Versioning::On => 1,
        Versioning::Suspended => 2,
    }
}

/// Decodes the stored versioning.
pub(super) fn decode_versioning(stored: i64) -> rusqlite::Result<Versioning> {
    match stored {
        0 => Ok(Versioning::Off),
        1 => Ok(Versioning::On),
        2 => Ok(Versioning::Suspended),
        other => Err(damaged(format!("versioning is {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::OBJECT_SIZE_LIMIT;
    use super::*;

    #[test]
    fn the_largest_object_fits_into_its_chunks() {
        let chunks = OBJECT_SIZE_LIMIT.div_ceil(CHUNK_SIZE);
        assert!(i64::try_from(chunks).unwrap() <= CHUNKS_MAX);
        assert_eq!(chunk_ids(7).1 + 1, chunk_ids(8).0);
    }

    #[test]
    fn versioning_round_trips() {
        for versioning in [Versioning::Off, Versioning::On, Versioning::Suspended] {
            let stored = encode_versioning(versioning);
            assert_eq!(decode_versioning(stored).unwrap(), versioning);
        }
        assert!(decode_versioning(9).is_err());
    }
}
