//! The engines that hold the queue in memory and commit in groups.

mod conformance;
