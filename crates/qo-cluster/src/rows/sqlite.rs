//! Rows in a SQLite file.
//!
//! The file has a number: `rows-7.db`. The rows of another node are received into `rows-receiving.db`.
//!
//! | step of an installation | effect of a crash right after it |
//! | --- | --- |
//! | 1. the received rows are written, synced and closed | the file is deleted at the next start |
//! | 2. it gets the next number, and the directory is synced: **installed** | the file with the highest number counts; the others are deleted |
//! | 3. the node uses it, and deletes the previous one | none |

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use qo_broker::rows::{Row, RowWrite};
use qo_core::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, ToSql, params};

use super::{RowChange, RowSnapshot, RowStage, RowStore};
use crate::log::sync_directory;

const RECEIVING: &str = "rows-receiving.db";
/// How much of their files the writers of a node keep in memory together.
pub(crate) const CACHE_BYTES: usize = 32 * 1024 * 1024;
/// The same for one connection that reads. The operating system has the pages in memory, too.
const READER_CACHE_BYTES: usize = 2 * 1024 * 1024;
/// How many connections for reading are kept open.
const READERS_MAX: usize = 8;
/// The most rows and the approximate size of a page of a snapshot.
const PAGE_ROWS: usize = 4_096;
const PAGE_BYTES: usize = 1024 * 1024;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, value BLOB NOT NULL, expires INTEGER) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS rows_by_expiry ON rows (expires, key) WHERE expires IS NOT NULL;
";

/// Rows in a SQLite file.
pub(crate) struct SqliteRows {
    directory: PathBuf,
    /// The cache of the connection that writes.
    cache_bytes: usize,
    current: Arc<RwLock<Arc<Database>>>,
}

/// An open file.
struct Database {
    path: PathBuf,
    number: u64,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
}

impl SqliteRows {
    /// Opens the newest file of the directory, and deletes what crashes have left.
    pub(crate) fn open(directory: &Path, cache_bytes: usize) -> io::Result<Self> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let Ok(name) = entry?.file_name().into_string() else {
                continue;
            };
            if name.starts_with(RECEIVING) {
                std::fs::remove_file(directory.join(name))?;
            } else if let Some(number) = number_of(&name) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        let newest = numbers.pop().unwrap_or(1);
        for number in numbers {
            remove(&path_of(directory, number))?;
        }
        let database = Database::open(path_of(directory, newest), newest, cache_bytes)?;
        Ok(Self {
            directory: directory.to_owned(),
            cache_bytes,
            current: Arc::new(RwLock::new(Arc::new(database))),
        })
    }

    fn current(&self) -> Arc<Database> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }
}

fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("rows-{number}.db"))
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix("rows-")?
        .strip_suffix(".db")?
        .parse()
        .ok()
}

