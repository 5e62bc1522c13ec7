//! The content of the signal: what has changed, per queue and type.
//!
//! Each write increments the counter and stores it with every topic that changed. A reader that has seen counter 7 lists the topics with a
//! higher number. Beside it is the number of entries that were ever added to the topic, and the number before the last write, so that a few
//! new tasks wake only a few workers.
//! The number of topics is bounded: the topic whose change is the oldest is dropped, and `floor` keeps its counter. A reader that has not
//! seen the floor does not know which topics changed, and lists all of its own. The same holds if the `line` differs: the record was
//! recreated, because it was lost or because an older version of qo wrote it.
//!
//! A write is a compare-and-swap. An unconditional one could overwrite a change that no reader has seen yet.

use std::collections::BTreeMap;

use qo_core::{DocumentKind, OpId, QueueName, TaskType};
use serde::{Deserialize, Serialize};

/// The maximum number of topics in the record.
const TOPICS_MAX: usize = 128;

/// The topic of scheduled tasks.
pub(super) const LATER: &str = "later";
/// The topic of the settings of queues, and of paused ones.
pub(super) const QUEUES: &str = "queues";

/// The topic of the documents of a kind. Schedules change with every tick; limits, webhooks and settings of queues,
/// which every process follows, hardly ever.
pub(super) fn settings_topic(kind: DocumentKind) -> &'static str {
    match kind {
        DocumentKind::Limits => "limits",
        DocumentKind::Webhooks => "webhooks",
        DocumentKind::Queues => QUEUES,
        _ => "settings",
    }
}

/// The topic of the due tasks of a queue and type. Names contain no slash, so it differs from all other topics.
pub(super) fn ready_topic(queue: &QueueName, task_type: &TaskType) -> String {
    format!("{queue}/{task_type}")
}

/// A topic in the record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TopicState {
    /// The counter of the last write that changed it.
    pub(super) counter: u64,
    /// How many entries were ever added to it.
    pub(super) entries: u64,
    /// How many there were before the last write. Older versions of qo do not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<u64>,
}

/// The stored record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SignalRecord {
    op_id: Option<OpId>,
    /// Identifies an unbroken sequence of writes.
    #[serde(default)]
    pub(super) line: Option<OpId>,
    #[serde(default)]
    pub(super) counter: u64,
    #[serde(default)]
    pub(super) floor: u64,
    #[serde(default)]
    pub(super) topics: BTreeMap<String, TopicState>,
}

/// What a reader learns from a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// Everything may have changed.
    All,
    /// These topics changed.
    Topics(Vec<(String, TopicState)>),
}

impl SignalRecord {
    /// Reads a record. One without topics is that of an older version, after which everything may have changed.
    pub(super) fn parse(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// The record after a change of these topics, each with the number of new entries.
    pub(super) fn with_changes(&self, changed: &BTreeMap<String, u64>, op: OpId) -> Self {
        let mut next = self.clone();
        next.op_id = Some(op);
        next.line.get_or_insert(op);
        next.counter = next.counter.saturating_add(1);
        for (topic, entries) in changed {
            let state = next.topics.entry(topic.clone()).or_default();
            state.counter = next.counter;
            state.before = Some(state.entries);
            state.entries = state.entries.saturating_add(*entries);
        }
        while next.topics.len() > TOPICS_MAX {
            let oldest = next.topics.iter().min_by_key(|(_, state)| state.counter);
            let Some((topic, counter)) =
                oldest.map(|(topic, state)| (topic.clone(), state.counter))
            else {
                break;
            };
            next.floor = next.floor.max(counter);
            next.topics.remove(&topic);
        }
        next
    }

    /// What has changed since an earlier record.
    pub(super) fn changes_since(&self, earlier: &Self) -> Changes {
        if self.line.is_none() || self.line != earlier.line || self.floor > earlier.counter {
            return Changes::All;
        }
        let changed = self
            .topics
            .iter()
            .filter(|(_, state)| state.counter > earlier.counter);
        let topics = changed.map(|(topic, state)| (topic.clone(), *state));
        Changes::Topics(topics.collect())
    }

    /// How many entries were ever added to a topic; zero if the record does not name it.
    pub(super) fn entries_of(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, |state| state.entries)
    }

