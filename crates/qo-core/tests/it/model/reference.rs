//! The reference model: a queue in its simplest form.

use qo_core::Status;

/// A task of the model. Ids, leases and times are small numbers.
#[derive(Debug, Clone)]
pub(crate) struct ModelTask {
    pub(crate) id: u64,
    pub(crate) queue: usize,
    pub(crate) task_type: usize,
    pub(crate) priority: u8,
    pub(crate) key: Option<usize>,
    pub(crate) key_until: Option<i64>,
    pub(crate) status: Status,
    pub(crate) before_archive: Status,
    pub(crate) available_at: i64,
    pub(crate) expires_at: Option<i64>,
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
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) tasks: Vec<ModelTask>,
    pub(crate) paused: Vec<usize>,
    submits: usize,
}

impl Model {
    pub(crate) fn task(&mut self, id: u64) -> Option<&mut ModelTask> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    /// Returns the id of the resulting task, and whether it existed before.
    pub(crate) fn submit(&mut self, mut new: ModelTask, now: i64) -> (u64, bool) {
        if self.tasks.iter().any(|task| task.id == new.id) {
            return (new.id, true);
        }
        // A key belongs to the task that was submitted with it last.
        let same_key =
            |task: &&ModelTask| new.key.is_some() && task.key == new.key && task.queue == new.queue;
        let holder = self
            .tasks
            .iter()
            .filter(same_key)
            .max_by_key(|task| task.order);
        if let Some(holder) =
            holder.filter(|holder| holder.key_until.is_none_or(|until| now < until))
        {
            return (holder.id, true);
        }
        self.submits += 1;
        let id = new.id;
        new.order = self.submits;
        new.place = self.submits;
        self.tasks.push(new);
        (id, false)
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

    /// Returns due tasks, the most urgent first, and cancels expired ones on the way.
    pub(crate) fn claim(
        &mut self,
        queue: Option<usize>,
        task_type: Option<usize>,
        leases: &[u64],
        now: i64,
    ) -> Vec<u64> {
        let mut claimed = Vec::new();
        while claimed.len() < leases.len() {
            let heads = self.heads();
            let paused = &self.paused;
            let next = self
                .tasks
                .iter_mut()
                .filter(|task| heads.contains(&task.id))
                .filter(|task| task.status == Status::Pending && task.available_at <= now)
                .filter(|task| {
                    queue.is_none_or(|queue| queue == task.queue) && !paused.contains(&task.queue)
                })
                .filter(|task| task_type.is_none_or(|task_type| task_type == task.task_type))
                .min_by_key(|task| (task.priority, task.available_at, task.order));
            let Some(task) = next else { break };
            if task.expires_at.is_some_and(|at| at <= now) {
                task.end(Status::Cancelled);
                continue;
            }
            task.status = Status::Running;
            task.attempt += 1;
            task.lease = Some(leases[claimed.len()]);
            task.lease_until = now + 60_000;
            claimed.push(task.id);
        }
        claimed
    }

    pub(crate) fn expire(&mut self, now: i64) {
        for task in &mut self.tasks {
            if task.status == Status::Running && task.lease_until < now {
                task.failed_attempt(now);
            } else if task.status == Status::Pending && task.expires_at.is_some_and(|at| at <= now)
            {
                task.end(Status::Cancelled);
            }
        }
    }
}

impl ModelTask {
    pub(crate) fn stops_line(&self) -> bool {
        self.ordering_key.is_some() && self.stops_on_failure && self.status == Status::Failed
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
