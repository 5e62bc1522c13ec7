//! What a node does while it leads.
//!
//! | step | effect of a crash, or of losing the lead, right after it |
//! | --- | --- |
//! | 1. the node is elected | none: it serves nothing yet |
//! | 2. it proposes a barrier, which is committed and applied: **earlier leaders can change nothing any more** | the next leader does the same |
//! | 3. it loads the live tasks from its rows, which contain everything that was ever acknowledged | none |
//! | 4. it serves: groups are proposed, and answered once they are applied | a group without an answer may or may not be applied; its callers retry |
//! | 5. leases that others granted are ended only after a pause, so that their workers can find the new leader | none |
//!
//! A leader that hears nothing from a majority stops serving: everything in flight fails with `NotLeader`. If it still leads when the majority
//! is back, it begins again with a new barrier.

mod clock;
mod database;
mod objects;
mod proposer;
mod stale;
mod sweep;
mod term;
mod writer;

pub(crate) use objects::ClusterObjects;
pub use objects::NodeObjects;
pub use stale::StaleEngine;
pub(crate) use stale::{Freshness, ViewSlot, view};
pub(crate) use term::lead;
