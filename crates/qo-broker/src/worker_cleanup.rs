//! Deletes the records of workers that have died. A worker that stops deletes its own record.

use std::sync::Weak;
use std::time::Duration;

use qo_engine::worker_records;

use super::{BrokerEngine, EngineShared};

/// How often to look for dead workers. A run costs one LIST.
const INTERVAL: Duration = Duration::from_hours(1);
/// How long after its last heartbeat a worker counts as dead, as in direct mode.
const DEAD_AFTER: Duration = Duration::from_hours(24);

/// Runs until the engine has ended.
pub(super) async fn remove_dead_workers(engine: Weak<EngineShared>) {
    loop {
        let Some(shared) = engine
            .upgrade()
            .filter(|shared| shared.ended.get().is_none())
        else {
            return;
        };
        let sleep = shared.runtime.sleep(INTERVAL);
        drop(shared);
        sleep.await;
        let Some(shared) = engine
            .upgrade()
            .filter(|shared| shared.ended.get().is_none())
        else {
            return;
        };
        let engine = BrokerEngine { shared };
        match worker_records::remove_dead(engine.client(), DEAD_AFTER).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "deleted the records of dead workers"),
            Err(error) => {
                tracing::warn!(%error, "could not delete the records of dead workers; retrying later");
            }
        }
    }
}
