//! The same events through all engines: one script, decided by a seed, played without faults on each engine and on the core alone.
//!
//! The steps come at the same times everywhere, five seconds apart. What must be the same is each answer, and every record in the end, in
//! all its fields but these, which differ for good reasons:
//!
//! | not compared | because |
//! | --- | --- |
//! | operation and lease ids | they are drawn anew by every engine |
//! | the place in the order of submits | only engines with all tasks in memory count it |
//! | times, within a step of five seconds | answers take time, and the store's clock is known to a second |
//! | when a lease or a task that has run out is ended, and what follows from that | a broker has a timer, direct mode a monitor that passes by |
//!
//! Each task has a type of its own, so that a claim names it: which of several tasks that are due a claim gets is not promised.

mod core_alone;
mod essence;
mod steps;
mod through;

pub use self::core_alone::through_the_core;
pub use self::through::through;
