//! How the processes that share the object take turns.
//!
//! A process that writes again right after it has won always wins: it knows the newest tag, while every other process has to read the object
//! first, and the tag that it reads is outdated when its own write arrives. So a process that has won leaves the store to others for as long
//! as a read and a write take:
//!
//! - after every win, if others have written lately;
//! - after several wins in a row otherwise, because a process that never wins is not visible to others. This costs little: callers that
//!   arrive meanwhile share the next write, and a process that has nothing to write pauses anyway.
//!
//! A process that has lost tries again after a pause that becomes shorter with each loss, so those that wait longest go first.
//!
//! All times follow from the duration of this process's own writes. Nothing here is needed for correctness.

use std::time::Duration;

/// How many writes' time a rest takes: another process reads and writes in this time.
const REST_WRITES: u32 = 2;
/// The number of wins in a row before a rest, while nobody else has written lately.
const WINS_ALONE: u32 = 5;
/// For how many writes' time, and for how long at least, another process counts as active.
const ACTIVE_WRITES: u32 = 50;
const ACTIVE_MIN: Duration = Duration::from_secs(1);
/// The longest rest and pause.
const REST_MAX: Duration = Duration::from_secs(1);
/// How many losses it takes until a process tries again without a pause.
const LOSSES_WITHOUT_PAUSE: u32 = 4;
/// How much a new duration changes the average.
const SMOOTHING: u32 = 4;

/// Decides when this process writes. All times are the runtime's monotonic time.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The average duration of a write.
    write_took: Duration,
    /// The number of wins without a rest between them.
    wins: u32,
    won_at: Duration,
    others_wrote_at: Option<Duration>,
    has_rested: bool,
}

impl Turns {
    /// Records a write of this process that succeeded.
    pub(super) fn won(&mut self, began: Duration, ended: Duration) {
        let took = ended.saturating_sub(began);
        self.write_took = if self.write_took.is_zero() {
            took
        } else {
            (self.write_took * (SMOOTHING - 1) + took) / SMOOTHING
        };
        let is_rested = began.saturating_sub(self.won_at) >= self.rest_time();
        self.wins = if is_rested { 1 } else { self.wins + 1 };
        self.won_at = ended;
    }

    /// Records a lost race.
    pub(super) fn lost(&mut self, at: Duration) {
        self.wins = 0;
        self.others_wrote(at);
    }

    /// Records that another process has written.
    pub(super) fn others_wrote(&mut self, at: Duration) {
        self.others_wrote_at = Some(at);
    }

    /// How long to leave the store to others before the next write.
    pub(super) fn rest(&mut self, at: Duration) -> Duration {
        let active = ACTIVE_MIN.max(self.write_took * ACTIVE_WRITES);
        let is_shared = self
            .others_wrote_at
            .is_some_and(|wrote| at.saturating_sub(wrote) < active);
        let wins_max = if is_shared { 1 } else { WINS_ALONE };
        if self.wins < wins_max {
            return Duration::ZERO;
        }
        let rest = (self.won_at + self.rest_time()).saturating_sub(at);
        self.has_rested = is_shared;
        self.wins = 0;
        rest
    }

    /// How long to wait after so many losses. `random` is between 0 and 1.
    pub(super) fn pause(&self, lost: u32, random: f64) -> Duration {
        let left = LOSSES_WITHOUT_PAUSE.saturating_sub(lost);
        let longest = self.write_took * left / 2;
        longest.min(REST_MAX).mul_f64(random)
    }

    /// Whether this process has rested while others were active, so that it should read before it writes.
    pub(super) fn has_rested(&self) -> bool {
        self.has_rested
    }

    /// Returns the same, and resets it.
    pub(super) fn take_rested(&mut self) -> bool {
        std::mem::take(&mut self.has_rested)
    }

    fn rest_time(&self) -> Duration {
        (self.write_took * REST_WRITES).min(REST_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Duration = Duration::from_millis(30);

    /// Writes as soon as it may. Returns the rest before the write.
    fn write(turns: &mut Turns, at: &mut Duration) -> Duration {
        let rest = turns.rest(*at);
        *at += rest;
        turns.won(*at, *at + WRITE);
        *at += WRITE;
        rest
    }

    #[test]
    fn a_process_alone_rests_rarely() {
        let mut turns = Turns::default();
        let mut at = Duration::from_secs(9);
        let rests = (0..100).filter(|_| !write(&mut turns, &mut at).is_zero());
        let rests = rests.count();
        assert!((15..=20).contains(&rests), "{rests}");
        // One that has nothing to write for a while has rested.
        for _ in 0..100 {
            at += 3 * WRITE;
            assert_eq!(write(&mut turns, &mut at), Duration::ZERO);
        }
    }

    #[test]
    fn a_process_rests_after_each_win_while_others_are_active() {
        let mut turns = Turns::default();
        let mut at = Duration::from_secs(9);
        write(&mut turns, &mut at);
        turns.lost(at);
        assert_eq!(write(&mut turns, &mut at), Duration::ZERO);
        assert_eq!(write(&mut turns, &mut at), 2 * WRITE);
        assert!(turns.has_rested());
        at += Duration::from_mins(1);
        assert_eq!(write(&mut turns, &mut at), Duration::ZERO);
    }

    #[test]
    fn who_has_lost_often_does_not_wait() {
        let mut turns = Turns::default();
        turns.won(WRITE, 2 * WRITE);
        assert!(turns.pause(1, 1.0) > turns.pause(2, 1.0));
        assert_eq!(turns.pause(4, 1.0), Duration::ZERO);
        assert_eq!(turns.pause(60, 1.0), Duration::ZERO);
    }
}
