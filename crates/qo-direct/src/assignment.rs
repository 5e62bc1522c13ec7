//! Which tasks of the index a worker takes, so that the workers of a fleet do not race for the same ones.
//!
//! Workers compute all of this from the ranks of the live workers, the ids of the tasks and the counters of the signal, which are the same for
//! everybody. If two workers still disagree, one of them loses a race.
//! - **Ownership**: each task is assigned by its id to one worker, its owner.
//! - **Stealing**: a task that its owner leaves may be taken by one other worker after the steal time, by two more after twice that time, by
//!   four more after three times, and so on ([`Rank::steal_delays`]). These workers are different for each task, so the tasks of a dead worker
//!   are spread over all others.
//! - **Batches**: a batch of new tasks wakes as many workers as are needed to run it, in rotation, and each of these takes its
//!   [`TaskShare`] of all tasks in the index ([`assign`]). Any of them may be busy or gone, so the next workers in the rotation are backups and
//!   list later: one after the steal time, and, unless the fleet is large, two more after twice that time. In a small fleet, every other worker is a
//!   backup. The rest do not list.
//! - **Starting points**: in an index of many pages, a large fleet begins at several [starting points](starting_point).

use qo_core::TaskId;
use qo_core::keys::{IndexEntry, Key};

/// How many entries of a page should be assigned to each worker. A fleet that is too large for this begins at several starting points.
const ENTRIES_PER_WORKER: usize = 32;
/// After how many steal times the last backups of a batch list, and in a large fleet. Each of them costs a LIST, if no newer tasks come before.
/// If all of them are busy, the task waits for the first LIST of an idle worker without a signal. In a large fleet there is one every few seconds.
const BACKUP_DELAYS_MAX: u64 = 2;
const BACKUP_DELAYS_OF_MANY: u64 = 1;
/// The maximum number of tasks that are assigned to a worker at once.
const SHARE_MAX: u64 = 16;
/// A batch wakes at least this many workers, or one for each task.
const WOKEN_MIN: u64 = 4;

/// The rank of a worker among the live workers of a queue and type, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rank {
    pub(super) rank: u64,
    pub(super) count: u64,
}

/// Up to this many workers stand in for each other, whichever of them are gone.
const FEW: u64 = 4;
/// From this many workers on, some of them are always about to list, and each LIST of all of them costs much.
const MANY: u64 = 40;

impl Rank {
    /// Whether there are so few workers that each of them stands in for all others: two of them may well be gone at the same time.
    pub(super) fn is_of_few(self) -> bool {
        self.count <= FEW
    }

    /// Whether the fleet is so large that its workers save on LISTs.
    pub(super) fn is_of_many(self) -> bool {
        self.count >= MANY
    }

    /// The worker's position in the order in which workers may take a task: 0 for its owner, 1 for the first to steal it.
    fn distance(self, id: TaskId) -> u64 {
        let count = self.count.max(1);
        let owner = remainder(id.as_uuid().as_u128(), count);
        let behind = (self.rank % count + count - owner) % count;
        if behind == 0 {
            return 0;
        }
        let others = count - 1;
        1 + (behind - 1 + hash(id) % others) % others
    }

    /// How many steal times a task has to wait before the worker may take it; none for its owner.
    pub(super) fn steal_delays(self, id: TaskId) -> u64 {
        let distance = self.distance(id);
        distance.checked_ilog2().map_or(0, |log| u64::from(log) + 1)
    }
}

/// The remainder of a division by a number of workers.
fn remainder(bits: u128, count: u64) -> u64 {
    u64::try_from(bits % u128::from(count.max(1))).unwrap_or(0)
}

/// A number that depends on all bits of an id, and not on the ones that decide about its owner alone.
fn hash(id: TaskId) -> u64 {
    let bits = id.as_uuid().as_u128();
    let folded = remainder(bits >> 64, u64::MAX) ^ remainder(bits, u64::MAX);
    folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
}

/// The ranks of a worker for each shard that it claims from.
pub(super) struct ShardRanks {
    by_shard: Vec<Option<Rank>>,
    /// How many tasks a worker runs at once, on average.
    pub(super) slots: u64,
}

impl ShardRanks {
    pub(super) fn new(by_shard: Vec<Option<Rank>>, slots: u64) -> Self {
        Self { by_shard, slots }
    }

    /// The rank, if it is the same for all shards.
    pub(super) fn common(&self) -> Option<Rank> {
        let first = self.by_shard.first().copied().flatten()?;
        let is_common = self.by_shard.iter().all(|rank| *rank == Some(first));
        is_common.then_some(first)
    }

    /// The rank among the workers that claim from a task's shard.
    pub(super) fn of(&self, id: TaskId) -> Option<Rank> {
        let rank = self.by_shard.get(usize::from(id.shard().index())).copied();
        rank.flatten()
    }
}

/// A worker's share of a batch: the tasks whose hash has the remainder `number` modulo `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskShare {
    number: u64,
    count: u64,
}

impl TaskShare {
    /// All tasks.
    pub(super) const ALL: Self = Self {
        number: 0,
        count: 1,
    };

