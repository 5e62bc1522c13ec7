//! The versions of tasks in rows. Slate and clusters store tasks in the same rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use qo_core::task::decode_compact;
use qo_core::{Json, Task, TaskId};

/// The first bytes of the keys: live tasks, their inputs, and finished tasks.
const LIVE: u8 = b'l';
const INPUT: u8 = b'i';
const ENDED: u8 = b'd';

/// A row about a task.
#[derive(Debug)]
pub(crate) struct TaskRow {
    /// Its group.
    group: u64,
    kind: u8,
    of: Of,
    /// None for a deletion.
    value: Option<Bytes>,
}

/// The task of a row. A live task is stored under its position in the order of submits.
#[derive(Debug, Clone, Copy)]
enum Of {
    Task(TaskId),
    Sequence(u64),
}

impl TaskRow {
    /// The row that a group writes or deletes, if it is about a task.
    pub(crate) fn new(group: u64, key: &[u8], value: Option<Bytes>) -> Option<Self> {
        let (kind, name) = key.split_first()?;
        let of = match *kind {
            LIVE | INPUT => Of::Sequence(u64::from_be_bytes(name.try_into().ok()?)),
            ENDED => Of::Task(TaskId::from_bytes(name.try_into().ok()?)),
            _ => return None,
        };
        Some(Self {
            group,
            kind: *kind,
            of,
            value,
        })
    }

    /// Whether it holds the record of a task.
    pub(crate) fn is_record(&self) -> bool {
        self.kind != INPUT && self.value.is_some()
    }

    /// The record in it, if it has one.
    fn record(&self) -> Option<Task> {
        let value = self.value.as_ref().filter(|_| self.kind != INPUT)?;
        decode_compact(value).ok()
    }
}

/// The changes of one group to one task.
#[derive(Debug, Default)]
struct GroupChange {
    input: Option<Bytes>,
    record: Option<Task>,
}

/// What the rows so far say beside the newest records.
#[derive(Debug, Default)]
pub(crate) struct TaskRows {
    sequences: BTreeMap<u64, TaskId>,
    inputs: BTreeMap<TaskId, Bytes>,
}

impl TaskRows {
    /// Visits the tasks that the next groups change, group by group, each with its record after the group. A task without one is deleted.
    pub(crate) fn follow(&mut self, rows: &[TaskRow], mut visit: impl FnMut(TaskId, Option<Task>)) {
        let mut groups: BTreeMap<(u64, TaskId), GroupChange> = BTreeMap::new();
        // Only the record of a position names its task, and it may come after other rows of the position.
        let decoded: Vec<_> = rows.iter().map(|row| self.record_of(row)).collect();
        for (row, record) in rows.iter().zip(decoded) {
            let id = match row.of {
                Of::Task(id) => Some(id),
                Of::Sequence(sequence) => self.sequences.get(&sequence).copied(),
            };
            let Some(id) = id else {
                continue;
            };
            let outcome = groups.entry((row.group, id)).or_default();
            if row.kind == INPUT {
                outcome.input.clone_from(&row.value);
            }
            // A task moves from the live to the finished rows or back. Without any record it is deleted.
            outcome.record = outcome.record.take().or(record);
        }
        for ((_, id), outcome) in groups {
            if let Some(input) = outcome.input {
                self.inputs.insert(id, input);
            }
            let task = outcome.record;
            let task = task.map(|task| with_input(task, self.inputs.get(&id)));
            visit(id, task);
        }
    }

    fn record_of(&mut self, row: &TaskRow) -> Option<Task> {
        let task = row.record()?;
        if let Of::Sequence(sequence) = row.of {
            self.sequences.insert(sequence, task.id);
        }
        Some(task)
    }
}

/// A task with its input, which is stored apart from its record.
fn with_input(task: Task, input: Option<&Bytes>) -> Task {
    if task.names_input() {
        return task;
    }
    let text = input.and_then(|input| String::from_utf8(input.to_vec()).ok());
    match text.map(Json::parse) {
        Some(Ok(json)) => task.with_input(json),
        _ => task,
    }
}