    /// The counter of a topic's last change; zero if the record does not name it.
    pub(super) fn counter_of(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, |state| state.counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(record: &SignalRecord, topics: &[&str], op: u128) -> SignalRecord {
        let changed = topics
            .iter()
            .map(|topic| ((*topic).to_owned(), 1))
            .collect();
        record.with_changes(&changed, OpId::from_random(op))
    }

    fn topics(changes: Changes) -> Vec<String> {
        match changes {
            Changes::All => vec!["all".to_owned()],
            Changes::Topics(topics) => topics.into_iter().map(|(topic, _)| topic).collect(),
        }
    }

    #[test]
    fn a_reader_learns_the_topics_that_changed_since_it_last_read() {
        let first = change(&SignalRecord::default(), &["q/a"], 1);
        let second = change(&first, &["q/b"], 2);
        let third = change(&second, &["q/a", LATER], 3);
        assert_eq!(topics(third.changes_since(&first)), [LATER, "q/a", "q/b"]);
        assert_eq!(topics(third.changes_since(&second)), [LATER, "q/a"]);
        assert_eq!(topics(third.changes_since(&third)), [""; 0]);
        let Changes::Topics(changed) = third.changes_since(&second) else {
            panic!("all changed");
        };
        let state = TopicState {
            counter: 3,
            entries: 2,
            before: Some(1),
        };
        assert_eq!(changed[1], ("q/a".to_owned(), state));
        assert_eq!((third.entries_of("q/a"), third.entries_of("q/c")), (2, 0));
    }

    #[test]
    fn a_reader_that_cannot_know_what_changed_lists_everything() {
        let first = change(&SignalRecord::default(), &["q/a"], 1);
        assert_eq!(first.changes_since(&SignalRecord::default()), Changes::All);
        let old_version =
            SignalRecord::parse(br#"{"op_id":"550e8400-e29b-41d4-a716-446655440000"}"#);
        assert_eq!(old_version.changes_since(&first), Changes::All);
        let anew = change(&old_version, &["q/a"], 2);
        assert_eq!(anew.changes_since(&first), Changes::All);
        assert_eq!(anew.changes_since(&old_version), Changes::All);
        assert_eq!(SignalRecord::parse(b"{"), SignalRecord::default());
    }

    #[test]
    fn dropped_topics_raise_the_floor() {
        let mut record = change(&SignalRecord::default(), &["q/first"], 1);
        let seen = record.clone();
        for number in 0..TOPICS_MAX as u128 {
            let before = record.clone();
            record = change(&record, &[&format!("q/{number}")], number + 2);
            assert_ne!(record.changes_since(&before), Changes::All);
        }
        assert_eq!(record.topics.len(), TOPICS_MAX);
        assert!(!record.topics.contains_key("q/first"));
        // The dropped change was seen, but a later change of the same topic would not be told apart.
        assert_eq!(record.floor, 1);
        assert_ne!(record.changes_since(&seen), Changes::All);
        assert_eq!(
            record.changes_since(&SignalRecord { counter: 0, ..seen }),
            Changes::All
        );
    }

    #[test]
    fn topics_of_an_older_version_are_read() {
        let text = br#"{"op_id":null,"counter":7,"topics":{"q/a":{"counter":7,"entries":9}}}"#;
        let record = SignalRecord::parse(text);
        assert_eq!(record.topics["q/a"].before, None);
        let next = change(&record, &["q/a"], 1);
        assert_eq!(next.topics["q/a"].before, Some(9));
    }

    #[test]
    fn the_record_round_trips() {
        let record = change(&SignalRecord::default(), &["q/a", QUEUES], 7);
        let body = serde_json::to_vec(&record).unwrap();
        assert_eq!(SignalRecord::parse(&body), record);
    }
}