    pub(super) fn includes(self, id: TaskId) -> bool {
        hash(id) % self.count.max(1) == self.number
    }
}

/// What a worker does about new tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assignment {
    /// There are enough for everybody: each worker takes the tasks that it owns.
    Everybody,
    /// The worker takes a share of them.
    Share(TaskShare),
    /// The worker lists after this many steal times and takes what is left.
    Backup { delays: u64 },
    /// The tasks are for other workers.
    Others,
}

/// The numbers of the entries that were added to a topic since a worker last listed it: from `listed` to `total`. Those from `batch` on
/// were announced last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Added {
    pub(super) listed: u64,
    pub(super) batch: Option<u64>,
    pub(super) total: u64,
}

/// Assigns new tasks to the workers. Each worker runs `slots` tasks at once.
pub(super) fn assign(rank: Rank, slots: u64, added: Added) -> Assignment {
    let Added {
        listed,
        batch,
        total,
    } = added;
    if total <= listed {
        // The count of the topic has started again.
        return Assignment::Everybody;
    }
    let batch = batch.unwrap_or(listed).clamp(listed, total);
    let later = assign_batch(rank, slots, batch, total);
    let earlier = assign_batch(rank, slots, listed, batch);
    match (later, earlier) {
        (Assignment::Share(_) | Assignment::Everybody, _) => later,
        (_, Assignment::Share(_) | Assignment::Everybody) => earlier,
        // A worker with a share of the later batch sees what is left of the earlier one.
        (Assignment::Backup { .. } | Assignment::Others, _) => later,
    }
}

fn assign_batch(rank: Rank, slots: u64, from: u64, to: u64) -> Assignment {
    let tasks = to.saturating_sub(from);
    let share = (tasks / WOKEN_MIN).clamp(1, slots.clamp(1, SHARE_MAX));
    let shares = tasks.div_ceil(share);
    if tasks == 0 {
        return Assignment::Others;
    }
    if shares >= rank.count {
        return Assignment::Everybody;
    }
    // Successive batches begin with successive workers.
    let first = (from / share) % rank.count;
    let number = (rank.rank % rank.count + rank.count - first) % rank.count;
    if number < shares {
        Assignment::Share(TaskShare {
            number,
            count: shares,
        })
    } else {
        backup(rank, number - shares)
    }
}

/// What a worker without a share does: `behind` counts the workers between those with a share and it.
fn backup(rank: Rank, behind: u64) -> Assignment {
    let delays = u64::from((behind + 1).ilog2()) + 1;
    let delays_max = if rank.is_of_many() {
        BACKUP_DELAYS_OF_MANY
    } else {
        BACKUP_DELAYS_MAX
    };
    if rank.is_of_few() {
        Assignment::Backup { delays: 1 }
    } else if delays <= delays_max {
        Assignment::Backup { delays }
    } else {
        Assignment::Others
    }
}

/// Where in a long index a worker begins, and its rank among the workers there.
pub(super) struct StartingPoint {
    pub(super) number: u64,
    pub(super) rank: Rank,
}

/// Where a worker starts in an index of several pages; `None` if one page has enough for all workers.
pub(super) fn starting_point(rank: Rank, page_size: usize) -> Option<StartingPoint> {
    let per_point = u64::try_from((page_size / ENTRIES_PER_WORKER).max(1)).unwrap_or(u64::MAX);
    if rank.count <= per_point {
        return None;
    }
    let number = rank.rank / per_point;
    let count = per_point.min(rank.count - number * per_point);
    Some(StartingPoint {
        number,
        rank: Rank {
            rank: rank.rank % per_point,
            count,
        },
    })
}

