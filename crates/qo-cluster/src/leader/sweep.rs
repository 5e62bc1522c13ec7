//! Deletes expired rows. The leader proposes the deletion, so every node deletes the same rows at the same position in the log.

use std::sync::Arc;

use qo_engine::EngineError;

use super::database::{ClusterRows, disk};
use crate::blocking;
use crate::proposal::Proposal;

/// The most rows that one entry deletes.
const LIMIT: u32 = 2_000;

/// Deletes all rows that have expired.
pub(super) async fn sweep(rows: &ClusterRows) -> Result<(), EngineError> {
    let before = (rows.now)();
    loop {
        let store = Arc::clone(&rows.reader.rows);
        let has_expired = blocking::run(&rows.reader.pool, move || store.has_expired(before)).await;
        if !has_expired.map_err(|error| disk(&error))? {
            return Ok(());
        }
        let epoch = rows.proposer.epoch();
        let proposal = Proposal::sweep((rows.now)(), epoch, before, LIMIT);
        rows.proposer.propose(proposal).await?;
    }
}
