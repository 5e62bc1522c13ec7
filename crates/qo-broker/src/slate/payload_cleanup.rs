//! Deletes the payloads of tasks that the database has dropped.
//!
//! SlateDB drops a record some time after its expiry, without a notification. Reads still return it until then, so the expiry decides
//! whether a record counts as dropped, here as in all other reads ([`super::archive`]). A task with payloads in their own objects
//! therefore has an entry under its expiry, and this job periodically reads the entries whose time has passed. An entry is deleted
//! after its payloads, so a crash between the two repeats a deletion and misses none.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use qo_engine::EngineError;
use qo_store::StoreClient;
use qo_store::runtime::Runtime;
use slatedb::{Db, WriteBatch};
use tokio::sync::watch;

use super::archive::is_expired;
use super::error::from_slate;
use super::keys::{self, ENDED, LIVE, PAYLOADS};
use crate::payloads::remove_payloads;

/// How often the cleanup runs.
const INTERVAL: Duration = Duration::from_mins(10);
/// The most entries that one run processes.
const ENTRIES_MAX: usize = 1_000;

/// Runs the cleanup until it is dropped.
pub(super) struct PayloadCleanup {
    _alive: watch::Sender<()>,
}

impl PayloadCleanup {
    pub(super) fn start(db: Db, client: StoreClient, runtime: &Arc<dyn Runtime>) -> Self {
        let (alive, mut ended) = watch::channel(());
        let timer = Arc::clone(runtime);
        runtime.spawn(Box::pin(async move {
            loop {
                let sleep = timer.sleep(INTERVAL);
                tokio::select! {
                    biased;
                    _ = ended.changed() => return,
                    () = sleep => {
                        if let Err(error) = clean_up(&db, &client).await {
                            tracing::warn!(%error, "could not delete the payloads of dropped tasks; retrying later");
                        }
                    }
                }
            }
        }));
        Self { _alive: alive }
    }
}

/// Deletes the payloads of dropped tasks.
async fn clean_up(db: &Db, client: &StoreClient) -> Result<(), EngineError> {
    let mut now = BytesMut::with_capacity(8);
    now.put_i64(client.now().as_millis());
    let range = (Bound::<Bytes>::Unbounded, Bound::Excluded(now.freeze()));
    let mut rows = db
        .scan_prefix([PAYLOADS], range)
        .await
        .map_err(|error| from_slate(&error))?;
    for _ in 0..ENTRIES_MAX {
        let Some(row) = rows.next().await.map_err(|error| from_slate(&error))? else {
            return Ok(());
        };
        if let Some((_, id)) = keys::payloads_of(&row.key) {
            // The entry holds the task's sequence number.
            let live = [&[LIVE], &row.value[..]].concat();
            let mut exists = false;
            for key in [Bytes::from(live), keys::of_task(ENDED, id)] {
                let row = db.get_key_value(key).await;
                let row = row.map_err(|error| from_slate(&error))?;
                exists |= row.is_some_and(|row| !is_expired(&row, client.now()));
            }
            // A replayed task still exists, and gets a new entry when it finishes.
            if !exists {
                remove_payloads(client, id).await?;
            }
        }
        let mut batch = WriteBatch::new();
        batch.delete(&row.key);
        super::clock::stamp(&mut batch);
        db.write(batch).await.map_err(|error| from_slate(&error))?;
    }
    Ok(())
}
