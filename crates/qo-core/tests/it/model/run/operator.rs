//! What operators do: operations on tasks, settings, limits and pauses.

use qo_core::document::DocumentChange;
use qo_core::queue_state::{CommandOutcome, Request};
use qo_core::{
    Action, DocumentId, DocumentKind, Json, Limit, PauseNote, PauseTarget, QueueSettings,
    StartLimit, Status,
};

use super::{IDS, ModelRun, QUEUES, TYPES, same};
use crate::model::reference::{LIMITS, ModelLimit, ModelSettings, WINDOW};
use crate::support::{id, op};

impl ModelRun {
    pub(super) fn operate(&mut self, kind: u8, a: u8) -> Result<(), String> {
        let number = u64::from(a) % IDS;
        let now = self.now;
        let task = self.model.task(number);
        let ended = |status| {
            matches!(
                status,
                Status::Completed | Status::Failed | Status::Cancelled
            )
        };
        let (action, accepted) = match (kind / 24) % 4 {
            0 => {
                let accepted = task.is_some_and(|task| match task.status {
                    Status::Pending => {
                        task.end(Status::Cancelled);
                        true
                    }
                    Status::Running => !std::mem::replace(&mut task.cancel_requested, true),
                    _ if task.stops_line() => {
                        task.end(Status::Cancelled);
                        true
                    }
                    _ => false,
                });
                (Action::Cancel { reason: None }, accepted)
            }
            1 | 2 if kind.is_multiple_of(2) => {
                let joins_again = task.as_ref().is_some_and(|task| !task.stops_line());
                let accepted = task.is_some_and(|task| {
                    let accepted = ended(task.status);
                    if accepted {
                        task.set_due(now);
                        task.start_over();
                    }
                    accepted
                });
                if accepted && joins_again {
                    self.model.rejoin(number);
                }
                (Action::Replay, accepted)
            }
            1 => {
                let accepted = task.is_some_and(|task| {
                    let accepted = task.status == Status::Pending
                        && task.available_at > now
                        && task.expires_at.is_none_or(|at| at > now);
                    if accepted {
                        task.available_at = now;
                    }
                    accepted
                });
                (Action::RunNow, accepted)
            }
            2 => {
                let to = usize::from(a >> 4) % 2;
                let accepted = task.is_some_and(|task| {
                    let is_pending = task.status == Status::Pending;
                    let accepted = (task.status == Status::Failed
                        || is_pending && task.overdue(now).is_none())
                        && task.ordering_key.is_none()
                        && task.queue != to;
                    if accepted {
                        task.queue = to;
                        task.set_due(if is_pending { i64::MIN } else { now });
                    }
                    if accepted && !is_pending {
                        task.start_over();
                    }
                    accepted
                });
                let to = QUEUES[to].parse().unwrap();
                (Action::Redrive { to }, accepted)
            }
            3 if kind.is_multiple_of(2) => {
                let accepted = task.is_some_and(|task| {
                    let accepted = task.status == Status::Archived;
                    if accepted {
                        task.status = task.before_archive;
                    }
                    accepted
                });
                (Action::Unarchive, accepted)
            }
            _ => {
                let accepted = task.is_some_and(|task| {
                    let accepted = ended(task.status) && !task.stops_line();
                    if accepted {
                        task.before_archive = std::mem::replace(&mut task.status, Status::Archived);
                    }
                    accepted
                });
                (Action::Archive, accepted)
            }
        };
        self.act(number, action, accepted)
    }

