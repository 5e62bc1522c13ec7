//! The reference model: a queue in its simplest form.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::Status;
use qo_core::task::{KeyHold, OnConflict};

/// A task of the model. Ids, leases and times are small numbers.
#[derive(Debug, Clone)]
pub(crate) struct ModelTask {
    pub(crate) id: u64,
    pub(crate) queue: usize,
    pub(crate) task_type: usize,
    pub(crate) priority: u8,
    pub(crate) key: Option<usize>,
    pub(crate) key_until: Option<i64>,
    pub(crate) hold: KeyHold,
    pub(crate) input: u8,
    /// The queue of its submit, in which its key holds.
    pub(crate) home: usize,
    pub(crate) status: Status,
    pub(crate) before_archive: Status,
    pub(crate) available_at: i64,
    pub(crate) expires_at: Option<i64>,
    pub(crate) max_wait: Option<i64>,
    pub(crate) order: usize,
    pub(crate) lease: Option<u64>,
    pub(crate) lease_until: i64,
    pub(crate) attempt: u32,
    pub(crate) retries: u32,
    pub(crate) max_retries: u32,
    pub(crate) cancel_requested: bool,
    /// The number of events that explain one more attempt each.
    pub(crate) explained: u32,
    pub(crate) ordering_key: Option<usize>,
    pub(crate) stops_on_failure: bool,
    /// When it joined its line, counted with the submits.
    pub(crate) place: usize,
    pub(crate) limit_key: Option<usize>,
    pub(crate) group: Option<usize>,
}

/// The number of limits: of a queue, of a type and of a limit key.
pub(crate) const LIMITS: usize = 3;
/// The window of starts, and the steps in which they are counted.
pub(crate) const WINDOW: i64 = 6_000;
const STEP: i64 = WINDOW / 60;

/// A limit of the model.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelLimit {
    pub(crate) concurrent: Option<usize>,
    pub(crate) starts: Option<usize>,
    /// The ends of the steps in which attempts started.
    pub(crate) started: Vec<i64>,
}

impl ModelLimit {
    fn applies_to(number: usize, task: &ModelTask) -> bool {
        match number {
            0 => task.queue == 1,
            1 => task.task_type == 1,
            _ => task.limit_key == Some(0),
        }
    }
}

/// The settings of a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ModelSettings {
    pub(crate) retries: Option<u32>,
    pub(crate) wait: Option<i64>,
    pub(crate) waiting_limit: Option<usize>,
    /// The turns per round of the first group.
    pub(crate) weight: Option<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) settings: [ModelSettings; 2],
    pub(crate) tasks: Vec<ModelTask>,
    pub(crate) paused: Vec<usize>,
    pub(crate) limits: [Option<ModelLimit>; LIMITS],
    /// The turns that groups have used in the round of a queue and priority in which tasks with a group wait.
    pub(crate) rounds: BTreeMap<(usize, u8), BTreeMap<Option<usize>, u32>>,
    submits: usize,
}

impl Model {
    pub(crate) fn task(&mut self, id: u64) -> Option<&mut ModelTask> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    /// Returns the id of the resulting task, and whether it existed before; `None` if the queue is full.
    pub(crate) fn submit(
        &mut self,
        mut new: ModelTask,
        on_conflict: OnConflict,
        now: i64,
    ) -> Option<(u64, bool)> {
        if self.tasks.iter().any(|task| task.id == new.id) {
            return Some((new.id, true));
        }
        // A key belongs to the task that was submitted with it last.
        let same_key =
            |task: &&ModelTask| new.key.is_some() && task.key == new.key && task.home == new.home;
        let last = self.tasks.iter().filter(same_key);
        let last = last.max_by_key(|task| task.order).map(|task| task.id);
        if let Some(holder) = last.and_then(|id| self.task(id))
            && holder.holds_key(now)
        {
            holder.amend(&new, on_conflict, now);
            return Some((holder.id, true));
        }
        let waits = |task: &&ModelTask| task.queue == new.queue && task.status == Status::Pending;
        let waiting = self.tasks.iter().filter(waits).count();
        let limit = self.settings[new.queue].waiting_limit;
        if limit.is_some_and(|limit| waiting >= limit) {
            return None;
        }
        self.submits += 1;
        let id = new.id;
        new.order = self.submits;
        new.place = self.submits;
        self.tasks.push(new);
        Some((id, false))
    }

