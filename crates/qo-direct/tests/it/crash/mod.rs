//! Crash and fault tests of direct mode, in memory and in paused time.
//!
//! The simulator samples random faults of many processes. These tests are exhaustive where it samples:
//!
//! - `scenario`: short programs around each operation, on a `stage`. `strike`: a crash or a fault at each of their requests.
//! - `zombie`: a worker that wakes up after its lease expired tries every operation in every state of its task.
//! - `clocks`: two processes with different wall clocks. `resumed`: a queue is resumed and its signal is lost.
//! - `upkeep`: the recovery after faults. `checker`: the promises, by `qo-check`.
//!
//! A failure names the scenario, the request and the fault, which reproduce it.

mod bucket;
mod checker;
mod clocks;
mod limited;
mod ordered;
mod process;
mod resumed;
mod scenario;
mod stage;
mod strike;
mod unique;
mod upkeep;
mod webhooks;
mod zombie;
