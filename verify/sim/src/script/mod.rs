//! Differential test: one script, derived from a seed, runs without faults on each engine and on the core alone.
//!
//! The steps happen at the same times everywhere, five seconds apart. Every response and every final record must be equal, except for these
//! fields:
//!
//! | not compared | because |
//! | --- | --- |
//! | operation and lease ids | every engine generates its own |
//! | the submit sequence number | only engines with all tasks in memory assign it |
//! | times, within a step of five seconds | responses take time, and the store's clock has a precision of a second |
//! | the time at which an expired lease or task is ended, and its effects | a broker has a timer, direct mode a periodic monitor |
//!
//! Each task has its own type, so that a claim selects one task: the order among several due tasks is not promised.

mod core_alone;
mod essence;
mod steps;
mod through;

pub use self::core_alone::through_the_core;
pub use self::through::through;
