//! The limits of a queue, and which of them apply to a task.

use std::collections::BTreeMap;

use super::Limit;
use crate::names::{DocumentName, LimitKey, QueueName, TaskType};
use crate::task::Task;

/// All limits, found by what they apply to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LimitRules {
    limits: BTreeMap<DocumentName, Limit>,
    /// Each limit is under one of its selectors, so that the cost of a search does not depend on the number of limits.
    by_key: BTreeMap<LimitKey, Vec<DocumentName>>,
    by_type: BTreeMap<TaskType, Vec<DocumentName>>,
    by_queue: BTreeMap<QueueName, Vec<DocumentName>>,
}

impl FromIterator<(DocumentName, Limit)> for LimitRules {
    fn from_iter<I: IntoIterator<Item = (DocumentName, Limit)>>(limits: I) -> Self {
        let mut rules = Self::default();
        for (name, limit) in limits {
            if let Some(key) = &limit.limit_key {
                rules
                    .by_key
                    .entry(key.clone())
                    .or_default()
                    .push(name.clone());
            } else if let Some(task_type) = &limit.task_type {
                let names = rules.by_type.entry(task_type.clone()).or_default();
                names.push(name.clone());
            } else if let Some(queue) = &limit.queue {
                rules
                    .by_queue
                    .entry(queue.clone())
                    .or_default()
                    .push(name.clone());
            }
            rules.limits.insert(name, limit);
        }
        rules
    }
}

impl LimitRules {
    /// Whether there are no limits.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// A limit by its name.
    pub fn get(&self, name: &DocumentName) -> Option<&Limit> {
        self.limits.get(name)
    }

    /// All limits, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&DocumentName, &Limit)> {
        self.limits.iter()
    }

    /// The names of the limits that apply to the tasks of a queue and a type with this limit key, in order.
    pub fn applying(
        &self,
        queue: &QueueName,
        task_type: &TaskType,
        limit_key: Option<&LimitKey>,
    ) -> Vec<DocumentName> {
        if self.limits.is_empty() {
            return Vec::new();
        }
        let by_key = limit_key.and_then(|key| self.by_key.get(key));
        let found = [
            by_key,
            self.by_type.get(task_type),
            self.by_queue.get(queue),
        ];
        let mut names: Vec<DocumentName> = (found.into_iter().flatten().flatten())
            .filter(|name| {
                let limit = self.limits.get(*name);
                limit.is_some_and(|limit| limit.applies_to(queue, task_type, limit_key))
            })
            .cloned()
            .collect();
        names.sort();
        names
    }

    /// The names of the limits that apply to a task, in order.
    pub fn applying_to(&self, task: &Task) -> Vec<DocumentName> {
        self.applying(&task.queue, &task.task_type, task.limit_key.as_ref())
    }

    /// Whether each limit of either applies to the same tasks in the other.
    pub(crate) fn has_selectors_of(&self, other: &Self) -> bool {
        self.limits.len() == other.limits.len()
            && self.limits.iter().all(|(name, limit)| {
                other
                    .get(name)
                    .is_some_and(|other| limit.has_selector_of(other))
            })
    }
}
