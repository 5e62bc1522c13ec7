//! Opening an SQLite file.

use std::path::Path;
use std::sync::Arc;

use super::error::OpenError;
use super::options::OpenOptions;
use crate::clock::StoreClock;
use crate::sqlite::SqliteStore;
use crate::store::{CredentialSource, Store, StoreKind, StoreSource};
use crate::wrap::LoggingStore;

pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Store, OpenError> {
    let sqlite = SqliteStore::open(path, Arc::clone(options.runtime()))?;
    let sqlite = Arc::new(sqlite);
    let logged = LoggingStore::new(Arc::clone(&sqlite) as _, Arc::clone(options.runtime()));
    Ok(Store {
        objects: Arc::new(logged),
        admin: Some(sqlite),
        clock: Arc::new(StoreClock::new()),
        description: format!("sqlite:{}", path.display()),
        kind: StoreKind::Sqlite,
        source: StoreSource::Url,
        credentials: CredentialSource::None,
        bucket: String::new(),
        endpoint: String::new(),
    })
}
