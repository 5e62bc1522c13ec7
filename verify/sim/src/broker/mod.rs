//! Brokers and connections to them, for engines that only one process at a time can open.

mod hub;
mod wire;

pub use self::hub::{Hub, Serving};
pub use self::wire::Wire;
