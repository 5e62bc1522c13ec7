//! `qo serve --cluster`: three nodes as processes, on local disks.

mod conformance;
mod encryption;
mod faults;
mod groups;
mod links;
mod monitoring;
mod nodes;
mod operations;
mod order;
mod scenarios;
mod schedules;
mod strangers;
mod tokens;

use std::time::Duration;

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);
