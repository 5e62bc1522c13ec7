//! The record of a line.

use qo_core::extra::Extra;
use qo_core::task::OrderingLine;
use qo_core::{OrderingKey, QueueName, Task, TaskId};
use serde::{Deserialize, Serialize};

use super::super::record_head::RecordHead;

/// The stored record of a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LineRecord {
    queue: QueueName,
    ordering_key: OrderingKey,
    #[serde(flatten)]
    pub(super) head: RecordHead,
    /// The tasks, head first.
    pub(super) tasks: Vec<LinePlace>,
    #[serde(flatten)]
    extra: Extra,
}

/// A task in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinePlace {
    pub(super) id: TaskId,
    /// The turn of the task that is in the line.
    #[serde(default, skip_serializing_if = "is_zero")]
    turn: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl LinePlace {
    pub(super) fn of(task: &Task) -> Self {
        Self {
            id: task.id,
            turn: task.ordering_turn,
        }
    }

    /// Whether the task is still in the line with this turn.
    pub(super) fn is_held_by(self, task: &Task) -> bool {
        self.turn >= task.ordering_turn && !task.is_settled()
    }
}

impl LineRecord {
    pub(super) fn new(line: &OrderingLine) -> Self {
        Self {
            queue: line.queue.clone(),
            ordering_key: line.key.clone(),
            head: RecordHead::default(),
            tasks: Vec::new(),
            extra: Extra::default(),
        }
    }

    pub(super) fn contains(&self, task: &Task) -> bool {
        self.tasks.contains(&LinePlace::of(task))
    }

    /// Adds a task at the end, and drops its earlier turns.
    pub(super) fn join(&mut self, task: &Task) {
        self.tasks.retain(|place| place.id != task.id);
        self.tasks.push(LinePlace::of(task));
    }

    /// Removes a task that has left. Returns whether it was in the line.
    pub(super) fn leave(&mut self, left: LinePlace) -> bool {
        let before = self.tasks.len();
        self.tasks
            .retain(|place| place.id != left.id || place.turn > left.turn);
        self.tasks.len() < before
    }
}

#[cfg(test)]
mod tests {
    use qo_core::task::{OnFailure, OrderingRule};
    use qo_core::transition::submit;
    use qo_core::{Action, Command, Json, OpId, Payload, Timestamp};
    use qo_engine::api::SubmitRequest;

    use super::*;

    fn task(number: u128) -> Task {
        let request = SubmitRequest {
            ordering: Some(OrderingRule {
                key: "k".parse().unwrap(),
                on_failure: OnFailure::Continue,
            }),
            ..SubmitRequest::new("noop".parse().unwrap(), Json::null())
        };
        let input = Payload::Inline(Json::null());
        let id = TaskId::from_random(number);
        submit(
            request.into_submission(id, input, Timestamp::MIN),
            OpId::from_random(number),
            Timestamp::MIN,
        )
        .unwrap()
    }

    fn apply(mut task: Task, action: Action) -> Task {
        let op = OpId::from_random(99);
        task.apply(Command { op, action }, Timestamp::MIN).unwrap();
        task
    }

    #[test]
    fn a_late_removal_does_not_concern_a_later_turn() {
        let first = task(1);
        let mut record = LineRecord::new(&first.ordering_line().unwrap());
        record.join(&first);
        record.join(&task(2));
        let cancelled = apply(first.clone(), Action::Cancel { reason: None });
        let replayed = apply(cancelled.clone(), Action::Replay);
        assert!(!LinePlace::of(&first).is_held_by(&replayed));
        record.join(&replayed);
        assert_eq!(record.tasks.len(), 2, "it has one place");
        assert!(!record.leave(LinePlace::of(&cancelled)));
        assert_eq!(record.tasks.last(), Some(&LinePlace::of(&replayed)));
        assert!(record.leave(LinePlace::of(&replayed)));
    }

    #[test]
    fn fields_of_later_versions_survive() {
        let mut record = LineRecord::new(&task(1).ordering_line().unwrap());
        record.join(&task(1));
        let mut json = serde_json::to_value(&record).unwrap();
        json["later"] = 7.into();
        let again: LineRecord = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&again).unwrap(), json);
    }
}
