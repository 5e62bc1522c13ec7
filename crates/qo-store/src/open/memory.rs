//! Stores in the memory of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::memory::InMemory;

use crate::clock::StoreClock;
use crate::store::{CredentialSource, Store, StoreKind, StoreSource};

/// The named stores. They live as long as the process, so that a name always refers to the same store.
static NAMED: Mutex<BTreeMap<String, Arc<InMemory>>> = Mutex::new(BTreeMap::new());

pub(super) fn open(name: Option<&str>) -> Store {
    let objects = match name {
        None => Arc::default(),
        Some(name) => Arc::clone(
            NAMED
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(name.to_owned())
                .or_default(),
        ),
    };
    Store {
        objects,
        admin: None,
        clock: Arc::new(StoreClock::new()),
        description: format!("memory:{}", name.unwrap_or_default()),
        kind: StoreKind::Memory,
        source: StoreSource::Url,
        credentials: CredentialSource::None,
        bucket: String::new(),
        endpoint: String::new(),
    }
}
