//! Planted bugs, so that the simulator can prove that it finds such mistakes.
//!
//! Each bug is a variant of [`Mutant`], and the code that would contain it calls [`planted`]. Without the feature
//! `mutants`, which only the simulator enables, that is a constant `false`, and the compiler removes the bug. With
//! it, one bug at a time can be enabled for the current thread.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mutant {
    /// A completion does not check its lease, so any earlier holder of the task can complete it.
    UnfencedCompletion,
    /// A renewal does not check its lease.
    UnfencedRenewal,
    /// An attempt is counted when it fails, not when it is claimed.
    AttemptCountedAtFailure,
    /// An expired lease does not count as a retry.
    LeaseExpiryUncounted,
    /// A task is retried without limit.
    RetriesWithoutEnd,
    /// A cancel requested while a task runs is forgotten when the task becomes pending again.
    CancelForgotten,
    /// A finished task can be cancelled.
    TerminalCancelled,
    /// An expired task can be claimed.
    ExpiredClaimed,
    /// A task can be claimed before it is due.
    ClaimedEarly,
    /// A refusal of a resent write is treated as another writer's success, without reading back.
    OwnRefusalReadAsLost,
    /// A 409 is treated as another writer's success.
    ConflictReadAsRefusal,
    /// A write without a response is treated as not applied.
    DoubtReadAsFailure,
    /// A write without a response is treated as applied.
    DoubtReadAsSuccess,
    /// A resent write has no condition.
    RepeatedWithoutCondition,
    /// A truncated body is treated as complete.
    TornReadTaken,
    /// Store time is derived from the wall clock, so setting the clock goes unnoticed.
    StoreTimeByWallClock,
    /// A submit is acknowledged before it is stored.
    AcknowledgedEarly,
    /// A submit without a response is repeated with a new id.
    NewIdAfterDoubt,
    /// A task is written even if one with its id exists.
    UnconditionalSubmit,
    /// A submit that finds a record of its idempotency key creates a second task if the recorded task does not
    /// exist.
    KeyHolderIgnored,
    /// A large input is written after the task that refers to it.
    PayloadAfterRecord,
    /// The key of a large output contains the task but not the attempt.
    OutputNamedByTask,
    /// Lease expiry uses the local clock.
    LeaseJudgedByLocalClock,
    /// Lease expiry uses only the minute.
    LeaseJudgedByMinute,
    /// Expired leases are never detected.
    NoMonitor,
    /// Tasks without an index entry are never detected.
    NoSweeper,
    /// A failed read is treated as a missing object, so entries are deleted whose task could not be read.
    FailedReadTakenForAbsence,
    /// Due tasks stay in the `later` index.
    NoPromotion,
    /// A task that becomes pending again gets no ready entry.
    ReadyEntryForgotten,
    /// Every claim sends a list request.
    ListPerClaim,
    /// A renewal reports success, but the lease still expires.
    RenewalWithoutEffect,
    /// A replay resets the attempt number, so a fencing token is issued twice.
    AttemptResetByReplay,
    /// The ready entry of a new task is written before the task, and a worker that finds it early deletes it.
    ReadyEntryBeforeTask,
    /// The broker replies before the write with the change is durable.
    AnsweredBeforeDurable,
    /// The broker treats a group that lost its race as stored.
    LostRaceTakenForWon,
    /// The broker continues with a state that contains the changes of a failed write.
    FailedWriteBuiltUpon,
    /// The broker replies from memory without confirming that it still leads and that no other process has
    /// written.
    AnsweredUnconfirmed,
    /// The broker expires leases by the midpoint of the store's possible time, without a margin.
    LeaseJudgedByMiddle,
    /// A refused swap of the state object is treated as another writer's success, without reading back.
    RefusedSwapTakenForLost,
    /// A doubtful write of the state object is recognised only while it is the newest.
    BuiltUponUnrecognised,
    /// Finished tasks in the database are not looked up, so an id or key can be used twice.
    EndedTaskForgotten,
    /// A finished task stays among the live ones in the database and reappears with the next broker.
    LiveRecordLeft,
    /// The broker returns data read after a write that then failed.
    AnsweredBehindFailure,
}

impl Mutant {
    /// Every planted bug.
    pub const ALL: [Self; 43] = [
        Self::UnfencedCompletion,
        Self::UnfencedRenewal,
        Self::AttemptCountedAtFailure,
        Self::LeaseExpiryUncounted,
        Self::RetriesWithoutEnd,
        Self::CancelForgotten,
        Self::TerminalCancelled,
        Self::ExpiredClaimed,
        Self::ClaimedEarly,
        Self::OwnRefusalReadAsLost,
        Self::ConflictReadAsRefusal,
        Self::DoubtReadAsFailure,
        Self::DoubtReadAsSuccess,
        Self::RepeatedWithoutCondition,
        Self::TornReadTaken,
        Self::StoreTimeByWallClock,
        Self::AcknowledgedEarly,
        Self::NewIdAfterDoubt,
        Self::UnconditionalSubmit,
        Self::KeyHolderIgnored,
        Self::PayloadAfterRecord,
        Self::OutputNamedByTask,
        Self::LeaseJudgedByLocalClock,
        Self::LeaseJudgedByMinute,
        Self::NoMonitor,
        Self::NoSweeper,
        Self::FailedReadTakenForAbsence,
        Self::NoPromotion,
        Self::ReadyEntryForgotten,
        Self::ListPerClaim,
        Self::RenewalWithoutEffect,
        Self::AttemptResetByReplay,
        Self::ReadyEntryBeforeTask,
        Self::AnsweredBeforeDurable,
        Self::LostRaceTakenForWon,
        Self::FailedWriteBuiltUpon,
        Self::AnsweredUnconfirmed,
        Self::LeaseJudgedByMiddle,
        Self::RefusedSwapTakenForLost,
        Self::BuiltUponUnrecognised,
        Self::EndedTaskForgotten,
        Self::LiveRecordLeft,
        Self::AnsweredBehindFailure,
    ];
}

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether this bug is enabled on the current thread.
    pub fn planted(mutant: Mutant) -> bool {
        PLANTED.get() == Some(mutant)
    }

    /// Enables a bug on this thread, or none.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }
}

#[cfg(feature = "mutants")]
pub use switch::{plant, planted};

/// Whether this bug is enabled: never.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[expect(clippy::inline_always, reason = "release builds must not contain it")]
pub const fn planted(_mutant: Mutant) -> bool {
    false
}
