//! Payloads of tasks that the database has dropped.
//!
//! SlateDB drops a record some time after its time is over, and tells nobody. Until then reads still find it, so that a record counts as
//! dropped by its time, here as in every other look ([`super::archive`]). A task with payloads beside its record therefore leaves an
//! entry under that time, and what has been dropped by then is looked for now and then. An entry is deleted after its payloads,
//! so that a crash between the two repeats a deletion and loses none.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use qo_engine::EngineError;
use qo_store::StoreClient;
use qo_store::runtime::Runtime;
use slatedb::{Db, WriteBatch};
use tokio::sync::watch;

use super::archive::is_over;
use super::error::from_slate;
use super::keys::{self, ENDED, LIVE, PAYLOADS};
use crate::payloads::remove_payloads;

/// How often to look.
const INTERVAL: Duration = Duration::from_mins(10);
/// How many are cleared up at once.
const ENTRIES_MAX: usize = 1_000;

/// Looks for leftovers for as long as it lives.
pub(super) struct Leftovers {
    _alive: watch::Sender<()>,
}

impl Leftovers {
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
                        if let Err(error) = clear_up(&db, &client).await {
                            tracing::warn!(%error, "payloads of dropped tasks are left for later");
                        }
                    }
                }
            }
        }));
        Self { _alive: alive }
    }
}

/// Deletes the payloads of tasks that have been dropped.
async fn clear_up(db: &Db, client: &StoreClient) -> Result<(), EngineError> {
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
            // The entry says which place the task has among those that are live.
            let live = [&[LIVE], &row.value[..]].concat();
            let mut is_there = false;
            for key in [Bytes::from(live), keys::of_task(ENDED, id)] {
                let found = db.get_key_value(key).await;
                let found = found.map_err(|error| from_slate(&error))?;
                is_there |= found.is_some_and(|row| !is_over(&row, client.now()));
            }
            // It may have been replayed, and then has an entry of its own.
            if !is_there {
                remove_payloads(client, id).await?;
            }
        }
        let mut batch = WriteBatch::new();
        batch.delete(&row.key);
        db.write(batch).await.map_err(|error| from_slate(&error))?;
    }
    Ok(())
}
