//! Opens the queue in this process alone, because no broker serves it.
//!
//! The process leads without an address until [`Queue::close`], which closes the engine and then releases the leadership, so that
//! the next process need not wait. The leadership of a process that dies expires after three missed heartbeats.

use std::sync::Arc;
use std::time::Duration;

use qo_broker::election::{Elector, LeaderGate};

use super::BrokerSetup;
use crate::error::Error;
use crate::queue::Queue;

/// Time limit for acquiring the leadership. A process that takes longer has a rival and looks for a broker again.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens the queue here. Returns `None` if another process acquired the leadership.
pub(super) async fn open(setup: &BrokerSetup, elector: &Elector) -> Result<Option<Queue>, Error> {
    let leadership = tokio::select! {
        biased;
        leadership = elector.acquire() => Arc::new(leadership?),
        () = setup.runtime.sleep(ACQUIRE_TIMEOUT) => return Ok(None),
    };
    let gate = LeaderGate::new(setup.store_client());
    gate.begin(leadership);
    match setup.open_slate().await {
        Ok(engine) => gate.serve(Arc::new(engine)),
        Err(error) => {
            gate.leave().await;
            return Err(error.into());
        }
    }
    Ok(Some(Queue::new(Arc::new(gate), Arc::clone(&setup.runtime))))
}
