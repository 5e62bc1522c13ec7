//! The deterministic simulator of qo, and its campaigns of faults.
//!
//! The production engines, the monitor and the sweeper run here on a simulated store, in virtual time, on one thread. A seed decides a run to
//! the byte (with SlateDB, almost): the processes, their calls, the faults, and the order of all events.
//!
//! - [`sched`]: the scheduler, and the runtime of each process. [`random`]: the seed's streams. [`trace`]: the trace of a run.
//! - [`store`]: the store, and the faulty connections to it. [`faults`], [`plan`]: the faults and their rates.
//! - [`subject`]: the engines under test. [`broker`]: connections to an engine that a single process has open. [`actor`]: workers and clients. [`journal`]: their calls.
//! - [`run`]: one run. [`check`]: the promises, by `qo-check`. [`shrink`]: shrinks a failing run. [`campaign`]: many runs.
//! - [`cluster`]: cluster mode, on disks and a network of its own.
//! - [`reuse`]: ids and keys that are used again after the retention. [`overload`]: more submits than a broker commits. [`script`]: the same events through all engines. [`mutants`]: planted bugs, which the campaign must find. [`explore`]: all orders of a few steps.

pub mod actor;
pub mod broker;
pub mod campaign;
pub mod check;
pub mod cluster;
pub mod explore;
pub mod faults;
pub mod journal;
pub mod mutants;
pub mod overload;
pub mod plan;
pub mod random;
pub mod reuse;
pub mod run;
pub mod sched;
pub mod script;
pub mod shrink;
pub mod store;
pub mod subject;
mod task_rows;
pub mod trace;