    /// Lets a replayed task join its line again, behind all others.
    pub(crate) fn rejoin(&mut self, id: u64) {
        self.submits += 1;
        let place = self.submits;
        if let Some(task) = self.task(id) {
            task.place = place;
        }
    }

    /// The heads of all lines: the tasks that no other with their ordering key is before.
    fn heads(&self) -> Vec<u64> {
        let is_before = |other: &ModelTask, task: &ModelTask| {
            other.ordering_key.is_some()
                && other.ordering_key == task.ordering_key
                && other.queue == task.queue
                && other.place < task.place
                && other.is_in_line()
        };
        let heads = self.tasks.iter().filter(|task| {
            let mut others = self.tasks.iter();
            !others.any(|other| is_before(other, task))
        });
        heads.map(|task| task.id).collect()
    }

    /// The limits that have no room.
    fn full_limits(&self, now: i64) -> Vec<usize> {
        let is_full = |number: &usize| {
            let Some(limit) = &self.limits[*number] else {
                return false;
            };
            let running = self.tasks.iter().filter(|task| {
                task.status == Status::Running && ModelLimit::applies_to(*number, task)
            });
            let running = running.count();
            let started = limit.started.iter().filter(|end| **end + WINDOW > now);
            let started = started.count();
            limit.concurrent.is_some_and(|max| running >= max)
                || limit.starts.is_some_and(|max| started >= max)
        };
        (0..LIMITS).filter(is_full).collect()
    }

    /// Returns due tasks, the most urgent first, and cancels expired ones on the way.
    pub(crate) fn claim(
        &mut self,
        queue: Option<usize>,
        task_type: Option<usize>,
        leases: &[u64],
        now: i64,
    ) -> Vec<u64> {
        let mut claimed = Vec::new();
        // An expired task may make way for the first task with a group. Turns count from then on.
        let mut classes = BTreeSet::new();
        while claimed.len() < leases.len() {
            classes.extend(self.classes_with_groups());
            let heads = self.heads();
            let full = self.full_limits(now);
            let paused = &self.paused;
            let candidates: Vec<ModelTask> = self
                .tasks
                .iter()
                .filter(|task| heads.contains(&task.id))
                .filter(|task| {
                    !full
                        .iter()
                        .any(|limit| ModelLimit::applies_to(*limit, task))
                })
                .filter(|task| task.status == Status::Pending && task.available_at <= now)
                .filter(|task| {
                    queue.is_none_or(|queue| queue == task.queue) && !paused.contains(&task.queue)
                })
                .filter(|task| task_type.is_none_or(|task_type| task_type == task.task_type))
                .cloned()
                .collect();
            let Some(next) = self.choose(&candidates) else {
                break;
            };
            let Some(task) = self.tasks.iter_mut().find(|task| task.id == next) else {
                break;
            };
            if let Some(end) = task.overdue(now) {
                task.end(end);
                continue;
            }
            task.status = Status::Running;
            task.attempt += 1;
            task.lease = Some(leases[claimed.len()]);
            task.lease_until = now + 60_000;
            claimed.push(task.id);
            let (class, group) = ((task.queue, task.priority), task.group);
            for (number, limit) in self.limits.iter_mut().enumerate() {
                if let Some(limit) = limit
                    && limit.starts.is_some()
                    && ModelLimit::applies_to(number, task)
                {
                    limit.started.push((now.div_euclid(STEP) + 1) * STEP);
                }
            }
            if classes.contains(&class) {
                self.take_turn(class, group);
            }
        }
        self.forget_rounds();
        claimed
    }

    /// The task to serve: of the highest priority, in the queue with the oldest task, of a group whose turn it is, the oldest.
    fn choose(&self, candidates: &[ModelTask]) -> Option<u64> {
        let age = |task: &&ModelTask| (task.available_at, task.order);
        let priority = candidates.iter().map(|task| task.priority).min()?;
        let urgent = || candidates.iter().filter(|task| task.priority == priority);
        let queue = urgent().min_by_key(age)?.queue;
        let of_queue = || urgent().filter(|task| task.queue == queue);
        let has_turn = |task: &&ModelTask| !self.rests((queue, priority), task.group);
        let next = of_queue().filter(has_turn).min_by_key(age);
        Some(next.or_else(|| of_queue().min_by_key(age))?.id)
    }

    fn rests(&self, class: (usize, u8), group: Option<usize>) -> bool {
        let used = self.rounds.get(&class).and_then(|round| round.get(&group));
        let weight = match group {
            Some(0) => self.settings[class.0].weight.unwrap_or(1),
            _ => 1,
        };
        used.is_some_and(|used| *used >= weight)
    }

