//! A queue that a process opens for itself alone, because nobody serves it.
//!
//! It leads without an address until it is closed: [`Queue::close`] closes the engine and then gives the leadership up, so that
//! the next one need not wait. A process that dies without that is missed after three heartbeats.

use std::sync::Arc;
use std::time::Duration;

use qo_broker::election::{Elector, LeaderGate};

use super::Place;
use crate::error::Error;
use crate::queue::Queue;

/// How long a challenge and what comes before it may take. Whoever is not through by then has a rival, and looks again.
const ACQUIRE_PATIENCE: Duration = Duration::from_secs(10);

/// Opens the queue here; nothing, if somebody else leads by now.
pub(super) async fn open(place: &Place, elector: &Elector) -> Result<Option<Queue>, Error> {
    let leadership = tokio::select! {
        biased;
        leadership = elector.acquire() => Arc::new(leadership?),
        () = place.runtime.sleep(ACQUIRE_PATIENCE) => return Ok(None),
    };
    let gate = LeaderGate::new(place.store_client());
    gate.begin(leadership);
    match place.slate().await {
        Ok(engine) => gate.serve(Arc::new(engine)),
        Err(error) => {
            gate.leave().await;
            return Err(error.into());
        }
    }
    Ok(Some(Queue::new(Arc::new(gate), Arc::clone(&place.runtime))))
}
