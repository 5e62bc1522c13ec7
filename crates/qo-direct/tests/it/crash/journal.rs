//! What the callers asked for, and what they were told.

use std::sync::{Arc, Mutex};

use qo_core::{IdempotencyKey, LeaseId, TaskId};
use qo_engine::EngineError;
use qo_store::StoreError;

/// What a caller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    Submit,
    Claim,
    /// A renewal or a progress report.
    Keep,
    Complete,
    Fail,
    Release,
    Snooze,
    Cancel,
    Replay,
    Archive,
    Unarchive,
    Purge,
}

/// What a caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing: its process died before, or it was told that nobody knows.
    Unsure,
    Done,
    /// That nothing has changed.
    Refused(EngineError),
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) asked: Asked,
    /// The task that was named. A claim names none.
    pub(super) task: Option<TaskId>,
    pub(super) told: Told,
}

/// A submit that was acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledged {
    pub(super) task: TaskId,
    /// Whether it was said to have been there before.
    pub(super) duplicate: bool,
}

/// An acknowledged submit with an idempotency key.
#[derive(Debug, Clone)]
pub(super) struct KeyedSubmit {
    pub(super) key: IdempotencyKey,
    pub(super) told: TaskId,
}

/// An attempt that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HandedOut {
    pub(super) task: TaskId,
    pub(super) attempt: u32,
    pub(super) lease: LeaseId,
}

#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) calls: Vec<Call>,
    pub(super) handed_out: Vec<HandedOut>,
    pub(super) acknowledged: Vec<Acknowledged>,
    pub(super) keyed: Vec<KeyedSubmit>,
}

/// The journal of a run, shared by all of its processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Journal(Arc<Mutex<Pages>>);

impl Journal {
    pub(super) fn read<T>(&self, read: impl FnOnce(&Pages) -> T) -> T {
        read(&self.0.lock().unwrap())
    }

    /// Notes a call before it is made, and what was told after it.
    pub(super) async fn call<T>(
        &self,
        asked: Asked,
        task: Option<TaskId>,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let index = {
            let mut pages = self.0.lock().unwrap();
            pages.calls.push(Call {
                asked,
                task,
                told: Told::Unsure,
            });
            pages.calls.len() - 1
        };
        let answer = call.await;
        self.0.lock().unwrap().calls[index].told = match &answer {
            Ok(_) => Told::Done,
            Err(error) if may_have_happened(error) => Told::Unsure,
            Err(error) => Told::Refused(error.clone()),
        };
        answer
    }

    pub(super) fn handed_out(&self, handed_out: HandedOut) {
        self.0.lock().unwrap().handed_out.push(handed_out);
    }

    pub(super) fn acknowledged(&self, task: TaskId, duplicate: bool) {
        let acknowledged = Acknowledged { task, duplicate };
        self.0.lock().unwrap().acknowledged.push(acknowledged);
    }

    pub(super) fn keyed(&self, key: IdempotencyKey, told: TaskId) {
        self.0.lock().unwrap().keyed.push(KeyedSubmit { key, told });
    }
}

fn may_have_happened(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Store(StoreError::Unavailable { in_doubt: true, .. })
    )
}
