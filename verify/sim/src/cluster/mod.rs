//! Cluster mode in the simulator: three nodes with simulated disks on a simulated network. In a fifth of the runs they have several groups.
//!
//! The shipping node runs here: openraft, the log, applying, snapshots, leading, and the commit loop, on the runtime of each process, with
//! files that lose what was not synced ([`disk`]) and messages that are lost, late, repeated or cut off in one direction ([`network`]).
//! Clients submit, claim, finish and read throughout ([`client`]), and a [`ledger`] compares every response with what was
//! acknowledged before. Meanwhile an operator replaces nodes ([`operator`]). Bugs are planted at the ports ([`Mutation`]), so the shipping code
//! contains none of them.

mod client;
mod disk;
mod ledger;
mod network;
mod operator;
mod run;
mod storms;

pub use run::{ClusterOutcome, run};
pub use storms::groups_of;

/// A planted bug, which the runs must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A disk reports writes as synced that are not: entries, votes and purges are lost in a crash.
    UnsyncedLog,
    /// A follower acknowledges entries that it did not get, so that they are acknowledged without a majority.
    AcknowledgedUnseen,
    /// A snapshot contains no idempotency keys.
    SnapshotWithoutKeys,
    /// A node that restarts forgets its rows beyond the last sync, and keeps the position of the log.
    PositionWithoutRows,
    /// A node forgets that it has voted, and votes for a second candidate in the same term.
    VoteForgotten,
    /// A node votes for candidates that lack entries which it has.
    VoteForShorterLog,
    /// A snapshot contains no finished tasks.
    SnapshotWithoutFinishedTasks,
    /// A snapshot is installed although a part of its rows is missing.
    SnapshotIncomplete,
    /// Rows of idempotency keys are not written, so that a new leader does not recognise a repeated submit.
    KeysForgotten,
    /// Rows are not deleted, so that a new leader finds tasks that are finished.
    DeletesIgnored,
    /// Only the log of group 0 is synced, and the disk reports the others as synced, too.
    OtherGroupsUnsynced,
    /// A message now and then reaches another group than the one that it is for.
    GroupsMixedUp,
}

impl Mutation {
    /// Every planted bug.
    pub const ALL: [Self; 12] = [
        Self::UnsyncedLog,
        Self::AcknowledgedUnseen,
        Self::SnapshotWithoutKeys,
        Self::PositionWithoutRows,
        Self::VoteForgotten,
        Self::VoteForShorterLog,
        Self::SnapshotWithoutFinishedTasks,
        Self::SnapshotIncomplete,
        Self::KeysForgotten,
        Self::DeletesIgnored,
        Self::OtherGroupsUnsynced,
        Self::GroupsMixedUp,
    ];

    /// Whether only runs with several groups can find it.
    pub fn needs_groups(self) -> bool {
        matches!(self, Self::OtherGroupsUnsynced | Self::GroupsMixedUp)
    }
}
