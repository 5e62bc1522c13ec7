//! Opening: what persists, and what is rejected with a helpful message.

use std::fs;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use qo_store::SqliteStore;
use qo_store::runtime::TokioRuntime;
use qo_store::sqlite::SqliteOpenError;

use super::{Fixture, get, put};

fn open_error(path: &std::path::Path) -> SqliteOpenError {
    let error = SqliteStore::open(path, TokioRuntime::shared()).unwrap_err();
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    assert!(line.contains(&path.display().to_string()), "{line}");
    error
}

#[tokio::test]
async fn data_persists_after_reopening() {
    let Fixture { store, directory } = Fixture::new();
    let path = store.path().to_owned();
    let first = put(&store, "k", "1").await;
    assert_eq!(store.to_string(), format!("SQLite({})", path.display()));
    drop(store);
    let store = SqliteStore::open(&path, TokioRuntime::shared()).unwrap();
    assert_eq!(get(&store, "k").await, "1");
    let meta = store.head(&Path::from("k")).await.unwrap();
    assert_eq!(meta.e_tag, first.e_tag);
    // The generation counter continues where it was.
    let second = store
        .put_opts(&Path::from("k"), "1".into(), super::update(&first).into())
        .await
        .unwrap();
    assert_ne!(second.e_tag, first.e_tag);
    drop(directory);
}

#[test]
fn a_path_below_a_file_reports_the_systems_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    match open_error(&file.join("sub/qo.db")) {
        SqliteOpenError::Unwritable { reason, .. } => {
            assert!(reason.contains("Not a directory"), "{reason}");
        }
        other => panic!("{other}"),
    }
    assert!(matches!(
        open_error(directory.path()),
        SqliteOpenError::Unwritable { .. }
    ));
    // No process can create files in this kernel directory.
    #[cfg(target_os = "linux")]
    assert!(matches!(
        open_error(std::path::Path::new("/proc/qo.db")),
        SqliteOpenError::Unwritable { .. }
    ));
}

#[test]
fn a_file_that_is_not_a_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    for content in ["buy milk\n".to_owned(), "buy milk\n".repeat(10_000)] {
        fs::write(&path, &content).unwrap();
        assert!(matches!(
            open_error(&path),
            SqliteOpenError::NotADatabase { .. }
        ));
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn foreign_and_newer_databases_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let foreign = directory.path().join("foreign.db");
    let connection = rusqlite::Connection::open(&foreign).unwrap();
    connection.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(connection);
    assert!(matches!(
        open_error(&foreign),
        SqliteOpenError::ForeignDatabase { .. }
    ));

    let newer = directory.path().join("newer.db");
    drop(SqliteStore::open(&newer, TokioRuntime::shared()).unwrap());
    let connection = rusqlite::Connection::open(&newer).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    match open_error(&newer) {
        SqliteOpenError::NewerSchema {
            found, supported, ..
        } => assert!(found == 99 && supported < 99),
        other => panic!("{other}"),
    }
}

#[test]
fn an_empty_path_is_rejected() {
    let refused = SqliteStore::open(std::path::Path::new(""), TokioRuntime::shared());
    assert!(matches!(refused, Err(SqliteOpenError::Unwritable { .. })));
}

#[test]
fn an_empty_file_becomes_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("empty");
    fs::write(&path, "").unwrap();
    SqliteStore::open(&path, TokioRuntime::shared()).unwrap();
}
