//! All orders of a few steps: not a sample, but every one up to a depth.
//!
//! - [`rules`]: the rules of the core: every sequence of what two workers, an operator and the monitor can do to two tasks.
//! - [`steps`]: the requests of direct mode: every order in which the store can serve two workers and a monitor, with one death anywhere
//!   and the leases running out at any moment.

pub mod rules;
pub mod steps;
