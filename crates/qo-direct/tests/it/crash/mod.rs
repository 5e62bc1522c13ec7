//! Crash and fault tests of direct mode, on the memory store and in virtual time.
//!
//! - `scenario`: short programs around each operation on a `stage`, and `strike`: a crash or a fault at each of their requests.
//! - `zombie`: a worker that wakes up after its lease ran out. `clocks`: two processes whose clocks disagree. `resumed`: a queue
//!   that goes on although nobody was told.
//! - `campaign`: many processes under random faults and crashes, seed by seed.
//! - `upkeep`: what happens after the faults: a fresh process brings every task to its end.
//! - `checker`: whether the promises were kept, from what is stored and what the callers were told.
//!
//! A failure names the scenario, the request and the fault, or the seed, which replay it alone.

mod bucket;
mod campaign;
mod checker;
mod clocks;
mod journal;
mod process;
mod resumed;
mod runtime;
mod scenario;
mod stage;
mod strike;
mod upkeep;
mod zombie;
