//! Planted bugs: what the code would be like with a mistake in it, so that the simulator can show that it finds such mistakes.
//!
//! Each mistake is one variant of [`Mutant`], and the place where it would be made asks [`planted`]. Without the feature `mutants`, which
//! only the simulator switches on, the answer is a constant no, and the compiler leaves the mistake out. With it, one mistake at a time can
//! be switched on for the current thread.

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mutant {
    /// A completion does not present its lease: whoever was ever handed the task may end it.
    UnfencedCompletion,
    /// A renewal does not, either.
    UnfencedRenewal,
    /// An attempt counts when it fails, not when it is claimed.
    AttemptCountedAtFailure,
    /// A lease that ran out is not counted against the retries.
    LeaseExpiryUncounted,
    /// A task is retried however often it has failed.
    RetriesWithoutEnd,
    /// A cancel that was requested while a task ran is forgotten when the task comes back.
    CancelForgotten,
    /// A task that has come to its end can be cancelled.
    TerminalCancelled,
    /// A task is claimed although it has expired.
    ExpiredClaimed,
    /// A task is claimed although it is not due.
    ClaimedEarly,
    /// A refusal of a repeated write is taken for somebody else's success, without a look.
    OwnRefusalReadAsLost,
    /// 409 is taken for 'somebody else was first'.
    ConflictReadAsRefusal,
    /// A write without an answer is taken for one that did not happen.
    DoubtReadAsFailure,
    /// A write without an answer is taken for one that happened.
    DoubtReadAsSuccess,
    /// A write that is repeated has no condition any more.
    RepeatedWithoutCondition,
    /// A body that ends early is taken for the whole.
    TornReadTaken,
    /// The store's time is carried on by the wall clock, and that somebody has set it is not noticed.
    StoreTimeByWallClock,
    /// A submit is acknowledged before it is stored.
    AcknowledgedEarly,
    /// A submit without an answer is repeated with a new id.
    NewIdAfterDoubt,
    /// A task is written whether or not there is one of its id.
    UnconditionalSubmit,
    /// A submit that finds the record of its key creates a task of its own, if that record's task is not there.
    KeyHolderIgnored,
    /// A large input is written after the task that refers to it.
    PayloadAfterRecord,
    /// A large output is named by its task, not by its attempt.
    OutputNamedByTask,
    /// Leases are judged by the local clock.
    LeaseJudgedByLocalClock,
    /// Leases are judged by their minute alone.
    LeaseJudgedByMinute,
    /// Nobody looks for leases that have run out.
    NoMonitor,
    /// Nobody looks for tasks without an entry.
    NoSweeper,
    /// A read that failed is taken for 'there is none', so that entries are deleted whose task could not be read.
    FailedReadTakenForAbsence,
    /// Tasks that become due stay in the later index.
    NoPromotion,
    /// A task that comes back gets no ready entry.
    ReadyEntryForgotten,
    /// Every claim lists.
    ListPerClaim,
    /// A renewal says that it was done, and the lease runs out as if there were none.
    RenewalWithoutEffect,
    /// A replay begins to count attempts anew, so that a fencing token comes twice.
    AttemptResetByReplay,
    /// A new task gets its ready entry before it is there, and whoever finds the entry first deletes it.
    ReadyEntryBeforeTask,
    /// Broker mode answers before the write that holds the change is durable.
    AnsweredBeforeDurable,
    /// Broker mode takes a group whose write others came before for one that is stored.
    LostRaceTakenForWon,
    /// Broker mode goes on with a state that holds the changes of a write that failed.
    FailedWriteBuiltUpon,
    /// Broker mode answers from what it remembers, without making sure that nobody else has written since, or has taken over.
    AnsweredUnconfirmed,
    /// Broker mode ends leases by the middle of what the store's time can be, without a margin.
    LeaseJudgedByMiddle,
    /// A refused swap of the one object is taken for somebody else's success, without a look.
    RefusedSwapTakenForLost,
    /// A doubtful write of the one object is recognised only as long as nobody has written since.
    BuiltUponUnrecognised,
    /// The database is not asked for tasks that have come to their end, so that an id or a key can come twice.
    EndedTaskForgotten,
    /// A task that comes to its end stays among the live ones in the database, and comes back with the next broker.
    LiveRecordLeft,
    /// Broker mode answers what was read behind a write that then failed.
    AnsweredBehindFailure,
}

impl Mutant {
    /// Every mistake.
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

    /// Whether this mistake is made now.
    pub fn planted(mutant: Mutant) -> bool {
        PLANTED.get() == Some(mutant)
    }

    /// Makes a mistake on this thread, or none.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }
}

#[cfg(feature = "mutants")]
pub use switch::{plant, planted};

/// Whether this mistake is made now: never.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "nothing of it may be left in what ships"
)]
pub const fn planted(_mutant: Mutant) -> bool {
    false
}
