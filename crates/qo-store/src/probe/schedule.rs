//! How many writers race, and how often, within the time limit.
//!
//! Rounds go from few writers to many and start over, so that the largest race comes early and every further pass
//! adds evidence at each size. A round starts only if it is expected to end in time. The estimate is the longest
//! round of its size, or twice that of the smaller sizes. Where writers wait for each other, a small round can be
//! fast by luck and the next one slow. A round is therefore cut off at the deadline, and its missing responses count
//! as unclear. The first round of each contest always runs to its end, because a report without any race is
//! worthless.

use std::collections::BTreeSet;
use std::time::Duration;

use object_store::path::Path;

use super::race::{Counter, RoundResult, create_round};
use super::report::{Check, CheckName, Figures};
use super::session::Session;
use super::{ProbeError, ProbeOptions};

/// The numbers of concurrent writers.
const SIZES: [u32; 5] = [2, 4, 8, 16, 32];

/// After this many consecutive rounds without a winner, a size is abandoned.
const UNDECIDED_MAX: u32 = 3;

/// The rounds of one kind, creates or swaps.
#[derive(Default)]
struct Contest {
    decided: u32,
    undecided: u32,
    winners_max: u32,
    writers_max: u32,
    broken: Option<String>,
    /// This size and larger ones are abandoned.
    ceiling: Option<usize>,
    costs: [Option<Duration>; SIZES.len()],
    detail: String,
}

impl Contest {
    /// The time limit of a round of this size, or `None` if it must not start `left` before the deadline.
    fn limit(&self, size: usize, left: Duration, budget: Duration) -> Option<Duration> {
        if self.broken.is_some() || self.ceiling.is_some_and(|ceiling| size >= ceiling) {
            return None;
        }
        let estimate = match self.costs[size] {
            Some(known) => known,
            None if size == 0 => return Some(budget),
            // If the next smaller size never ran, this one is out of reach.
            None => {
                self.costs[size - 1]?;
                self.costs[..size].iter().flatten().max()?.saturating_mul(2)
            }
        };
        (estimate <= left && !left.is_zero()).then_some(left)
    }

    /// Records a round. Returns whether to repeat it immediately.
    fn note(&mut self, size: usize, took: Duration, result: RoundResult, streak: u32) -> bool {
        let cost = &mut self.costs[size];
        *cost = Some(cost.map_or(took, |known| known.max(took)));
        match result {
            RoundResult::Decided => {
                self.decided += 1;
                self.winners_max = self.winners_max.max(1);
                self.writers_max = self.writers_max.max(SIZES[size]);
                false
            }
            RoundResult::Broken { winners, reason } => {
                self.decided += 1;
                self.winners_max = self.winners_max.max(winners);
                self.writers_max = self.writers_max.max(SIZES[size]);
                self.broken = Some(reason);
                false
            }
            RoundResult::Undecided(detail) => {
                self.undecided += 1;
                self.detail = detail;
                if streak + 1 >= UNDECIDED_MAX {
                    self.ceiling = Some(size);
                }
                self.ceiling.is_none()
            }
        }
    }

    fn check(&self, name: CheckName) -> Check {
        match &self.broken {
            Some(reason) => Check::failed(name, reason.clone()),
            None if self.decided == 0 => {
                let detail = &self.detail;
                Check::failed(name, format!("no race had a winner: {detail}"))
            }
            None => {
                let (decided, writers) = (self.decided, self.writers_max);
                let reason =
                    format!("each of {decided} races of up to {writers} writers had one winner");
                Check::passed(name, reason)
            }
        }
    }
}

/// The results of all races.
pub(super) struct Races {
    pub(super) checks: Vec<Check>,
    pub(super) figures: Figures,
}

