//! What a run may use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime::ResourceLimiter;

/// Limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of all linear memories together.
    pub memory_bytes: u64,
    /// Maximum bytes on standard output.
    pub output_bytes: u64,
    /// Maximum size of a program's binary.
    pub program_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            output_bytes: 64 << 20,
            program_bytes: 64 << 20,
        }
    }
}

/// Maximum elements of all tables together. An element takes 8 or 16 bytes.
const TABLE_ELEMENTS_MAX: usize = 1 << 20;
/// A component consists of several instances, each with tables and memories of its own.
const INSTANCES_MAX: usize = 128;
const TABLES_MAX: usize = 128;
const MEMORIES_MAX: usize = 16;

/// Counts the memory and tables of one run.
///
/// wasmtime's own `StoreLimits` limits each memory by itself, so that a module with ten memories could use ten times the limit.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: Budget,
    table_elements: Budget,
}

/// What is left of something that the parts of a run share.
#[derive(Debug)]
struct Budget {
    left: usize,
    refused: Arc<AtomicBool>,
}

impl Budget {
    fn grow(&mut self, current: usize, desired: usize) -> bool {
        let more = desired.saturating_sub(current);
        if more > self.left {
            self.refused.store(true, Ordering::Relaxed);
            return false;
        }
        self.left -= more;
        true
    }
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        let refused = Arc::<AtomicBool>::default();
        let budget = |left| Budget {
            left,
            refused: Arc::clone(&refused),
        };
        Self {
            memory: budget(usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX)),
            table_elements: budget(TABLE_ELEMENTS_MAX),
        }
    }

    /// Becomes true when the program was refused memory or table elements. It may handle that, or trap.
    pub(crate) fn refused(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.memory.refused)
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.memory.grow(current, desired))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.table_elements.grow(current, desired))
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_share_one_budget() {
        let mut limiter = Limiter::new(&Limits {
            memory_bytes: 100,
            ..Limits::default()
        });
        let refused = limiter.refused();
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 30, None).unwrap());
        assert!(!refused.load(Ordering::Relaxed));
        assert!(!limiter.memory_growing(60, 71, None).unwrap());
        assert!(refused.load(Ordering::Relaxed));
        assert!(limiter.memory_growing(60, 70, None).unwrap());
        assert!(!limiter.memory_growing(0, 1, None).unwrap());
    }

    #[test]
    fn tables_share_one_budget() {
        let mut limiter = Limiter::new(&Limits::default());
        assert!(limiter.table_growing(0, TABLE_ELEMENTS_MAX, None).unwrap());
        assert!(!limiter.table_growing(0, 1, None).unwrap());
    }
}
