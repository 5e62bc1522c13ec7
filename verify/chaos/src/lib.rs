//! Real processes of qo under faults.
//!
//! The `qo` command runs as workers, clients and brokers on SeaweedFS. A proxy between them and the store, and between workers and brokers,
//! delays, refuses, loses, duplicates and tears requests and responses. Meanwhile processes are killed, stopped and restarted. Then the faults
//! end, the queue settles, and the checks compare what is stored with what clients were acknowledged, with the handlers' log, and with
//! every version of every task that passed through the proxy.
//!
//! - [`proxy`]: the faulty proxy, and what it observed. [`faults`]: the kinds and rates of faults, decided by a seed.
//! - [`site`]: the server, the bucket, the brokers' addresses, and the commands. [`process`]: one process.
//! - [`client`]: submits tasks. [`monkey`]: kills processes. [`run`]: one run. [`check`]: the promises. [`report`]: the table.

pub mod args;
pub mod check;
pub mod client;
pub mod faults;
pub mod monkey;
pub mod process;
pub mod proxy;
pub mod report;
pub mod run;
pub mod site;
mod tasks;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. A thread that panicked with it has failed the run already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
