//! Versions and bucket settings.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use qo_core::Timestamp;
use rusqlite::{Connection, params};

use super::error::SqliteError;
use super::write::{WriteTransaction, decode_versioning};
use super::{SqliteStore, read, rules};
use crate::admin::{
    BucketAdmin, CorsRule, KeyedVersion, KeyedVersionList, LifecycleRule, ObjectVersion,
    VersionList, Versioning,
};
use crate::error::StoreError;

/// The maximum number of versions in one list, as in S3.
const VERSIONS_MAX: usize = 1000;

/// The maximum number of rules, as in S3.
const CORS_RULES_MAX: usize = 100;
const LIFECYCLE_RULES_MAX: usize = 1000;

/// The key in errors about the database itself.
const WHOLE_BUCKET: &str = "the database";

/// CORS rules are stored and returned but have no effect, because browsers do not access a file. Processes that keep the
/// file open apply the lifecycle rules once an hour.
#[async_trait]
impl BucketAdmin for SqliteStore {
    async fn list_versions(&self, key: &str, limit: usize) -> Result<VersionList, StoreError> {
        let limit = limit.min(VERSIONS_MAX);
        let owned = key.to_owned();
        self.admin_read(key, move |connection| {
            list_versions(connection, &owned, limit)
        })
        .await
    }

    async fn list_versions_below(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<KeyedVersionList, StoreError> {
        let limit = limit.min(VERSIONS_MAX);
        let owned = prefix.to_owned();
        self.admin_read(prefix, move |connection| {
            list_versions_below(connection, &owned, limit)
        })
        .await
    }

    async fn get_version(&self, key: &str, version: &str) -> Result<Bytes, StoreError> {
        let (owned, version) = (key.to_owned(), version.to_owned());
        self.admin_read(key, move |connection| {
            match read::find_version(connection, &owned, &version)? {
                None => Ok(None),
                Some(stored) => {
                    read::read_bytes(connection, stored.generation, &(0..stored.size)).map(Some)
                }
            }
        })
        .await?
        .ok_or_else(|| StoreError::NotFound {
            key: key.to_owned(),
        })
    }

    async fn delete_version(&self, key: &str, version: &str) -> Result<(), StoreError> {
        let Some(generation) = read::parse_version(version) else {
            return Ok(());
        };
        let owned = key.to_owned();
        self.admin_write(key, move |tx| tx.delete_version(&owned, generation))
            .await
            .map(|_| ())
    }

    async fn versioning(&self) -> Result<Versioning, StoreError> {
        self.admin_read(WHOLE_BUCKET, |connection| {
            let stored = connection
                .prepare_cached("SELECT versioning FROM bucket")?
                .query_row([], |row| row.get(0))?;
            decode_versioning(stored)
        })
        .await
    }

    async fn set_versioning(&self, versioning: Versioning) -> Result<(), StoreError> {
        self.admin_write(WHOLE_BUCKET, move |tx| {
            let resulting = match (tx.versioning(), versioning) {
                (Versioning::On | Versioning::Suspended, Versioning::Off) => Versioning::Suspended,
                (_, wanted) => wanted,
            };
            tx.set_versioning(resulting)
        })
        .await
    }

    async fn cors(&self) -> Result<Vec<CorsRule>, StoreError> {
        self.admin_read(WHOLE_BUCKET, |connection| {
            let json: String = connection
                .prepare_cached("SELECT cors FROM bucket")?
                .query_row([], |row| row.get(0))?;
            rules::decode_cors(&json)
        })
        .await
    }

    async fn set_cors(&self, rules: &[CorsRule]) -> Result<(), StoreError> {
        check_count("this number of CORS rules", rules.len(), CORS_RULES_MAX)?;
        let json = rules::encode_cors(rules).map_err(|error| unencodable("CORS rules", &error))?;
        self.admin_write(WHOLE_BUCKET, move |tx| tx.set_cors(&json))
            .await
    }

    async fn lifecycle(&self) -> Result<Vec<LifecycleRule>, StoreError> {
        self.admin_read(WHOLE_BUCKET, |connection| {
            let json: String = connection
                .prepare_cached("SELECT lifecycle FROM bucket")?
                .query_row([], |row| row.get(0))?;
            rules::decode_lifecycle(&json)
        })
        .await
    }

    async fn set_lifecycle(&self, rules: &[LifecycleRule]) -> Result<(), StoreError> {
        check_count(
            "this number of lifecycle rules",
            rules.len(),
            LIFECYCLE_RULES_MAX,
        )?;
        let json = rules::encode_lifecycle(rules)
            .map_err(|error| unencodable("lifecycle rules", &error))?;
        self.admin_write(WHOLE_BUCKET, move |tx| tx.set_lifecycle(&json))
            .await
    }
}

impl SqliteStore {
    /// A read with errors converted to [`StoreError`].
    pub(super) async fn admin_read<T, F>(&self, key: &str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let started = self.inner.runtime.monotonic();
        self.inner
            .readers
            .read(work)
            .await
            .map_err(|error| self.admin_error(key, error, started, false))
    }

