//! Exhaustive search: every order of a few steps, up to a depth.
//!
//! - [`rules`]: the core's rules: every sequence of actions of two workers, an operator and the monitor on two tasks.
//! - [`steps`]: the requests of direct mode: every order in which the store can serve two workers and a monitor, with one death at any
//!   point, or with leases that expire at any point.

pub mod rules;
pub mod steps;
