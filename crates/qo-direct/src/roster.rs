//! The roster: one object that names the live workers and what they serve, so that a worker knows all others from one GET.
//!
//! Without it, each of a thousand workers would list the workers' records repeatedly and read each of them once, which is a million reads.
//! [`super::peers`] decides who writes it. It is a hint and can be rebuilt from the records at any time: one that is lost, damaged or
//! old costs lost races, never a task. Older versions of qo list the records and ignore it.

use std::collections::BTreeMap;

use qo_core::{OpId, QueueName, Shard, TaskType, Timestamp, WorkerId};
use qo_engine::api::WorkerInfo;
use serde::{Deserialize, Serialize};

use super::assignment::{Rank, ShardRanks};

/// What a worker serves. Most workers of a fleet have the same profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Profile {
    /// All queues if empty.
    #[serde(default)]
    queues: Vec<QueueName>,
    /// All types if empty.
    #[serde(default)]
    types: Vec<TaskType>,
    /// All shards if empty.
    #[serde(default)]
    shards: Vec<Shard>,
    #[serde(default)]
    slots: u32,
}

impl Profile {
    pub(super) fn of(worker: &WorkerInfo) -> Self {
        Self {
            queues: worker.queues.clone(),
            types: worker.types.clone(),
            shards: worker.shards.clone(),
            slots: worker.slots,
        }
    }

    fn serves(&self, queue: &QueueName, task_type: &TaskType) -> bool {
        (self.queues.is_empty() || self.queues.contains(queue))
            && (self.types.is_empty() || self.types.contains(task_type))
    }

    fn takes_from(&self, shard: Shard) -> bool {
        self.shards.is_empty() || self.shards.contains(&shard)
    }
}

/// The stored record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Roster {
    op_id: Option<OpId>,
    /// When the workers were last listed.
    checked_at: Option<Timestamp>,
    profiles: Vec<Profile>,
    /// The live workers, each with the number of its profile, if its record could be read.
    workers: BTreeMap<WorkerId, Option<usize>>,
}

impl Roster {
    pub(super) fn new(checked_at: Timestamp) -> Self {
        Self {
            checked_at: Some(checked_at),
            ..Self::default()
        }
    }

    /// Reads a record. One that cannot be parsed is as good as an old one without workers.
    pub(super) fn parse(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &WorkerId> {
        self.workers.keys()
    }

    /// How many milliseconds ago the workers were listed; as good as never if that lies in the future.
    pub(super) fn age_ms(&self, now: Timestamp) -> u64 {
        let checked_at = self.checked_at.filter(|at| *at <= now.plus_millis(60_000));
        checked_at.map_or(u64::MAX, |at| {
            u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX)
        })
    }

    pub(super) fn profile_of(&self, worker: &WorkerId) -> Option<&Profile> {
        let number = self.workers.get(worker).copied().flatten()?;
        self.profiles.get(number)
    }

    /// Adds a worker or changes its profile.
    pub(super) fn set(&mut self, worker: WorkerId, profile: Option<Profile>) {
        let number = profile.map(|profile| {
            let known = self.profiles.iter().position(|known| *known == profile);
            known.unwrap_or_else(|| {
                self.profiles.push(profile);
                self.profiles.len() - 1
            })
        });
        self.workers.insert(worker, number);
    }

    pub(super) fn remove(&mut self, worker: &WorkerId) -> bool {
        self.workers.remove(worker).is_some()
    }

    /// The same workers, as written by another operation.
    pub(super) fn written_by(mut self, op: OpId) -> Self {
        self.op_id = Some(op);
        self
    }

    /// The position of the first worker for which a condition holds.
    pub(super) fn rank_of(&self, is_meant: impl Fn(&WorkerId) -> bool) -> Option<Rank> {
        let rank = self.workers.keys().position(is_meant)?;
        Some(Rank {
            rank: rank as u64,
            count: self.workers.len() as u64,
        })
    }