    /// A write with errors converted to [`StoreError`].
    pub(super) async fn admin_write<T, F>(&self, key: &str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTransaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let started = self.inner.runtime.monotonic();
        self.inner
            .writes
            .write(0, work)
            .await
            .map_err(|error| self.admin_error(key, error, started, true))
    }

    fn admin_error(
        &self,
        key: &str,
        error: SqliteError,
        started: Duration,
        is_write: bool,
    ) -> StoreError {
        let elapsed = self.inner.runtime.monotonic().saturating_sub(started);
        error.into_store_error(key, elapsed, is_write)
    }
}

fn check_count(operation: &'static str, count: usize, limit: usize) -> Result<(), StoreError> {
    if count <= limit {
        return Ok(());
    }
    Err(StoreError::Unsupported {
        operation,
        detail: format!("{count} rules, the limit is {limit}"),
    })
}

fn unencodable(operation: &'static str, error: &serde_json::Error) -> StoreError {
    StoreError::Unsupported {
        operation,
        detail: error.to_string(),
    }
}

fn list_versions(
    connection: &Connection,
    key: &str,
    limit: usize,
) -> rusqlite::Result<VersionList> {
    let mut statement = connection.prepare_cached(
        "SELECT generation, last_modified_ms, size, 0, 1 FROM objects WHERE key = ?1
         UNION ALL
         SELECT generation, last_modified_ms, size, is_delete_marker, noncurrent_since_ms IS NULL
         FROM versions WHERE key = ?1
         ORDER BY 1 DESC LIMIT ?2",
    )?;
    let mut versions = statement
        .query_map(params![key, one_more_than(limit)], to_version)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let truncated = versions.len() > limit;
    versions.truncate(limit);
    Ok(VersionList {
        versions,
        truncated,
    })
}

fn list_versions_below(
    connection: &Connection,
    prefix: &str,
    limit: usize,
) -> rusqlite::Result<KeyedVersionList> {
    let mut statement = connection.prepare_cached(
        "SELECT generation, last_modified_ms, size, 0, 1, key FROM objects WHERE key BETWEEN ?1 AND ?2
         UNION ALL
         SELECT generation, last_modified_ms, size, is_delete_marker, noncurrent_since_ms IS NULL, key
         FROM versions WHERE key BETWEEN ?1 AND ?2
         ORDER BY 6, 1 DESC LIMIT ?3",
    )?;
    // The last character sorts after all others.
    let end = format!("{prefix}{}", char::MAX);
    let mut versions = statement
        .query_map(params![prefix, end, one_more_than(limit)], |row| {
            Ok(KeyedVersion {
                key: row.get(5)?,
                version: to_version(row)?,
            })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let truncated = versions.len() > limit;
    versions.truncate(limit);
    Ok(KeyedVersionList {
        versions,
        truncated,
    })
}

/// One more row than requested shows whether there are more.
fn one_more_than(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// Reads the columns generation, time, size, whether it is a delete marker, and whether it is the latest version.
fn to_version(row: &rusqlite::Row<'_>) -> rusqlite::Result<ObjectVersion> {
    let generation = row.get::<_, i64>(0)?.to_string();
    let is_delete_marker: bool = row.get(3)?;
    Ok(ObjectVersion {
        e_tag: (!is_delete_marker).then(|| generation.clone()),
        version: generation,
        last_modified: Timestamp::from_millis(row.get(1)?),
        is_latest: row.get(4)?,
        is_delete_marker,
        size: row.get::<_, i64>(2)?.unsigned_abs(),
    })
}
