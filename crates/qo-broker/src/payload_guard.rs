//! Keeps deletions of payloads apart from submits that store new ones for the same task id.
//!
//! A submit stores a large input before its record. If the id belonged to a task that is being dropped, the deletion of that task's
//! payloads could hit the new input, because the same content has the same key. So within a process a deletion and such submits exclude
//! each other, and a deletion checks under this exclusion that no task has the id ([`super::payload_removal`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qo_core::TaskId;
use tokio::sync::Notify;

/// The task ids whose payloads are being stored or deleted.
#[derive(Debug, Clone, Default)]
pub(super) struct PayloadGuards(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    uses: Mutex<HashMap<TaskId, Use>>,
    released: Notify,
}

#[derive(Debug, Clone, Copy)]
enum Use {
    /// This many submits have stored an input, or are about to.
    Storing(usize),
    Deleting,
}

/// Holds a task id for a submit or for a deletion until it is dropped.
#[derive(Debug)]
pub(super) struct PayloadGuard {
    inner: Arc<Inner>,
    id: TaskId,
}

impl PayloadGuards {
    /// Waits for a deletion of this id, and excludes new ones. Several submits may hold an id at once.
    pub(super) async fn store(&self, id: TaskId) -> PayloadGuard {
        self.acquire(id, |held| match held {
            None => Some(Use::Storing(1)),
            Some(Use::Storing(count)) => Some(Use::Storing(count + 1)),
            Some(Use::Deleting) => None,
        })
        .await
    }

    /// Waits until nobody holds this id. Submits that hold it do not wait for this call.
    pub(super) async fn delete(&self, id: TaskId) -> PayloadGuard {
        self.acquire(id, |held| held.is_none().then_some(Use::Deleting))
            .await
    }

    /// Holds this id for a deletion, unless somebody holds it already.
    pub(super) fn try_delete(&self, id: TaskId) -> Option<PayloadGuard> {
        self.try_acquire(id, |held| held.is_none().then_some(Use::Deleting))
    }

    async fn acquire(&self, id: TaskId, next: impl Fn(Option<Use>) -> Option<Use>) -> PayloadGuard {
        loop {
            let released = self.0.released.notified();
            tokio::pin!(released);
            // A release after this line wakes the wait below.
            released.as_mut().enable();
            if let Some(guard) = self.try_acquire(id, &next) {
                return guard;
            }
            released.await;
        }
    }

    fn try_acquire(
        &self,
        id: TaskId,
        next: impl Fn(Option<Use>) -> Option<Use>,
    ) -> Option<PayloadGuard> {
        let mut uses = self.0.lock();
        let next = next(uses.get(&id).copied())?;
        uses.insert(id, next);
        Some(PayloadGuard {
            inner: Arc::clone(&self.0),
            id,
        })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PayloadGuard {
    fn drop(&mut self) {
        let mut uses = self.inner.lock();
        match uses.get_mut(&self.id) {
            Some(Use::Storing(count)) if *count > 1 => *count -= 1,
            _ => {
                uses.remove(&self.id);
            }
        }
        drop(uses);
        self.inner.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn submits_share_an_id_and_deletions_do_not() {
        let guards = PayloadGuards::default();
        let id = TaskId::from_random(1);
        let one = guards.store(id).await;
        let other = guards.store(id).await;
        assert!(guards.try_delete(id).is_none());
        let mut deletion = Box::pin(guards.delete(id));
        assert!(deletion.as_mut().now_or_never().is_none());
        // A deletion that waits does not hold up submits.
        drop(guards.store(id).await);
        drop(one);
        assert!(deletion.as_mut().now_or_never().is_none());
        drop(other);
        let deleting = deletion.await;
        assert!(guards.store(id).now_or_never().is_none());
        assert!(guards.try_delete(TaskId::from_random(2)).is_some());
        drop(deleting);
        drop(guards.store(id).await);
        assert!(guards.0.lock().is_empty());
    }
}