/// Deletes a database with its journals.
fn remove(path: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::remove_file(PathBuf::from(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the kind of an error that a node reacts to.
fn failed(error: &rusqlite::Error) -> io::Error {
    let extended_code = error.sqlite_error().map(|error| error.extended_code);
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => io::ErrorKind::StorageFull,
        // SQLite reports a full disk like this if the index of its write-ahead log has to grow just then.
        _ if extended_code == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => {
            io::ErrorKind::StorageFull
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("the database of rows: {error}"))
}

fn connect(path: &Path, cache_bytes: usize) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.set_prepared_statement_cache_capacity(32);
    // A row larger than a quarter of a page gets pages of its own, and with 4 KiB that would be every task with an input of 1 KiB. A file
    // keeps the size that it was created with.
    connection.pragma_update(None, "page_size", 16_384)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // The log makes changes durable. SQLite syncs only when it moves its write-ahead log into the file, and when told to.
    connection.pragma_update(None, "synchronous", "normal")?;
    // A negative number counts KiB.
    let cache_kib = i64::try_from(cache_bytes / 1024).unwrap_or(i64::MAX);
    connection.pragma_update(None, "cache_size", -cache_kib)?;
    connection.pragma_update(None, "mmap_size", 256 * 1024 * 1024)?;
    // In pages: 8 MiB. A commit that moves more into the file and syncs it takes the disk from the log for longer.
    connection.pragma_update(None, "wal_autocheckpoint", 512)?;
    Ok(connection)
}

impl Database {
    fn open(path: PathBuf, number: u64, cache_bytes: usize) -> io::Result<Self> {
        let open = || -> rusqlite::Result<Connection> {
            let writer = connect(&path, cache_bytes)?;
            writer.execute_batch(SCHEMA)?;
            Ok(writer)
        };
        let writer = open().map_err(|error| failed(&error))?;
        Ok(Self {
            path,
            number,
            writer: Mutex::new(writer),
            readers: Mutex::default(),
        })
    }

    fn reader(&self) -> rusqlite::Result<Connection> {
        match lock(&self.readers).pop() {
            Some(reader) => Ok(reader),
            None => connect(&self.path, READER_CACHE_BYTES),
        }
    }

    fn read<T>(&self, job: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> io::Result<T> {
        let reader = self.reader().map_err(|error| failed(&error))?;
        let result = job(&reader).map_err(|error| failed(&error));
        let mut readers = lock(&self.readers);
        if readers.len() < READERS_MAX {
            readers.push(reader);
        }
        result
    }
}

fn row_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        key: Bytes::from(row.get::<_, Vec<u8>>(0)?),
        value: Bytes::from(row.get::<_, Vec<u8>>(1)?),
        expires_at: row.get::<_, Option<i64>>(2)?.map(Timestamp::from_millis),
    })
}

fn get(connection: &Connection, key: &[u8]) -> rusqlite::Result<Option<Row>> {
    let mut statement =
        connection.prepare_cached("SELECT key, value, expires FROM rows WHERE key = ?1")?;
    statement.query_row([key], row_of).optional()
}

fn put(connection: &Connection, row: &Row) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare_cached("INSERT OR REPLACE INTO rows (key, value, expires) VALUES (?1, ?2, ?3)")?;
    let expires = row.expires_at.map(Timestamp::as_millis);
    statement.execute(params![&row.key[..], &row.value[..], expires])?;
    Ok(())
}

fn change(connection: &Connection, change: &RowChange) -> rusqlite::Result<()> {
    match change {
        RowChange::Write(RowWrite::Put(row)) => put(connection, row)?,
        RowChange::Write(RowWrite::Delete(key)) => {
            let mut statement = connection.prepare_cached("DELETE FROM rows WHERE key = ?1")?;
            statement.execute([&key[..]])?;
        }
        RowChange::Sweep { before, limit } => {
            let mut statement = connection.prepare_cached(
                "DELETE FROM rows WHERE key IN (SELECT key FROM rows WHERE expires <= ?1 ORDER BY expires, key LIMIT ?2)",
            )?;
            statement.execute(params![before.as_millis(), limit])?;
        }
    }
    Ok(())
}

/// Rows in the order of their keys, up to a number and a size.
fn page(
    connection: &Connection,
    start: Bound<&[u8]>,
    end: Bound<&[u8]>,
    limit: usize,
    bytes_max: usize,
) -> rusqlite::Result<Vec<Row>> {
    let mut sql = "SELECT key, value, expires FROM rows WHERE 1".to_owned();
    let mut parameters: Vec<&dyn ToSql> = Vec::new();
    let (start, start_sql) = match &start {
        Bound::Included(start) => (Some(start), " AND key >= ?"),
        Bound::Excluded(start) => (Some(start), " AND key > ?"),
        Bound::Unbounded => (None, ""),
    };
    let (end, end_sql) = match &end {
        Bound::Included(end) => (Some(end), " AND key <= ?"),
        Bound::Excluded(end) => (Some(end), " AND key < ?"),
        Bound::Unbounded => (None, ""),
    };
    sql.push_str(start_sql);
    sql.push_str(end_sql);
    sql.push_str(" ORDER BY key");
    if let Some(start) = start {
        parameters.push(start);
    }
    if let Some(end) = end {
        parameters.push(end);
    }
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query(parameters.as_slice())?;
    let mut rows = Vec::new();
    let mut bytes = 0;
    while rows.len() < limit
        && bytes < bytes_max
        && let Some(row) = found.next()?
    {
        let row = row_of(row)?;
        bytes += row.key.len() + row.value.len();
        rows.push(row);
    }
    Ok(rows)
}

