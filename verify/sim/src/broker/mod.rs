//! Brokers, and the way to them: for engines that one process at a time has open, and that the others reach over a network.

mod hub;
mod wire;

pub use self::hub::{Hub, Serving};
pub use self::wire::Wire;