/// The key after which the page of a starting point begins, estimated from the times in the first page. If tasks were submitted at another
/// rate, the pages overlap or leave gaps; the next LIST from a nearer starting point closes the gaps.
pub(super) fn start_key(first_page: &[IndexEntry], point: u64) -> Option<String> {
    let (first, last) = (first_page.first()?, first_page.last()?);
    if point == 0 || first.priority != last.priority {
        return None;
    }
    let span_ms = last.place().as_millis() - first.place().as_millis();
    let distance_ms = u64::try_from(span_ms).ok()?.saturating_mul(point);
    let start = IndexEntry {
        available_at: first.place().plus_millis(distance_ms),
        id: TaskId::from_bytes([0; 16]),
        limit_key: None,
        rank: None,
        ..first.clone()
    };
    Some(Key::Ready(start).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: u64) -> impl Iterator<Item = TaskId> {
        (1..=count).map(|number| {
            let bits =
                u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 32 | u128::from(number);
            TaskId::from_bytes(bits.to_be_bytes())
        })
    }

    #[test]
    fn each_task_has_one_owner_and_an_order_of_thieves() {
        for count in [1, 2, 3, 10, 31] {
            for id in ids(200) {
                let rank = |rank| Rank { rank, count };
                let mut distances: Vec<u64> = (0..count).map(|n| rank(n).distance(id)).collect();
                distances.sort_unstable();
                assert_eq!(distances, (0..count).collect::<Vec<_>>());
                let early = (0..count).filter(|n| rank(*n).steal_delays(id) == 1);
                assert_eq!(early.count() as u64, 1.min(count - 1));
            }
        }
        // Thieves are twice as many after each steal time.
        let delays: Vec<u64> = (0..1_000)
            .map(|rank| Rank { rank, count: 1_000 }.steal_delays(ids(1).next().unwrap()))
            .collect();
        let waiting = |delay| delays.iter().filter(|found| **found == delay).count();
        assert_eq!(
            (waiting(0), waiting(1), waiting(2), waiting(5)),
            (1, 1, 2, 16)
        );
        assert_eq!(delays.iter().max(), Some(&10));
    }

    #[test]
    fn the_tasks_of_one_worker_have_different_thieves() {
        let count = 50;
        let gone = Rank { rank: 7, count };
        let thieves: std::collections::BTreeSet<u64> = ids(2_000)
            .filter(|id| gone.distance(*id) == 0)
            .flat_map(|id| {
                (0..count).filter(move |rank| Rank { rank: *rank, count }.distance(id) == 1)
            })
            .collect();
        assert!(thieves.len() > 15, "{thieves:?}");
    }

    /// The shares of all workers.
    fn shares(count: u64, slots: u64, added: Added) -> Vec<TaskShare> {
        (0..count)
            .map(|rank| assign(Rank { rank, count }, slots, added))
            .filter_map(|assignment| match assignment {
                Assignment::Share(share) => Some(share),
                _ => None,
            })
            .collect()
    }

    fn added(listed: u64, batch: Option<u64>, total: u64) -> Added {
        Added {
            listed,
            batch,
            total,
        }
    }

    #[test]
    fn a_batch_is_assigned_completely_to_as_few_workers_as_needed() {
        for (tasks, woken) in [(1, 1), (3, 3), (7, 7), (40, 10), (400, 100), (1_000, 250)] {
            for from in [0, 999, 123_456] {
                let shares = shares(1_000, 4, added(from, None, from + tasks));
                assert_eq!(shares.len(), woken, "{tasks} from {from}");
                for id in ids(300) {
                    let takers = shares.iter().filter(|share| share.includes(id)).count();
                    assert_eq!(takers, 1);
                }
            }
        }
        let (rank, count) = (3, 1_000);
        let too_many = added(0, None, 4_000);
        let counted_again = added(70, None, 5);
        for added in [too_many, counted_again] {
            assert_eq!(
                assign(Rank { rank, count }, 4, added),
                Assignment::Everybody
            );
        }
    }

    #[test]
    fn successive_batches_wake_different_workers() {
        let count = 1_000;
        let mut woken = vec![0; 1_000];
        for batch in 0..8 {
            for rank in 0..count {
                let from = batch * 1_000;
                let assigned = assign(Rank { rank, count }, 4, added(from, None, from + 1_000));
                woken[usize::try_from(rank).unwrap()] +=
                    u32::from(matches!(assigned, Assignment::Share(_)));
            }
        }
        assert!(woken.iter().all(|times| *times == 2), "{woken:?}");
    }

    #[test]
    fn a_worker_that_missed_a_batch_gets_the_same_share_of_it() {
        for rank in 0..100 {
            let rank = Rank { rank, count: 100 };
            let first = assign(rank, 4, added(100, Some(100), 140));
            let second = assign(rank, 4, added(140, Some(140), 180));
            let both = assign(rank, 4, added(100, Some(140), 180));
            let expected = if matches!(second, Assignment::Share(_)) {
                second
            } else if matches!(first, Assignment::Share(_)) {
                first
            } else {
                second
            };
            assert_eq!(both, expected);
        }
    }

    #[test]
    fn the_next_workers_are_backups_for_an_assigned_task() {
        for (count, second) in [(39, vec![27, 28]), (100, vec![])] {
            let assignments: Vec<Assignment> = (0..count)
                .map(|rank| assign(Rank { rank, count }, 4, added(25, Some(25), 26)))
                .collect();
            let ranks_of = |expected| {
                let assigned = assignments.iter().enumerate();
                let assigned = assigned.filter(|(_, assigned)| **assigned == expected);
                assigned.map(|(rank, _)| rank).collect::<Vec<_>>()
            };
            assert_eq!(ranks_of(Assignment::Share(TaskShare::ALL)), [25]);
            assert_eq!(ranks_of(Assignment::Backup { delays: 1 }), [26]);
            assert_eq!(ranks_of(Assignment::Backup { delays: 2 }), second);
            let others = assignments.len() - 2 - second.len();
            assert_eq!(ranks_of(Assignment::Others).len(), others);
        }
    }

    #[test]
    fn in_a_small_fleet_everybody_is_a_backup() {
        let assignments: Vec<Assignment> = (0..4)
            .map(|rank| assign(Rank { rank, count: 4 }, 1, added(5, Some(5), 6)))
            .collect();
        let backup = Assignment::Backup { delays: 1 };
        let share = Assignment::Share(TaskShare::ALL);
        assert_eq!(assignments, [backup, share, backup, backup]);
    }
}
