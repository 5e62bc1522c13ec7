//! Brokers, the network between them, and connections to them, for engines that only one process at a time can open.

mod hub;
mod ping;
mod wire;

pub use self::hub::{BrokerSeat, Hub};
pub use self::ping::SimPing;
pub use self::wire::Wire;
