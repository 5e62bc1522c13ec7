//! A task's retry policy, which takes no memory if it is the default.
//!
//! A queue keeps all waiting tasks in memory, and nearly all of them have the default policy.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use crate::retry::RetryPolicy;

/// The retry policy of one task. It dereferences to [`RetryPolicy`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "RetryPolicy", into = "RetryPolicy")]
pub struct TaskRetryPolicy(Option<Box<RetryPolicy>>);

impl Deref for TaskRetryPolicy {
    type Target = RetryPolicy;

    fn deref(&self) -> &RetryPolicy {
        self.0.as_deref().unwrap_or(&RetryPolicy::DEFAULT)
    }
}

impl DerefMut for TaskRetryPolicy {
    fn deref_mut(&mut self) -> &mut RetryPolicy {
        self.0.get_or_insert_default()
    }
}

impl PartialEq for TaskRetryPolicy {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl From<RetryPolicy> for TaskRetryPolicy {
    fn from(policy: RetryPolicy) -> Self {
        Self((policy != RetryPolicy::DEFAULT).then(|| Box::new(policy)))
    }
}

impl From<TaskRetryPolicy> for RetryPolicy {
    fn from(policy: TaskRetryPolicy) -> Self {
        policy.0.map_or(Self::DEFAULT, |policy| *policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_takes_no_memory_and_is_stored_in_full() {
        let default = TaskRetryPolicy::from(RetryPolicy::default());
        assert!(default.0.is_none());
        assert_eq!(*default, RetryPolicy::default());
        let text = serde_json::to_string(&default).unwrap();
        assert_eq!(
            text,
            serde_json::to_string(&RetryPolicy::default()).unwrap()
        );
        let read: TaskRetryPolicy = serde_json::from_str(&text).unwrap();
        assert!(read.0.is_none());
    }

    #[test]
    fn another_policy_round_trips() {
        let policy = RetryPolicy {
            multiplier: 3.0,
            ..RetryPolicy::default()
        };
        let kept = TaskRetryPolicy::from(policy.clone());
        assert_eq!(*kept, policy);
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(text, serde_json::to_string(&policy).unwrap());
        let read: TaskRetryPolicy = serde_json::from_str(&text).unwrap();
        assert_eq!(RetryPolicy::from(read), policy);
    }

    #[test]
    fn a_policy_changed_back_to_the_default_takes_no_memory() {
        let mut policy = TaskRetryPolicy::from(RetryPolicy {
            multiplier: 3.0,
            ..RetryPolicy::default()
        });
        assert_ne!(policy, TaskRetryPolicy::default());
        policy.multiplier = RetryPolicy::DEFAULT.multiplier;
        assert_eq!(policy, TaskRetryPolicy::default());
    }
}
