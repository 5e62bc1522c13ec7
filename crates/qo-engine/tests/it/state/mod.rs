//! The engines that hold the queue in memory and commit in groups.

mod agreement;
mod callers;
mod conformance;
mod crashes;
mod faults;
mod fencing;
mod leftovers;
mod object;
mod place;
mod processes;
mod restart;
