//! Opens the queue in this process alone, because no broker serves it.
//!
//! The process leads without an address until [`Queue::close`], which closes the engine and then releases the leadership, so that
//! the next process need not wait. A process that dies is challenged by the next one, and replaced if it does not answer.
//!
//! A process that was suspended may have been replaced meanwhile. Then its engine or its leadership has ended, and a background task
//! gives up both and connects again: to the broker that serves now, or by opening the queue here. Calls wait for the reconnection.
//!
//! | step after the engine or the leadership has ended | effect of a crash right after it |
//! | --- | --- |
//! | 1. no call reaches the engine; it is closed | the leadership is not renewed: the next process takes over after a challenge |
//! | 2. the leadership is released, if it was not lost | none |
//! | 3. a broker is found, and calls go to it | none: the broker has the queue |
//! | 3. or the leadership is acquired again | as 1 |
//! | 4. the engine is opened, and calls go to it | as 1; the engine's journal holds all that was acknowledged |

use std::sync::{Arc, Weak};
use std::time::Duration;

use qo_broker::BrokerEngine;
use qo_broker::election::{Elector, LeaderGate, Leadership};
use qo_engine::Engine;
use qo_store::OpenOptions;

use super::{BrokerSetup, Located, locate};
use crate::error::Error;
use crate::queue::Queue;

/// How much longer than a broker a process that serves only itself may take to answer a challenge: its runtime may be busy with the
/// program's own work.
const ANSWER_TIME_FACTOR: u32 = 4;
/// How long calls wait while the process connects again.
const RECONNECT_WAIT: Duration = Duration::from_secs(30);
/// Pause after a failed attempt to connect again.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// The elector of a process that serves only itself.
pub(super) fn elector(setup: &BrokerSetup) -> Elector {
    let mut elector = setup.elector();
    elector.set_answer_time(setup.election.answer_time * ANSWER_TIME_FACTOR);
    elector
}

/// Opens the queue here.
pub(super) async fn open(
    setup: &BrokerSetup,
    elector: Elector,
    leadership: Leadership,
    options: &OpenOptions,
) -> Result<Queue, Error> {
    let gate =
        LeaderGate::new(setup.store_client()).with_wait(Arc::clone(&setup.runtime), RECONNECT_WAIT);
    let gate = Arc::new(gate);
    let holding = hold(setup, &gate, leadership).await?;
    let supervisor = Supervisor {
        setup: setup.clone(),
        options: options.clone(),
        elector,
        gate: Arc::downgrade(&gate),
    };
    setup.runtime.spawn(Box::pin(supervisor.run(holding)));
    let queue = Queue::new(gate, Arc::clone(&setup.runtime));
    Ok(queue.with_blobs(Arc::clone(&setup.blobs) as _))
}

/// The leadership and the engine of this process.
struct Holding {
    leadership: Arc<Leadership>,
    engine: BrokerEngine,
}

/// Opens the engine of a leadership and puts both into the gate.
async fn hold(
    setup: &BrokerSetup,
    gate: &LeaderGate,
    leadership: Leadership,
) -> Result<Holding, Error> {
    let leadership = Arc::new(leadership);
    gate.begin(Arc::clone(&leadership));
    match setup.open_slate().await {
        Ok(engine) => {
            gate.serve(Arc::new(engine.clone()));
            Ok(Holding { leadership, engine })
        }
        Err(error) => {
            gate.leave().await;
            leadership.release().await;
            Err(error.into())
        }
    }
}

/// Keeps the queue of a process usable until the program closes or drops it.
struct Supervisor {
    setup: BrokerSetup,
    options: OpenOptions,
    elector: Elector,
    gate: Weak<LeaderGate>,
}

impl Supervisor {
    async fn run(self, mut holding: Holding) {
        let Some(closed) = self.gate.upgrade().map(|gate| gate.closed()) else {
            return holding.give_up().await;
        };
        tokio::pin!(closed);
        loop {
            tokio::select! {
                biased;
                () = &mut closed => {
                    // Whoever closes the queue also closes the engine and releases the leadership.
                    if self.gate.strong_count() == 0 {
                        holding.give_up().await;
                    }
                    return;
                }
                error = holding.leadership.ended() => {
                    tracing::warn!(%error, "this process no longer has the queue; connecting again");
                }
                error = holding.engine.ended() => {
                    tracing::warn!(%error, "the engine has ended; connecting again");
                }
            }
            let Some(gate) = self.gate.upgrade() else {
                return holding.give_up().await;
            };
            gate.leave().await;
            drop(gate);
            let connected = tokio::select! {
                biased;
                () = &mut closed => return,
                connected = self.connect() => connected,
            };
            match connected {
                Some(next) => holding = next,
                // The broker's clients follow it by themselves.
                None => return,
            }
        }
    }

    /// Connects again, however long it takes. Returns `None` if a broker serves the queue.
    async fn connect(&self) -> Option<Holding> {
        loop {
            match self.try_connect().await {
                Ok(holding) => return holding,
                Err(error) => {
                    tracing::warn!(%error, "cannot connect to the queue; trying again");
                    self.setup.runtime.sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn try_connect(&self) -> Result<Option<Holding>, Error> {
        let located = locate(&self.setup, &self.elector, &self.options).await?;
        match (located, self.gate.upgrade()) {
            (Located::Broker(queue), Some(gate)) => {
                gate.serve(Arc::clone(queue.engine()));
                Ok(None)
            }
            (Located::Here(leadership), Some(gate)) => {
                hold(&self.setup, &gate, leadership).await.map(Some)
            }
            (Located::Here(leadership), None) => {
                leadership.release().await;
                Ok(None)
            }
            (Located::Broker(_), None) => Ok(None),
        }
    }
}

impl Holding {
    /// Closes the engine and releases the leadership, after the program has dropped the queue.
    async fn give_up(self) {
        self.engine.close().await;
        self.leadership.release().await;
    }
}
