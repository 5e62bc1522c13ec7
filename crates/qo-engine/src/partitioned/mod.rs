//! A queue that is divided into partitions, each with an engine of its own.
//!
//! ```text
//!                      ┌─► engine 0
//! PartitionedEngine ───┼─► engine 1     of any kind; they share nothing
//!                      └─► engine 2
//! ```
//!
//! - [`routing`]: the partition of a task.
//! - [`claims`]: claims from all partitions at once.
//! - [`lists`]: pages, counts and workers of all partitions.
//! - [`engine_impl`]: the [`Engine`](crate::Engine) implementation.
//!
//! # What holds across partitions
//!
//! - One task per id and per idempotency key, because both lead to the same partition ([`qo_core::Route`]).
//! - Tasks with one ordering key run in order, because the key leads to one partition.
//! - The most urgent tasks are claimed first, if the engines tell which tasks are due ([`Engine::due`](crate::Engine::due)).
//!   Concurrent claims may take tasks in a slightly different order, as they may in one engine.
//! - An operation on one task costs what it costs in one engine. A claim, a page of a list that ends, counts and workers ask all
//!   partitions, concurrently.
//! - An operation on many tasks is not atomic, in this engine as in all others. Each task has its own result.
//! - A queue is paused when all partitions have paused it. A pause that fails half-way can be repeated.
//!
//! The number of partitions decides where a task is found. It must not change while there are tasks.

mod claims;
mod engine_impl;
mod lists;
mod routing;

use std::fmt;
use std::sync::Arc;

use qo_core::TaskId;
use qo_store::runtime::Runtime;

use self::claims::ClaimTurns;
use crate::engine::Engine;
use crate::error::EngineError;

/// The most partitions of a queue. Claims ask all of them.
pub const PARTITIONS_MAX: usize = 1_024;

/// An engine over the partitions of a queue. Clones share everything.
#[derive(Clone)]
pub struct PartitionedEngine {
    partitions: Arc<[Arc<dyn Engine>]>,
    runtime: Arc<dyn Runtime>,
    turns: Arc<ClaimTurns>,
}

impl PartitionedEngine {
    /// An engine over these partitions. Their number and order must be the same each time.
    pub fn new(
        partitions: Vec<Arc<dyn Engine>>,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, EngineError> {
        if !(1..=PARTITIONS_MAX).contains(&partitions.len()) {
            return Err(EngineError::BadRequest(format!(
                "a queue has 1 to {PARTITIONS_MAX} partitions, not {}",
                partitions.len()
            )));
        }
        Ok(Self {
            partitions: partitions.into(),
            runtime,
            turns: Arc::default(),
        })
    }

    /// The engines, in order.
    pub fn partitions(&self) -> &[Arc<dyn Engine>] {
        &self.partitions
    }

    /// The engine of a task.
    fn of(&self, id: TaskId) -> &dyn Engine {
        self.partition(self.partition_of(id))
    }

    fn partition(&self, index: usize) -> &dyn Engine {
        // Every index comes from a remainder by the number of partitions, or from counting them.
        &*self.partitions[index]
    }
}

impl fmt::Debug for PartitionedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedEngine")
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}
