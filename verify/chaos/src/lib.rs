//! Real processes of qo under real trouble.
//!
//! The `qo` command runs as workers, clients and brokers on SeaweedFS. Between them and the store, and between workers and brokers, stands a
//! proxy that delays, refuses, loses, repeats and tears; meanwhile processes are killed, stopped and started again. Then the trouble ends, the
//! queue comes to rest, and what is stored is held against what clients were told, what handlers wrote into their log, and every version of
//! every task that has passed through the proxy.
//!
//! - [`proxy`]: the faulty way, and what it has seen. [`faults`]: what fails, and how often, as a seed decides.
//! - [`place`]: the server, the bucket, the brokers' addresses, and how the command is run. [`process`]: one process.
//! - [`client`]: who submits. [`monkey`]: who kills. [`run`]: one run. [`check`]: whether the promises were kept. [`report`]: the table.

pub mod args;
pub mod check;
pub mod client;
pub mod faults;
pub mod monkey;
pub mod place;
pub mod process;
pub mod proxy;
pub mod report;
pub mod run;
mod tasks;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. A thread that panicked while it held one has already failed the run.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