    /// The ranks of a worker among those of a queue and type; `None` if it is not one of them.
    pub(super) fn ranks(
        &self,
        queue: &QueueName,
        task_type: &TaskType,
        worker: &WorkerId,
    ) -> Option<ShardRanks> {
        let serving: Vec<bool> = self
            .profiles
            .iter()
            .map(|profile| profile.serves(queue, task_type))
            .collect();
        let serves =
            |number: &Option<usize>| number.filter(|number| serving.get(*number) == Some(&true));
        self.workers.get(worker).and_then(serves)?;
        let taking: Vec<Vec<bool>> = self
            .profiles
            .iter()
            .map(|profile| {
                Shard::all()
                    .map(|shard| profile.takes_from(shard))
                    .collect()
            })
            .collect();
        let mut ranks = vec![None; usize::from(Shard::COUNT)];
        let mut counts = vec![0; usize::from(Shard::COUNT)];
        let (mut slots, mut count) = (0, 0);
        for (peer, number) in &self.workers {
            let Some(number) = serves(number) else {
                continue;
            };
            count += 1;
            slots += self
                .profiles
                .get(number)
                .map_or(0, |profile| u64::from(profile.slots));
            let Some(taking) = taking.get(number) else {
                continue;
            };
            for ((takes, rank), count) in taking.iter().zip(&mut ranks).zip(&mut counts) {
                if *takes {
                    if peer == worker {
                        *rank = Some(*count);
                    }
                    *count += 1;
                }
            }
        }
        let by_shard = ranks.into_iter().zip(counts);
        let by_shard = by_shard.map(|(rank, count)| rank.map(|rank| Rank { rank, count }));
        Some(ShardRanks::new(by_shard.collect(), slots / count.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str, types: &[&str]) -> WorkerInfo {
        let mut info = WorkerInfo::new(name.parse().unwrap(), Timestamp::from_millis(0));
        info.types = types.iter().map(|name| name.parse().unwrap()).collect();
        info.slots = 4;
        info
    }

    fn roster(workers: &[WorkerInfo]) -> Roster {
        let mut roster = Roster::new(Timestamp::from_millis(1_000));
        for worker in workers {
            roster.set(worker.worker_id.clone(), Some(Profile::of(worker)));
        }
        roster
    }

    fn rank(roster: &Roster, task_type: &str, name: &str) -> Option<(u64, u64)> {
        let queue = QueueName::default();
        let ranks = roster.ranks(&queue, &task_type.parse().unwrap(), &name.parse().unwrap())?;
        ranks.common().map(|rank| (rank.rank, rank.count))
    }

    #[test]
    fn workers_are_ranked_among_those_that_serve_a_type() {
        let mut roster = roster(&[
            worker("a", &["mail"]),
            worker("b", &["mail", "image"]),
            worker("c", &["mail"]),
        ]);
        assert_eq!(roster.profiles.len(), 2);
        assert_eq!(rank(&roster, "mail", "c"), Some((2, 3)));
        assert_eq!(rank(&roster, "image", "b"), Some((0, 1)));
        assert_eq!(rank(&roster, "image", "c"), None);
        assert_eq!(rank(&roster, "mail", "d"), None);
        // A worker whose record could not be read is alive, but gets no tasks.
        roster.set("aa".parse().unwrap(), None);
        assert_eq!(rank(&roster, "mail", "c"), Some((2, 3)));
        assert_eq!(roster.len(), 4);
        assert!(roster.remove(&"a".parse().unwrap()));
        assert_eq!(rank(&roster, "mail", "c"), Some((1, 2)));
    }

    #[test]
    fn workers_of_other_shards_have_no_common_rank() {
        let mut half = worker("a", &["mail"]);
        half.shards.truncate(8);
        let roster = roster(&[half, worker("b", &["mail"])]);
        assert_eq!(rank(&roster, "mail", "b"), None);
        let queue = QueueName::default();
        let ranks = roster.ranks(&queue, &"mail".parse().unwrap(), &"b".parse().unwrap());
        assert!(ranks.is_some());
    }

    #[test]
    fn the_record_round_trips_and_a_damaged_one_is_old() {
        let roster = roster(&[worker("a", &["mail"]), worker("b", &[])]);
        let body = serde_json::to_vec(&roster).unwrap();
        assert_eq!(Roster::parse(&body), roster);
        assert_eq!(roster.age_ms(Timestamp::from_millis(3_500)), 2_500);
        let damaged = Roster::parse(b"{\"workers\":{\"a\":7");
        assert!(damaged.is_empty());
        assert_eq!(damaged.age_ms(Timestamp::from_millis(0)), u64::MAX);
        // A number without a profile is as good as an unread record.
        let text = br#"{"op_id":null,"checked_at":null,"profiles":[],"workers":{"a":7}}"#;
        assert_eq!(Roster::parse(text).profile_of(&"a".parse().unwrap()), None);
        assert_eq!(rank(&Roster::parse(text), "mail", "a"), None);
    }
}
