//! The queues and types that have due tasks, from one LIST with a delimiter.
//!
//! The answer is used until the fallback interval ends. The signal names the topics with new entries, so a queue or a type that appears in
//! the meantime is added without another LIST.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use qo_core::QueueName;
use qo_core::keys::READY_PREFIX;
use qo_engine::EngineError;

use super::ready_cache::ReadyListName;
use super::{DirectEngine, lock};

/// The maximum number of cached answers. At the limit the cache is cleared.
const ANSWERS_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Names {
    /// By queue; `None` is the list of the queues.
    answers: Mutex<BTreeMap<Option<QueueName>, CachedFolders>>,
}

/// The folders below a prefix.
#[derive(Debug, Clone)]
struct CachedFolders {
    at: Duration,
    /// The epoch of the signal before the LIST.
    epoch: u64,
    names: BTreeSet<String>,
}

impl DirectEngine {
    /// The queues with due tasks.
    pub(super) async fn queues_with_tasks(&self) -> Result<Vec<QueueName>, EngineError> {
        let answer = self.folders(None, 0).await?;
        let mut names = answer.names;
        for topic in self.shared.signal.changed_after(answer.epoch) {
            if let Some((queue, _)) = topic.split_once('/') {
                names.insert(queue.to_owned());
            }
        }
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// The types with due tasks in a queue.
    pub(super) async fn types_with_tasks(
        &self,
        queue: &QueueName,
    ) -> Result<Vec<qo_core::TaskType>, EngineError> {
        let answer = self.folders(Some(queue), 0).await?;
        let mut names = answer.names;
        for topic in self.shared.signal.changed_after(answer.epoch) {
            if let Some((_, task_type)) = topic
                .split_once('/')
                .filter(|(name, _)| *name == queue.as_str())
            {
                names.insert(task_type.to_owned());
            }
        }
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Finds out with one LIST which of several ready lists are empty, instead of listing each. If one of them has to be listed, all empty
    /// ones are found out, so that they become old together.
    pub(super) async fn skip_empty_lists(&self, names: &[ReadyListName]) {
        let mut by_queue: BTreeMap<&QueueName, Vec<&ReadyListName>> = BTreeMap::new();
        for name in names {
            by_queue.entry(&name.queue).or_default().push(name);
        }
        for (queue, names) in by_queue.into_iter().filter(|(_, names)| names.len() > 1) {
            let unknown = names.iter().filter(|name| self.is_unknown(name));
            let changed = unknown.map(|name| self.shared.signal.epoch_of(&name.topic()));
            let Some(changed) = changed.max() else {
                continue;
            };
            // If it fails, each list is listed by itself.
            let Ok(answer) = self.folders(Some(queue), changed).await else {
                continue;
            };
            let fallback_at = self.fallback_at(answer.at);
            let empty = names
                .iter()
                .filter(|name| !answer.names.contains(name.task_type.as_str()));
            for name in empty {
                self.mark_empty(name, answer.at, answer.epoch, fallback_at);
            }
        }
    }

    /// The folders below a prefix. A known answer must be at least as new as the epoch `since`.
    async fn folders(
        &self,
        queue: Option<&QueueName>,
        since: u64,
    ) -> Result<CachedFolders, EngineError> {
        let at = self.runtime().monotonic();
        let (epoch, all_changed) = (self.shared.signal.epoch(), self.shared.signal.all_changed());
        let known = lock(&self.shared.names.answers)
            .get(&queue.cloned())
            .cloned();
        if let Some(known) = known
            && at < known.at + self.config().fallback_interval
            && all_changed.max(since) <= known.epoch
        {
            return Ok(known);
        }
        let prefix = queue.map_or_else(
            || READY_PREFIX.to_owned(),
            |queue| format!("{READY_PREFIX}/{queue}"),
        );
        let names = self.client().folders(&prefix).await?.into_iter().collect();
        let answer = CachedFolders { at, epoch, names };
        let mut answers = lock(&self.shared.names.answers);
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(queue.cloned(), answer.clone());
        Ok(answer)
    }
}