impl RowStore for SqliteRows {
    fn get(&self, key: &[u8]) -> io::Result<Option<Row>> {
        self.current().read(|connection| get(connection, key))
    }

    fn page(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Row>> {
        self.current()
            .read(|connection| page(connection, start, end, limit, usize::MAX))
    }

    fn has_expired(&self, before: Timestamp) -> io::Result<bool> {
        self.current().read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT 1 FROM rows WHERE expires <= ?1 LIMIT 1")?;
            statement.exists([before.as_millis()])
        })
    }

    fn write(&self, changes: &[RowChange]) -> io::Result<()> {
        let current = self.current();
        let mut writer = lock(&current.writer);
        let write = |writer: &mut Connection| -> rusqlite::Result<()> {
            let transaction = writer.transaction()?;
            for one in changes {
                change(&transaction, one)?;
            }
            transaction.commit()
        };
        write(&mut writer).map_err(|error| failed(&error))
    }

    fn sync(&self) -> io::Result<()> {
        let current = self.current();
        let writer = lock(&current.writer);
        let sync = || -> rusqlite::Result<()> {
            // With this setting a commit syncs the write-ahead log, and with it all earlier commits.
            writer.pragma_update(None, "synchronous", "full")?;
            writer.execute(
                "INSERT OR REPLACE INTO rows (key, value) VALUES (x'0073796e63', x'')",
                [],
            )?;
            writer.pragma_update(None, "synchronous", "normal")
        };
        sync().map_err(|error| failed(&error))
    }

    fn snapshot(&self) -> io::Result<Box<dyn RowSnapshot>> {
        let database = self.current();
        let open = || -> rusqlite::Result<Connection> {
            let reader = connect(&database.path, READER_CACHE_BYTES)?;
            // The first read fixes what the transaction sees.
            reader.execute_batch("BEGIN; SELECT 1 FROM rows LIMIT 1;")?;
            Ok(reader)
        };
        let reader = open().map_err(|error| failed(&error))?;
        Ok(Box::new(SqliteSnapshot {
            reader,
            last: None,
            _database: Arc::clone(&database),
        }))
    }

    fn stage(&self) -> io::Result<Box<dyn RowStage>> {
        let path = self.directory.join(RECEIVING);
        remove(&path)?;
        let database = Database::open(path, 0, self.cache_bytes)?;
        Ok(Box::new(SqliteStage {
            database: Some(database),
            directory: self.directory.clone(),
            cache_bytes: self.cache_bytes,
            current: Arc::clone(&self.current),
        }))
    }
}

struct SqliteSnapshot {
    reader: Connection,
    last: Option<Bytes>,
    /// An installation deletes the file only after this.
    _database: Arc<Database>,
}

impl RowSnapshot for SqliteSnapshot {
    fn get(&self, key: &[u8]) -> io::Result<Option<Row>> {
        get(&self.reader, key).map_err(|error| failed(&error))
    }

    fn next_page(&mut self) -> io::Result<Vec<Row>> {
        let start = match &self.last {
            Some(last) => Bound::Excluded(&last[..]),
            None => Bound::Unbounded,
        };
        let rows = page(&self.reader, start, Bound::Unbounded, PAGE_ROWS, PAGE_BYTES)
            .map_err(|error| failed(&error))?;
        if let Some(row) = rows.last() {
            self.last = Some(row.key.clone());
        }
        Ok(rows)
    }
}

struct SqliteStage {
    database: Option<Database>,
    directory: PathBuf,
    cache_bytes: usize,
    current: Arc<RwLock<Arc<Database>>>,
}

impl RowStage for SqliteStage {
    fn add(&mut self, rows: Vec<Row>) -> io::Result<()> {
        let Some(database) = &self.database else {
            return Ok(());
        };
        let mut writer = lock(&database.writer);
        let add = |writer: &mut Connection| -> rusqlite::Result<()> {
            let transaction = writer.transaction()?;
            for row in &rows {
                put(&transaction, row)?;
            }
            transaction.commit()
        };
        add(&mut writer).map_err(|error| failed(&error))
    }

