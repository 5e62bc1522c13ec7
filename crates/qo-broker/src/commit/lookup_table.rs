//! Which messages wait for which lookups, and which lookups are outdated.
//!
//! The loop continues while a lookup runs. What the lookup has found may therefore be outdated when its result arrives: meanwhile a task
//! may have been submitted with the same id or key, finished, and left the state. A message may also need something that the state held when
//! the lookup began: the task of another submit in the same call, or the holder of a key. So every change of a task marks the lookups whose
//! messages need its id or its key, and the messages of a marked lookup start again.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::task::ScopedKey;
use qo_core::{Task, TaskId};

use crate::journal::Lookup;
use crate::message::QueuedMessage;

/// The lookups that run.
#[derive(Debug, Default)]
pub(super) struct LookupTable {
    running: BTreeMap<u64, RunningLookup>,
    /// The running lookups that are not outdated.
    current: BTreeMap<Lookup, u64>,
    names: BTreeSet<(LookupName, u64)>,
    last_number: u64,
}

#[derive(Debug)]
struct RunningLookup {
    lookup: Lookup,
    messages: Vec<QueuedMessage>,
    is_outdated: bool,
}

/// What the messages of a lookup need.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum LookupName {
    Id(TaskId),
    Key(ScopedKey),
}

impl LookupTable {
    /// Lets a message wait. Returns the number of a lookup to start, if none is running for the same.
    pub(super) fn add(&mut self, lookup: Lookup, message: QueuedMessage) -> Option<u64> {
        if let Some(number) = self.current.get(&lookup)
            && let Some(running) = self.running.get_mut(number)
        {
            running.messages.push(message);
            return None;
        }
        self.last_number += 1;
        let number = self.last_number;
        self.names.extend(names(&lookup).map(|name| (name, number)));
        self.current.insert(lookup.clone(), number);
        let running = RunningLookup {
            lookup,
            messages: vec![message],
            is_outdated: false,
        };
        self.running.insert(number, running);
        Some(number)
    }

    /// Marks the lookups that are about a task that was changed or removed.
    pub(super) fn task_changed(&mut self, task: &Task) {
        if self.running.is_empty() {
            return;
        }
        let id = Some(LookupName::Id(task.id));
        let key = task.scoped_key().map(LookupName::Key);
        for name in id.into_iter().chain(key) {
            let range = (name.clone(), 0)..=(name, u64::MAX);
            for (_, number) in self.names.range(range) {
                if let Some(running) = self.running.get_mut(number) {
                    running.is_outdated = true;
                    // Messages that arrive from now on need a new lookup.
                    self.current.remove(&running.lookup);
                }
            }
        }
    }

    /// Ends a lookup. Returns the messages that waited for it, and whether its result is outdated.
    pub(super) fn finish(&mut self, number: u64) -> (Vec<QueuedMessage>, bool) {
        let Some(running) = self.running.remove(&number) else {
            return (Vec::new(), true);
        };
        for name in names(&running.lookup) {
            self.names.remove(&(name, number));
        }
        if !running.is_outdated {
            self.current.remove(&running.lookup);
        }
        (running.messages, running.is_outdated)
    }

    /// The messages of all lookups.
    pub(super) fn into_messages(self) -> impl Iterator<Item = QueuedMessage> {
        self.running
            .into_values()
            .flat_map(|running| running.messages)
    }
}

fn names(lookup: &Lookup) -> impl Iterator<Item = LookupName> + use<> {
    let Lookup { ids, keys, held } = lookup.clone();
    let ids = ids.into_iter().chain(held.ids).map(LookupName::Id);
    let keys = keys.into_iter().chain(held.keys).map(LookupName::Key);
    ids.chain(keys)
}

#[cfg(test)]
mod tests {
    use qo_core::transition::{Idempotency, submit};
    use qo_core::{Json, OpId, Payload, Submission, Timestamp};

    use super::*;
    use crate::journal::HeldNames;
    use crate::message::{Call, Message};

    fn id(number: u128) -> TaskId {
        TaskId::from_random(number)
    }

    fn message() -> QueuedMessage {
        Message::Get(Call::without_caller(id(1))).into()
    }

    fn task_with_key(number: u128) -> Task {
        let input = Payload::Inline(Json::null());
        let mut submission = Submission::new(id(number), "noop".parse().unwrap(), input);
        submission.idempotency = Some(Idempotency {
            key: "key".parse().unwrap(),
            scope: qo_core::task::IdempotencyScope::Global,
            until: None,
        });
        let now = Timestamp::from_millis(1_000);
        submit(submission, OpId::from_random(number), now).unwrap()
    }

    #[test]
    fn a_key_that_is_taken_during_a_lookup_outdates_it() {
        let mut table = LookupTable::default();
        let other = task_with_key(7);
        let by_key = Lookup {
            ids: vec![id(1)],
            keys: other.scoped_key().into_iter().collect(),
            ..Lookup::default()
        };
        let by_id = Lookup {
            ids: vec![id(2)],
            ..Lookup::default()
        };
        let first = table.add(by_key.clone(), message()).unwrap();
        let unaffected = table.add(by_id.clone(), message()).unwrap();
        assert_eq!(table.add(by_key.clone(), message()), None, "it is shared");
        // Another task takes the key, finishes, and leaves the state.
        table.task_changed(&other);
        let second = table.add(by_key, message()).unwrap();
        let (messages, is_outdated) = table.finish(first);
        assert_eq!((messages.len(), is_outdated), (2, true));
        let (messages, is_outdated) = table.finish(second);
        assert_eq!((messages.len(), is_outdated), (1, false));
        let (messages, is_outdated) = table.finish(unaffected);
        assert_eq!((messages.len(), is_outdated), (1, false));
        assert!(table.names.is_empty() && table.current.is_empty());
    }

    #[test]
    fn a_task_that_is_changed_during_a_lookup_outdates_it() {
        let mut table = LookupTable::default();
        let task = task_with_key(7);
        let lookup = Lookup {
            ids: vec![task.id],
            ..Lookup::default()
        };
        let number = table.add(lookup, message()).unwrap();
        table.task_changed(&task);
        assert!(table.finish(number).1);
        assert_eq!(table.into_messages().count(), 0);
    }

    #[test]
    fn what_the_state_held_outdates_a_lookup_when_it_changes() {
        let task = task_with_key(7);
        let by_id = HeldNames {
            ids: vec![task.id],
            ..HeldNames::default()
        };
        let by_key = HeldNames {
            keys: task.scoped_key().into_iter().collect(),
            ..HeldNames::default()
        };
        for held in [by_id, by_key] {
            let mut table = LookupTable::default();
            let lookup = Lookup {
                ids: vec![id(1)],
                held,
                ..Lookup::default()
            };
            let number = table.add(lookup, message()).unwrap();
            table.task_changed(&task);
            assert!(table.finish(number).1);
            assert!(table.names.is_empty() && table.current.is_empty());
        }
    }
}
