//! The kinds of faults that fault stores, the simulator and the chaos runs inject.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::wrap::operation::Operation;

/// One way in which a store, the network or a process fails.
///
/// The simulator draws random numbers by the order of the kinds up to [`FaultKind::VersionLimit`]. New kinds go to the end, so that seeds keep
/// their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The request is never applied and gets no reply.
    LostRequest,
    /// The request is applied and gets no reply.
    LostResponse,
    /// The write gets no reply and is applied later, if its condition still holds then.
    LateApply,
    /// The write is applied twice, and the second reply is returned: a create is told that the object exists.
    DuplicateApply,
    /// The conditional write fails with 409 `ConditionalRequestConflict` and is not applied.
    Conflict,
    /// The request is applied and fails with 500.
    ErrorAfterApply,
    /// The store is unavailable to every process for a while.
    Outage,
    /// The list shows an earlier state: without recent writes, with recently deleted objects.
    StaleList,
    /// The body ends early, although its size claims more.
    TornRead,
    /// The process dies. In a fault store, nothing is applied or answered from this request on, until the store is revived.
    Crash,
    /// The process is stopped for a while without noticing.
    Pause,
    /// The wall clock of the process is wrong.
    ClockSkew,
    /// The wall clock of the process jumps.
    ClockJump,
    /// One process cannot reach the store for a while.
    Partition,
    /// A stored object is damaged.
    CorruptObject,
    /// Entity tags are hashes of the content, so equal bytes have equal tags.
    HashTags,
    /// A key takes a limited number of writes.
    VersionLimit,
    /// The request fails with 503 and is not applied. In a fault store, so does every other request for a while.
    Unavailable,
    /// The conditional write is applied whether its condition holds or not.
    IgnoredCondition,
    /// The condition is checked first, and the write is applied a moment later, whatever happened in between.
    NonAtomicCondition,
    /// The request is delayed.
    SlowRequest,
    /// The reply is delayed.
    SlowReply,
    /// The process is asked to stop.
    Terminate,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 23] = [
        Self::LostRequest,
        Self::LostResponse,
        Self::LateApply,
        Self::DuplicateApply,
        Self::Conflict,
        Self::ErrorAfterApply,
        Self::Unavailable,
        Self::StaleList,
        Self::TornRead,
        Self::IgnoredCondition,
        Self::NonAtomicCondition,
        Self::Crash,
        Self::Outage,
        Self::Pause,
        Self::ClockSkew,
        Self::ClockJump,
        Self::Partition,
        Self::CorruptObject,
        Self::HashTags,
        Self::VersionLimit,
        Self::SlowRequest,
        Self::SlowReply,
        Self::Terminate,
    ];

    /// The kinds that a correct store shows when requests and responses are lost, delayed or repeated: the first ones of all.
    pub const TRANSIENT: &'static [Self] = Self::ALL.split_at(6).0;

    /// The kinds that a fault store injects: the first ones of all, too.
    pub const OF_STORES: &'static [Self] = Self::ALL.split_at(12).0;

    /// Its name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::LostRequest => "lost-request",
            Self::LostResponse => "lost-response",
            Self::LateApply => "late-apply",
            Self::DuplicateApply => "duplicate-apply",
            Self::Conflict => "conflict",
            Self::ErrorAfterApply => "error-after-apply",
            Self::Outage => "outage",
            Self::StaleList => "stale-list",
            Self::TornRead => "torn-read",
            Self::Crash => "crash",
            Self::Pause => "pause",
            Self::ClockSkew => "clock-skew",
            Self::ClockJump => "clock-jump",
            Self::Partition => "partition",
            Self::CorruptObject => "corrupt-object",
            Self::HashTags => "hash-tags",
            Self::VersionLimit => "version-limit",
            Self::Unavailable => "unavailable",
            Self::IgnoredCondition => "ignored-condition",
            Self::NonAtomicCondition => "non-atomic-condition",
            Self::SlowRequest => "slow-request",
            Self::SlowReply => "slow-reply",
            Self::Terminate => "terminate",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether a fault store or the simulator can inject this fault into such a request. A plan for any other request has no effect.
    pub fn applies_to(self, operation: Operation) -> bool {
        match self {
            Self::LostRequest
            | Self::LostResponse
            | Self::ErrorAfterApply
            | Self::Unavailable
            | Self::Crash => true,
            Self::LateApply | Self::DuplicateApply => matches!(
                operation,
                Operation::Put
                    | Operation::Create
                    | Operation::Swap
                    | Operation::Delete
                    | Operation::Copy
            ),
            Self::Conflict | Self::IgnoredCondition | Self::NonAtomicCondition => {
                matches!(operation, Operation::Create | Operation::Swap)
            }
            Self::StaleList => operation == Operation::List,
            Self::TornRead => operation == Operation::Get,
            Self::Outage
            | Self::Pause
            | Self::ClockSkew
            | Self::ClockJump
            | Self::Partition
            | Self::CorruptObject
            | Self::HashTags
            | Self::VersionLimit
            | Self::SlowRequest
            | Self::SlowReply
            | Self::Terminate => false,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_kinds() {
        for kind in FaultKind::ALL {
            assert_eq!(FaultKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(FaultKind::from_name("nothing"), None);
    }

    #[test]
    fn every_kind_of_a_store_strikes_something() {
        for kind in FaultKind::OF_STORES.iter().copied() {
            let mut operations = Operation::ALL.into_iter();
            assert!(
                operations.any(|operation| kind.applies_to(operation)),
                "{kind}"
            );
        }
    }
}