    fn prepare(&mut self) -> io::Result<()> {
        if let Some(database) = &self.database {
            let writer = lock(&database.writer);
            // Moves everything into the file, so that only the file remains.
            let checkpoint = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            checkpoint.map_err(|error| failed(&error))?;
        }
        // Closes it.
        self.database = None;
        match std::fs::File::open(self.directory.join(RECEIVING)) {
            Ok(file) => file.sync_all(),
            // It has its number already.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn install(&mut self) -> io::Result<()> {
        self.prepare()?;
        let received = self.directory.join(RECEIVING);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let number = current.number + 1;
        let path = path_of(&self.directory, number);
        match std::fs::rename(&received, &path) {
            // An earlier attempt got so far, and found the disk full then.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.exists() => {}
            renamed => renamed?,
        }
        sync_directory(&self.directory)?;
        let database = Database::open(path, number, self.cache_bytes)?;
        let previous = std::mem::replace(&mut *current, Arc::new(database));
        drop(current);
        let path = previous.path.clone();
        drop(previous);
        // Readers that still have it open keep it alive.
        remove(&path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_room_for_several_rows() {
        let directory = tempfile::tempdir().unwrap();
        let rows = SqliteRows::open(directory.path(), CACHE_BYTES).unwrap();
        let size = |database: &Database| {
            let query = |connection: &Connection| {
                connection.query_row("PRAGMA page_size", [], |row| row.get::<_, i64>(0))
            };
            database.read(query).unwrap()
        };
        assert_eq!(size(&rows.current()), 16_384);
        // Received rows are in a new file.
        rows.stage().unwrap().install().unwrap();
        assert_eq!(size(&rows.current()), 16_384);
    }

    #[test]
    fn only_the_connection_that_writes_has_a_large_cache() {
        let directory = tempfile::tempdir().unwrap();
        let rows = SqliteRows::open(directory.path(), 5 * 1024 * 1024).unwrap();
        let cache_kib = |connection: &Connection| {
            let size = connection.query_row("PRAGMA cache_size", [], |row| row.get::<_, i64>(0));
            -size.unwrap()
        };
        for _ in 0..2 {
            let database = rows.current();
            assert_eq!(cache_kib(&lock(&database.writer)), 5 * 1024);
            assert_eq!(cache_kib(&database.reader().unwrap()), 2 * 1024);
            // The same for a received file.
            rows.stage().unwrap().install().unwrap();
        }
    }

    /// An installation that found the disk full is made again, whatever step it had reached.
    #[test]
    fn an_installation_can_be_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let rows = SqliteRows::open(directory.path(), CACHE_BYTES).unwrap();
        for (number, steps) in (2..).zip(0..3) {
            let key = Bytes::from(format!("k{steps}"));
            let RowWrite::Put(row) = RowWrite::put(key, Bytes::from_static(b"new")) else {
                panic!("it is a row");
            };
            let mut stage = rows.stage().unwrap();
            stage.add(vec![row.clone()]).unwrap();
            if steps > 0 {
                stage.prepare().unwrap();
            }
            if steps > 1 {
                let received = directory.path().join(RECEIVING);
                std::fs::rename(received, path_of(directory.path(), number)).unwrap();
            }
            stage.install().unwrap();
            assert_eq!(
                rows.page(Bound::Unbounded, Bound::Unbounded, 9).unwrap(),
                [row]
            );
            assert_eq!(rows.current().number, number);
        }
    }

    #[test]
    fn both_errors_of_a_full_disk_are_recognised() {
        for (code, kind) in [
            (rusqlite::ffi::SQLITE_FULL, io::ErrorKind::StorageFull),
            (
                rusqlite::ffi::SQLITE_IOERR_SHMSIZE,
                io::ErrorKind::StorageFull,
            ),
            (rusqlite::ffi::SQLITE_IOERR_WRITE, io::ErrorKind::Other),
            (rusqlite::ffi::SQLITE_CORRUPT, io::ErrorKind::InvalidData),
        ] {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            assert_eq!(failed(&error).kind(), kind, "{code}");
        }
    }
}
