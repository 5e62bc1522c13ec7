//! What claims skip: paused queues and paused types, with who paused them, when and why.
//!
//! A pause of a queue stops all its tasks. A pause of a type stops the tasks of that type in every queue. Running tasks continue.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{PAUSE_REASON_MAX_BYTES, cut_text};
use crate::names::{Actor, QueueName, TaskType};
use crate::time::Timestamp;

/// What a pause stops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PauseTarget {
    /// All tasks of a queue.
    Queue(QueueName),
    /// The tasks of a type, in every queue.
    Type(TaskType),
}

impl fmt::Display for PauseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => write!(f, "queue {queue}"),
            Self::Type(task_type) => write!(f, "type {task_type}"),
        }
    }
}

impl From<QueueName> for PauseTarget {
    fn from(queue: QueueName) -> Self {
        Self::Queue(queue)
    }
}

impl From<TaskType> for PauseTarget {
    fn from(task_type: TaskType) -> Self {
        Self::Type(task_type)
    }
}

/// The author and the reason of a pause.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PauseNote {
    /// Who pauses.
    pub by: Option<Actor>,
    /// Why. A long text is truncated.
    pub reason: Option<String>,
}

/// One pause.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pause {
    /// Since when; unknown if a version paused it that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Who paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Pause {
    /// Reads a stored pause. What cannot be read is a pause without a note, because a damaged note must not resume anything.
    pub fn decode(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }
}

/// Everything that is paused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pauses {
    /// The paused queues.
    #[serde(default)]
    pub queues: BTreeMap<QueueName, Pause>,
    /// The paused types.
    #[serde(default)]
    pub types: BTreeMap<TaskType, Pause>,
}

impl Pauses {
    /// Whether nothing is paused.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.types.is_empty()
    }

    /// The pause of a target, if it is paused.
    pub fn get(&self, target: &PauseTarget) -> Option<&Pause> {
        match target {
            PauseTarget::Queue(queue) => self.queues.get(queue),
            PauseTarget::Type(task_type) => self.types.get(task_type),
        }
    }

    /// The pause that stops the tasks of this type in this queue: that of the queue, if there are two.
    pub fn stopping(
        &self,
        queue: &QueueName,
        task_type: &TaskType,
    ) -> Option<(PauseTarget, &Pause)> {
        let of_queue = (self.queues.get(queue)).map(|pause| (queue.clone().into(), pause));
        let of_type = || (self.types.get(task_type)).map(|pause| (task_type.clone().into(), pause));
        of_queue.or_else(of_type)
    }

    /// Whether claims skip the tasks of this type in this queue.
    pub fn stop(&self, queue: &QueueName, task_type: &TaskType) -> bool {
        self.queues.contains_key(queue) || self.types.contains_key(task_type)
    }

    /// The queues or the types of a claim, if all of them are paused, so that it can find nothing.
    pub fn stop_all(&self, queues: &[QueueName], types: &[TaskType]) -> Option<StoppedClaim> {
        let queues_stop =
            !queues.is_empty() && queues.iter().all(|queue| self.queues.contains_key(queue));
        let types_stop =
            !types.is_empty() && types.iter().all(|name| self.types.contains_key(name));
        (queues_stop || types_stop).then(|| StoppedClaim {
            queues: if queues_stop { queues.into() } else { vec![] },
            types: if types_stop { types.into() } else { vec![] },
        })
    }

    /// Pauses a target, or resumes it if there is no note. A repeated pause changes nothing, unless it says another reason. Returns whether
    /// anything has changed.
    pub fn set(&mut self, target: &PauseTarget, note: Option<PauseNote>, now: Timestamp) -> bool {
        let Some(PauseNote { by, reason }) = note else {
            return match target {
                PauseTarget::Queue(queue) => self.queues.remove(queue).is_some(),
                PauseTarget::Type(task_type) => self.types.remove(task_type).is_some(),
            };
        };
        let reason = reason.as_deref().map(str::trim);
        let reason = reason.filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| cut_text(reason, PAUSE_REASON_MAX_BYTES).into_string());
        let known = self.get(target);
        if known.is_some_and(|known| reason.is_none() || known.reason == reason) {
            return false;
        }
        let since = known.map_or(Some(now), |known| known.since);
        let pause = Pause { since, by, reason };
        match target {
            PauseTarget::Queue(queue) => self.queues.insert(queue.clone(), pause),
            PauseTarget::Type(task_type) => self.types.insert(task_type.clone(), pause),
        };
        true
    }

    /// Adds the pauses of another part of the queue.
    pub fn merge(&mut self, other: Self) {
        for (queue, pause) in other.queues {
            self.queues.entry(queue).or_insert(pause);
        }
        for (task_type, pause) in other.types {
            self.types.entry(task_type).or_insert(pause);
        }
    }
}