    fn take_turn(&mut self, class: (usize, u8), group: Option<usize>) {
        if self.rests(class, group) {
            self.rounds.remove(&class);
        }
        let round = self.rounds.entry(class).or_default();
        *round.entry(group).or_default() += 1;
    }

    /// Forgets the rounds of classes in which no task with a group waits after a command.
    pub(crate) fn forget_rounds(&mut self) {
        let classes = self.classes_with_groups();
        self.rounds.retain(|class, _| classes.contains(class));
    }

    /// The queues and priorities in which a task with a group waits.
    fn classes_with_groups(&self) -> BTreeSet<(usize, u8)> {
        let heads = self.heads();
        let waiting = self.tasks.iter().filter(|task| {
            let waits = task.status == Status::Pending && heads.contains(&task.id);
            waits && task.group.is_some()
        });
        waiting.map(|task| (task.queue, task.priority)).collect()
    }

    pub(crate) fn expire(&mut self, now: i64) {
        for task in &mut self.tasks {
            if task.status == Status::Running && task.lease_until < now {
                task.failed_attempt(now);
            } else if task.status == Status::Pending
                && let Some(end) = task.overdue(now)
            {
                task.end(end);
            }
        }
    }
}

impl ModelTask {
    /// Makes a finished task pending, as if it had not run.
    pub(crate) fn start_over(&mut self) {
        self.status = Status::Pending;
        self.expires_at = None;
        self.max_wait = None;
        self.retries = 0;
        self.explained += 1;
    }

    /// Whether the task, which was submitted with its key last, still holds it.
    fn holds_key(&self, now: i64) -> bool {
        let holds = match self.hold {
            KeyHold::Kept => true,
            KeyHold::Unfinished => !self.status.is_terminal() && !self.is_overdue(now),
            KeyHold::Waiting => self.has_not_started() && !self.is_overdue(now),
        };
        holds && self.key_until.is_none_or(|until| now < until)
    }

    fn has_not_started(&self) -> bool {
        self.status == Status::Pending && self.attempt == 0
    }

    fn is_overdue(&self, now: i64) -> bool {
        self.status == Status::Pending && self.overdue(now).is_some()
    }

    /// Changes the task that holds a key as a submit with that key asks for.
    fn amend(&mut self, new: &Self, on_conflict: OnConflict, now: i64) {
        if !self.has_not_started() || self.home != self.queue {
            return;
        }
        if on_conflict.replaces() {
            self.input = new.input;
        }
        if on_conflict.postpones() && !self.is_overdue(now) {
            self.available_at = self.available_at.max(new.available_at);
        }
    }

    pub(crate) fn stops_line(&self) -> bool {
        self.ordering_key.is_some() && self.stops_on_failure && self.status == Status::Failed
    }

    /// How a pending task ends that was not claimed in time: whichever of the two ends comes first decides.
    pub(crate) fn overdue(&self, now: i64) -> Option<Status> {
        let expired = self.expires_at.map(|at| (at, Status::Cancelled));
        let waited = (self.max_wait).map(|wait| (self.available_at + wait, Status::Failed));
        let ends = expired.into_iter().chain(waited);
        let (at, status) = ends.min_by_key(|(at, _)| *at)?;
        (at <= now).then_some(status)
    }

    fn is_in_line(&self) -> bool {
        !self.status.is_terminal() || self.stops_line()
    }

    pub(crate) fn holds(&self, lease: u64) -> bool {
        self.status == Status::Running && self.lease == Some(lease)
    }

    pub(crate) fn end(&mut self, status: Status) {
        self.status = status;
        self.lease = None;
        self.cancel_requested = false;
    }

    pub(crate) fn back(&mut self, at: i64) {
        self.explained += 1;
        if self.cancel_requested {
            self.end(Status::Cancelled);
        } else {
            self.status = Status::Pending;
            self.set_due(at);
            self.lease = None;
        }
    }

    /// A due time is never used twice.
    pub(crate) fn set_due(&mut self, at: i64) {
        self.available_at = at.max(self.available_at + 1);
    }

    pub(crate) fn failed_attempt(&mut self, now: i64) {
        if self.retries >= self.max_retries {
            self.end(Status::Failed);
        } else {
            let wait = [1_000, 2_000, 4_000, 8_000][self.retries as usize];
            self.retries += 1;
            self.back(now + wait);
        }
    }
}
