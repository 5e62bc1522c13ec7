//! The calls of all processes of a run, as they are made and answered.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qo_core::{Task, TaskId};

use crate::call::{Call, CallKind, CallerId, Reply, TaskView};

/// Orders the events of a run.
pub trait CallClock: Debug + Send + Sync + 'static {
    /// The position of the next event.
    fn tick(&self) -> u64;

    /// Adds a line to the run's trace, if it has one.
    fn trace(&self, _caller: CallerId, _line: &dyn Fn() -> String) {}
}

/// The calls of a run, shared by its processes.
#[derive(Debug, Clone)]
pub struct CallLog {
    clock: Arc<dyn CallClock>,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// A call that was made and has no reply yet.
#[derive(Debug)]
pub struct OpenCall {
    index: usize,
    called: u64,
}

impl CallLog {
    /// An empty log.
    pub fn new(clock: Arc<dyn CallClock>) -> Self {
        Self {
            clock,
            calls: Arc::default(),
        }
    }

    /// All calls, in the order in which they were made.
    pub fn calls(&self) -> Vec<Call> {
        self.locked().clone()
    }

    /// Records that a call is made.
    pub fn open(&self, caller: CallerId, kind: CallKind, task: Option<TaskId>) -> OpenCall {
        let called = self.clock.tick();
        self.clock.trace(caller, &|| match task {
            Some(task) => format!("calls {kind:?} of {task}"),
            None => format!("calls {kind:?}"),
        });
        let mut calls = self.locked();
        calls.push(Call {
            caller,
            kind,
            task,
            lease: None,
            key: None,
            asked: None,
            called,
            answered: None,
            reply: Reply::Unknown,
        });
        let index = calls.len() - 1;
        OpenCall { index, called }
    }

    /// Adds details to an open call.
    pub fn amend(&self, open: &OpenCall, change: impl FnOnce(&mut Call)) {
        if let Some(call) = self.locked().get_mut(open.index) {
            change(call);
        }
    }

    /// Records the reply to a call.
    pub fn close(&self, open: &OpenCall, reply: Reply) {
        let answered = self.clock.tick();
        let mut calls = self.locked();
        let Some(call) = calls.get_mut(open.index) else {
            return;
        };
        call.answered = Some(answered);
        call.reply = reply;
        let call = call.clone();
        drop(calls);
        self.clock.trace(call.caller, &|| {
            format!("{:?} replies {:?}", call.kind, call.reply)
        });
    }

    /// Records one task of a claim's reply as a call of its own.
    pub fn handed_out(&self, caller: CallerId, claim: &OpenCall, task: &Task) {
        let answered = self.clock.tick();
        let call = Call {
            caller,
            kind: CallKind::Claim,
            task: Some(task.id),
            lease: task.lease_id,
            key: None,
            asked: None,
            called: claim.called,
            answered: Some(answered),
            reply: Reply::Done(Some(TaskView::of(task))),
        };
        self.clock.trace(caller, &|| {
            format!("claimed {} attempt {}", task.id, task.attempt)
        });
        self.locked().push(call);
    }

    /// A thread that panicked with the lock held has failed its run already.
    fn locked(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