/// Why a claim can find nothing: all its queues, or all its types, are paused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoppedClaim {
    /// Its queues, if all of them are paused.
    pub queues: Vec<QueueName>,
    /// Its types, if all of them are paused.
    pub types: Vec<TaskType>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn note(reason: &str) -> PauseNote {
        PauseNote {
            by: Actor::from_text("ada@laptop"),
            reason: Some(reason.to_owned()),
        }
    }

    #[test]
    fn a_repeated_pause_changes_only_its_reason() {
        let queue: PauseTarget = QueueName::new("mail").unwrap().into();
        let mut pauses = Pauses::default();
        assert!(pauses.set(&queue, Some(PauseNote::default()), at(1)));
        assert!(!pauses.set(&queue, Some(PauseNote::default()), at(2)));
        assert!(!pauses.set(&queue, Some(note("  ")), at(2)));
        assert!(pauses.set(&queue, Some(note("the provider is down")), at(3)));
        assert!(!pauses.set(&queue, Some(note(" the provider is down")), at(4)));
        assert!(!pauses.set(&queue, Some(PauseNote::default()), at(5)));
        let pause = pauses.get(&queue).unwrap();
        assert_eq!(pause.since, Some(at(1)));
        assert_eq!(pause.by.as_ref().unwrap().as_str(), "ada@laptop");
        assert!(pauses.set(&queue, Some(note(&"x".repeat(5_000))), at(6)));
        let reason = pauses.get(&queue).unwrap().reason.clone().unwrap();
        assert!(reason.len() <= PAUSE_REASON_MAX_BYTES && reason.ends_with('…'));
        assert!(pauses.set(&queue, None, at(7)));
        assert!(!pauses.set(&queue, None, at(8)));
        assert!(pauses.is_empty());
    }

    #[test]
    fn a_claim_is_stopped_if_all_its_queues_or_all_its_types_are_paused() {
        let (mail, bulk): (QueueName, QueueName) =
            ("mail".parse().unwrap(), "bulk".parse().unwrap());
        let (send, report): (TaskType, TaskType) =
            ("send".parse().unwrap(), "report".parse().unwrap());
        let mut pauses = Pauses::default();
        pauses.set(&mail.clone().into(), Some(PauseNote::default()), at(1));
        pauses.set(&send.clone().into(), Some(PauseNote::default()), at(1));
        assert!(pauses.stop(&mail, &report) && pauses.stop(&bulk, &send));
        assert!(!pauses.stop(&bulk, &report));
        let (both, types) = ([mail.clone(), bulk.clone()], [send.clone(), report.clone()]);
        assert_eq!(pauses.stop_all(&[], &[]), None);
        assert_eq!(pauses.stop_all(&both, &types), None);
        let stopped = pauses.stop_all(&both, std::slice::from_ref(&send)).unwrap();
        assert_eq!((stopped.queues, stopped.types), (vec![], vec![send]));
        let stopped = pauses
            .stop_all(std::slice::from_ref(&mail), &types)
            .unwrap();
        assert_eq!((stopped.queues, stopped.types), (vec![mail], vec![]));
    }

    #[test]
    fn a_damaged_note_does_not_resume() {
        for text in ["", "{", "[]", "{\"by\":\"\"}", "{\"since\":7}", "null"] {
            assert_eq!(Pause::decode(text.as_bytes()), Pause::default(), "{text}");
        }
        let pause = Pause {
            since: Some(at(1)),
            by: Actor::from_text("ada"),
            reason: Some("why".to_owned()),
        };
        assert_eq!(Pause::decode(&serde_json::to_vec(&pause).unwrap()), pause);
    }
}
