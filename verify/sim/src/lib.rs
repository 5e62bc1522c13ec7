//! The deterministic simulator of qo, and the campaign of faults that runs in it.
//!
//! The engines, the monitor and the sweeper that ship run here on a simulated store, in virtual time, on one thread. A seed decides a run to
//! the byte (with SlateDB, almost): which processes there are, what they do, what fails, and in which order everything happens.
//!
//! - [`sched`]: the scheduler, and the runtime that it gives to each process. [`random`]: the seed's streams. [`trace`]: what happened.
//! - [`store`]: the store, and the faulty ways to it. [`faults`], [`plan`]: what fails, and how often.
//! - [`subject`]: the engine that a run is about. [`broker`]: how others reach one that a single process has open. [`actor`]: what workers and clients do. [`journal`]: what they asked and were told.
//! - [`run`]: one run. [`check`]: whether the promises were kept. [`shrink`]: the smallest run that still fails. [`campaign`]: many runs.
//! - [`script`]: the same events through all engines. [`mutants`]: planted bugs, which the campaign must find. [`explore`]: all orders of a few steps.

pub mod actor;
pub mod broker;
pub mod campaign;
pub mod check;
pub mod explore;
pub mod faults;
pub mod journal;
pub mod mutants;
pub mod plan;
pub mod random;
pub mod run;
pub mod sched;
pub mod script;
pub mod shrink;
pub mod store;
pub mod subject;
pub mod trace;