/// Races creates and swaps until all rounds are done or `deadline` has passed.
pub(super) async fn races(
    session: &Session<'_>,
    options: &ProbeOptions,
    deadline: Duration,
) -> Result<Races, ProbeError> {
    let mut creates = Contest::default();
    let mut swaps = Contest::default();
    let mut counter = Counter::start(session).await?;
    let mut made = BTreeSet::new();
    let mut checks = Vec::new();
    let mut round = 0;
    let left = || deadline.saturating_sub(session.elapsed());
    let sizes = || {
        SIZES
            .iter()
            .enumerate()
            .filter(|(_, size)| **size <= options.writers_max.max(2))
    };

    for _ in 0..options.rounds_max.max(1) {
        let before = round;
        for (size, writers) in sizes() {
            for streak in 0..UNDECIDED_MAX {
                let Some(limit) = creates.limit(size, left(), options.budget) else {
                    break;
                };
                round += 1;
                let started = session.elapsed();
                let (key, result) = create_round(session, *writers, round, limit).await?;
                if result == RoundResult::Decided {
                    made.insert(key);
                }
                let took = session.elapsed().saturating_sub(started);
                if !creates.note(size, took, result, streak) {
                    break;
                }
            }
            for streak in 0..UNDECIDED_MAX {
                let Some(limit) = swaps.limit(size, left(), options.budget) else {
                    break;
                };
                round += 1;
                let started = session.elapsed();
                let result = counter.swap_round(session, *writers, round, limit).await?;
                let took = session.elapsed().saturating_sub(started);
                if !swaps.note(size, took, result, streak) {
                    break;
                }
            }
        }
        if round == before {
            break;
        }
        if session.typical() <= left() {
            checks.extend(missing_from_list(session, &made).await?);
        }
    }

    checks.push(creates.check(CheckName::CreateRace));
    checks.push(swaps.check(CheckName::SwapRace));
    if swaps.decided > 0 {
        checks.push(match counter.verify(session).await? {
            None => Check::passed(
                CheckName::SwapCounter,
                "the stored counter equals the number of successful swaps",
            ),
            Some(reason) => Check::failed(CheckName::SwapCounter, reason),
        });
    }
    let figures = Figures {
        writers_max: creates.writers_max.max(swaps.writers_max),
        create_rounds: creates.decided,
        swap_rounds: swaps.decided,
        undecided_rounds: creates.undecided + swaps.undecided,
        winners_max: creates.winners_max.max(swaps.winners_max),
        ..Figures::default()
    };
    Ok(Races { checks, figures })
}

/// A failed check if a list omits one of the created keys.
async fn missing_from_list(
    session: &Session<'_>,
    made: &BTreeSet<Path>,
) -> Result<Option<Check>, ProbeError> {
    let listed = session.list(&session.directory).await?;
    let shown: BTreeSet<_> = listed.into_iter().map(|meta| meta.location).collect();
    let is_complete = made.iter().all(|key| shown.contains(key));
    Ok((!is_complete).then(|| {
        let reason = "a list omits an object that was just created";
        Check::failed(CheckName::ListIsCurrent, reason)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_round_always_runs_and_larger_ones_only_in_time() {
        let mut contest = Contest::default();
        let limit = |contest: &Contest, size, left| contest.limit(size, left, 10 * SECOND);
        assert_eq!(limit(&contest, 0, Duration::ZERO), Some(10 * SECOND));
        let unmade = limit(&contest, 1, 100 * SECOND);
        assert_eq!(unmade, None, "the smaller size must come first");
        contest.note(0, SECOND, RoundResult::Decided, 0);
        assert_eq!(limit(&contest, 0, SECOND / 2), None);
        assert_eq!(limit(&contest, 1, 2 * SECOND), Some(2 * SECOND));
        assert_eq!(limit(&contest, 1, SECOND), None);
        contest.note(1, SECOND / 10, RoundResult::Decided, 0);
        let lucky = limit(&contest, 2, SECOND);
        assert_eq!(
            lucky, None,
            "a larger size takes at least as long as a smaller one"
        );
    }

    #[test]
    fn a_size_that_never_decides_is_abandoned() {
        let mut contest = Contest::default();
        contest.note(0, SECOND, RoundResult::Decided, 0);
        let undecided = || RoundResult::Undecided("503".to_owned());
        assert!(contest.note(1, SECOND, undecided(), 0));
        assert!(contest.note(1, SECOND, undecided(), 1));
        assert!(!contest.note(1, SECOND, undecided(), 2));
        assert_eq!(contest.limit(1, 100 * SECOND, SECOND), None);
        assert!(contest.limit(0, 100 * SECOND, SECOND).is_some());
        let check = contest.check(CheckName::SwapRace);
        assert_eq!(check.outcome, super::super::CheckOutcome::Passed);
        assert!(check.reason.contains("up to 2 writers"), "{}", check.reason);
    }
}
