//! The order of tasks with an ordering key, from their histories.

use std::collections::BTreeMap;

use qo::{Task, TaskId, Timestamp};
use qo_check::{ClientLog, attempt_spans};

/// The tasks of each ordering key started in the order of their submits, and no two of them ran at the same time. One client submits all tasks
/// of a key, one after the other.
pub(super) fn expect_order(tasks: &[Task], log: &ClientLog) {
    let by_id: BTreeMap<TaskId, &Task> = tasks.iter().map(|task| (task.id, task)).collect();
    let mut lines: BTreeMap<String, Vec<&Task>> = BTreeMap::new();
    let acknowledged = log.submissions.iter().flat_map(|one| &one.acknowledged);
    for task in acknowledged.filter_map(|id| by_id.get(id).copied()) {
        if let Some(key) = &task.ordering_key {
            lines.entry(key.to_string()).or_default().push(task);
        }
    }
    assert!(!lines.is_empty(), "no task has an ordering key");
    for (key, line) in lines {
        println!("{} tasks with key {key}", line.len());
        assert!(line.len() > 10, "there was no load on {key}");
        let mut free_at = Timestamp::MIN;
        for task in line {
            for span in attempt_spans(task) {
                let (start, end) = (span.claim.at, span.end.unwrap().at);
                assert!(
                    start >= free_at,
                    "{key}: {} started at {start}, before {free_at}: {:?}",
                    task.id,
                    task.events
                );
                free_at = end;
            }
        }
    }
}