    /// Sets or removes the settings of a queue.
    pub(super) fn set(&mut self, a: u8, b: u8) {
        let queue = usize::from(a) % 2;
        let choice = usize::from(b) / 2;
        let settings = ModelSettings {
            retries: [None, Some(1), Some(0)][choice % 3],
            wait: [None, Some(2_500), None, Some(700)][choice % 4],
            waiting_limit: [None, Some(2), Some(4), None, Some(1)][choice % 5],
            weight: [None, Some(3), None, Some(2), None][choice % 5],
        };
        let mut stored = QueueSettings::NONE;
        stored.max_retries = settings.retries;
        stored.max_wait_ms = settings.wait.map(i64::unsigned_abs);
        stored.max_waiting = settings.waiting_limit.map(|limit| limit as u64);
        stored.group_weights = (settings.weight.into_iter())
            .map(|weight| ("tenant-0".parse().unwrap(), weight))
            .collect();
        if settings.weight != self.model.settings[queue].weight {
            self.model.rounds.retain(|(of, _), _| *of != queue);
        }
        let id = QueueSettings::document_id(&QUEUES[queue].parse().unwrap());
        let expected = self.state.document(&id).map(|document| document.op_id);
        let body = (!stored.is_empty()).then(|| Json::from_value(&stored).unwrap());
        self.ops += 1;
        let op = op(self.ops);
        let change = DocumentChange { expected, body, op };
        self.apply(Request::Document(id, change));
        self.model.settings[queue] = settings;
        assert_eq!(
            *self.state.settings(&QUEUES[queue].parse().unwrap()),
            stored
        );
    }

    /// Creates, changes or removes a limit.
    pub(super) fn set_limit(&mut self, a: u8, b: u8) -> Result<(), String> {
        let number = usize::from(a) % LIMITS;
        let limit_id = DocumentId {
            kind: DocumentKind::Limits,
            name: format!("limit-{number}").parse().unwrap(),
        };
        let body = (!b.is_multiple_of(4)).then(|| {
            let concurrent = (b & 3 != 2).then_some(u32::from(b >> 2) % 3 + 1);
            let starts = (b & 3 != 1).then_some(u32::from(b >> 4) % 3 + 1);
            let known = self.model.limits[number].take().unwrap_or_default();
            self.model.limits[number] = Some(ModelLimit {
                concurrent: concurrent.map(|max| max as usize),
                starts: starts.map(|max| max as usize),
                ..known
            });
            let limit = Limit {
                queue: (number == 0).then(|| QUEUES[1].parse().unwrap()),
                task_type: (number == 1).then(|| TYPES[1].parse().unwrap()),
                limit_key: (number == 2).then(|| "account-0".parse().unwrap()),
                concurrent,
                starts: starts.map(|max| StartLimit {
                    max,
                    window_ms: WINDOW.unsigned_abs(),
                }),
                ..Limit::default()
            };
            limit.to_json().unwrap()
        });
        if body.is_none() {
            self.model.limits[number] = None;
        }
        let change = DocumentChange {
            expected: self.state.document(&limit_id).map(|known| known.op_id),
            body,
            op: op(1_000_000 + self.ops),
        };
        match self.apply(Request::Document(limit_id, change)) {
            (CommandOutcome::DocumentSet { .. }, _) => self.state.check_consistency(),
            (outcome, _) => Err(format!("{outcome:?}")),
        }
    }

    pub(super) fn pause(&mut self, a: u8) {
        let queue = usize::from(a) % 2;
        let name = PauseTarget::Queue(QUEUES[queue].parse().unwrap());
        self.model.paused.retain(|paused| *paused != queue);
        if a % 4 == 3 {
            self.model.paused.push(queue);
            self.apply(Request::Pause(name, PauseNote::default()));
        } else {
            self.apply(Request::Resume(name));
        }
    }

    pub(super) fn purge(&mut self, a: u8) -> Result<(), String> {
        let number = u64::from(a) % IDS;
        let accepted = self
            .model
            .task(number)
            .is_some_and(|task| task.status.is_terminal() && !task.stops_line());
        let (outcome, _) = self.apply(Request::Purge(id(number)));
        if accepted {
            self.model.tasks.retain(|task| task.id != number);
            self.purged.insert(number);
            // The id may be used again, and leases of the old task then belong to another task.
            self.given.retain(|(_, task)| *task != number);
            same(&outcome, &CommandOutcome::Purged { id: id(number) })
        } else {
            matches!(outcome, CommandOutcome::Rejected(_))
                .then_some(())
                .ok_or(format!("{outcome:?}"))
        }
    }
}
