//! Whether the replies about each task fit into one order: linearizability.
//!
//! Every call took effect at one moment between its start and its reply, or at some moment after its start if its reply is unknown, or
//! never. The search looks for an order of all calls in which each gets the reply that it got, by the method of Wing and Gong with
//! Lowe's memory of visited states. What the engine did by itself (an expired lease, an expired task) has its place at the moment
//! at which it was stored. This check uses replies alone, so it holds for every engine; the [lives](crate::life) are
//! the finer net where versions are known.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{LeaseId, Rejection, Status, TaskId};

use crate::call::{Call, CallKind, Reply, TaskView};
use crate::life::{Life, Step};
use crate::promise::{Breaches, Promise};

/// A search gives up after visiting this many states.
const STATES_MAX: usize = 200_000;

/// A task as far as replies show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TaskState {
    status: Option<Status>,
    attempt: u32,
    revision: u64,
    lease: Option<LeaseId>,
}

const ABSENT: TaskState = TaskState {
    status: None,
    attempt: 0,
    revision: 0,
    lease: None,
};

/// One operation of a history.
#[derive(Debug, Clone)]
struct Operation {
    effect: Effect,
    lease: Option<LeaseId>,
    reply: Reply,
    called: u64,
    /// The maximum if the reply is unknown.
    answered: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The effect of a call.
    Call(CallKind),
    /// A change that is known from a stored version, with the task after it.
    Stored(TaskView),
    /// A renewal that was written together with other changes of the task. It leaves no event, so its place among them is unknown.
    RenewedInGroup(TaskView),
}

/// Checks all tasks. Returns the number of searches that gave up.
pub(super) fn check(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    excluded: &BTreeSet<TaskId>,
    breaches: &mut Breaches,
) -> usize {
    let mut by_task: BTreeMap<TaskId, Vec<Operation>> = BTreeMap::new();
    let mut left_out = excluded.clone();
    for call in calls {
        let Some(task) = call.task else { continue };
        if call.kind == CallKind::Purge {
            // A purge is several changes, and others may see it half done.
            left_out.insert(task);
        }
        by_task.entry(task).or_default().extend(operation(call));
    }
    for (key, task) in calls
        .iter()
        .filter_map(|call| Some((call.key.clone()?, call.task?)))
    {
        // A submit with this key and an unknown reply may have created this task instead of its own.
        let same_key = calls.iter().filter(|call| {
            call.kind == CallKind::Submit
                && call.task != Some(task)
                && call.key.as_ref() == Some(&key)
                && matches!(call.reply, Reply::Unknown | Reply::Failed(_))
        });
        let maybe = same_key.map(|call| Operation {
            effect: Effect::Call(CallKind::Submit),
            lease: None,
            reply: Reply::Unknown,
            called: call.called,
            answered: u64::MAX,
        });
        by_task.entry(task).or_default().extend(maybe);
    }
    let mut given_up = 0;
    for (task, mut history) in by_task {
        if left_out.contains(&task) {
            continue;
        }
        if let Some(life) = lives.get(&task) {
            history.extend(stored_changes(life));
        }
        history.sort_by_key(|operation| operation.called);
        match linearizable(&history) {
            Some(true) => {}
            Some(false) => breaches.add(
                Promise::OneAttempt,
                format!(
                    "task {task}: the replies fit into no order: {}",
                    describe(&history)
                ),
            ),
            None => given_up += 1,
        }
    }
    given_up
}

fn operation(call: &Call) -> Option<Operation> {
    let answered = match &call.reply {
        Reply::Unknown => u64::MAX,
        // Nothing changed, and the reply does not show the task.
        Reply::Failed(_) => return None,
        _ => call.answered.unwrap_or(u64::MAX),
    };
    if call.kind == CallKind::Get && call.reply == Reply::Unknown {
        return None;
    }
    Some(Operation {
        effect: Effect::Call(call.kind),
        lease: call.lease,
        reply: call.reply.clone(),
        called: call.called,
        answered,
    })
}

/// The changes that take their place from the stored versions: what the engine did by itself, and claims and renewals, whose callers may never
/// have received a reply.
fn stored_changes(life: &Life) -> Vec<Operation> {
    life.changes
        .iter()
        .filter(|change| match change.step {
            Step::LeaseExpiry
            | Step::Expiry
            | Step::Amendment
            | Step::Returned
            | Step::Fenced
            | Step::Delivered => true,
            Step::Call(kind) => matches!(kind, CallKind::Claim | CallKind::Renew),
        })
        .filter_map(|change| {
            let after = TaskView::of(change.after.as_ref()?);
            let written = life.changes.iter();
            let is_alone = written.filter(|other| other.tick == change.tick).count() == 1;
            let is_renewal = change.step == Step::Call(CallKind::Renew);
            Some(Operation {
                effect: if is_renewal && !is_alone {
                    Effect::RenewedInGroup(after)
                } else {
                    Effect::Stored(after)
                },
                lease: None,
                reply: Reply::Unknown,
                called: change.tick,
                answered: change.tick,
            })
        })
        .collect()
}

fn describe(history: &[Operation]) -> String {
    let lines: Vec<String> = history
        .iter()
        .map(|operation| {
            format!(
                "[{}..{}] {:?} {:?}",
                operation.called,
                if operation.answered == u64::MAX {
                    "?".to_owned()
                } else {
                    operation.answered.to_string()
                },
                operation.effect,
                operation.reply
            )
        })
        .collect();
    lines.join("; ")
}

/// Whether there is an order; `None` if the search gave up.
fn linearizable(history: &[Operation]) -> Option<bool> {
    let words = history.len().div_ceil(64).max(1);
    let mut tried: BTreeSet<(Vec<u64>, TaskState)> = BTreeSet::new();
    let mut open = vec![(vec![0_u64; words], ABSENT)];
    while let Some((done, state)) = open.pop() {
        let is_done = |place: usize| done[place / 64] & (1 << (place % 64)) != 0;
        // A call that started after another was answered comes after it.
        let first_answer = (0..history.len())
            .filter(|place| !is_done(*place))
            .map(|place| history[place].answered)
            .min();
        let Some(first_answer) = first_answer else {
            return Some(true);
        };
        if first_answer == u64::MAX {
            // The rest may never have taken effect.
            return Some(true);
        }
        if tried.len() > STATES_MAX {
            return None;
        }
        for (place, operation) in history.iter().enumerate() {
            if is_done(place) || operation.called > first_answer {
                continue;
            }
            let mut next_done = done.clone();
            next_done[place / 64] |= 1 << (place % 64);
            for next in next_states(state, operation) {
                if tried.insert((next_done.clone(), next)) {
                    open.push((next_done.clone(), next));
                }
            }
        }
    }
    Some(false)
}

/// The possible states after an operation with this reply; none if the reply is impossible in this state.
fn next_states(state: TaskState, operation: &Operation) -> Vec<TaskState> {
    let kind = match operation.effect {
        Effect::Stored(view) => {
            let fits = state.revision + 1 == view.revision;
            return if fits { vec![of(view)] } else { Vec::new() };
        }
        Effect::RenewedInGroup(view) => {
            let fits = state.status == Some(Status::Running) && state.lease == view.lease;
            let revision = state.revision + 1;
            return if fits {
                vec![TaskState { revision, ..state }]
            } else {
                Vec::new()
            };
        }
        Effect::Call(kind) => kind,
    };
    match &operation.reply {
        Reply::Unknown if kind == CallKind::Renew => vec![state],
        Reply::Unknown => effects(state, kind, operation.lease),
        Reply::Failed(_) => vec![state],
        Reply::Rejected(rejection) => {
            if refuses(state, rejection, operation.lease) {
                vec![state]
            } else {
                Vec::new()
            }
        }
        Reply::Duplicate(view) => {
            if state == of(*view) {
                vec![state]
            } else {
                Vec::new()
            }
        }
        Reply::Done(view) if kind == CallKind::Get => match view {
            Some(view) if state == of(*view) => vec![state],
            _ => Vec::new(),
        },
        // The stored versions contain its effect. Here it only shows that the caller knew of it.
        Reply::Done(Some(view)) if kind == CallKind::Claim => {
            let known = state.revision >= view.revision;
            if known { vec![state] } else { Vec::new() }
        }
        // The same. A renewal leaves no event to recognise it by, so it may have been applied twice.
        Reply::Done(Some(view)) if kind == CallKind::Renew => {
            let holds = state.status == Some(Status::Running) && state.lease == operation.lease;
            let known = state.revision >= view.revision;
            if holds && known {
                vec![state]
            } else {
                Vec::new()
            }
        }
        Reply::Done(view) => effects(state, kind, operation.lease)
            .into_iter()
            .filter(|next| match view {
                // Another write may have built on it before it was read back.
                Some(view) if view.revision > next.revision => true,
                Some(view) => *next == of(*view),
                None => true,
            })
            .collect(),
    }
}

fn of(view: TaskView) -> TaskState {
    TaskState {
        status: Some(view.status),
        attempt: view.attempt,
        revision: view.revision,
        lease: view.lease,
    }
}

/// The states that an operation can lead to; none if the rules refuse it.
fn effects(state: TaskState, kind: CallKind, lease: Option<LeaseId>) -> Vec<TaskState> {
    use Status::{Archived, Cancelled, Completed, Failed, Pending, Running};
    let becomes = |statuses: &[Status]| -> Vec<TaskState> {
        statuses
            .iter()
            .map(|status| TaskState {
                status: Some(*status),
                revision: state.revision + 1,
                lease: if *status == Running {
                    state.lease
                } else {
                    None
                },
                ..state
            })
            .collect()
    };
    let holds = state.status == Some(Running) && lease.is_some() && state.lease == lease;
    match (kind, state.status) {
        (CallKind::Submit, None) => vec![TaskState {
            status: Some(Pending),
            revision: 1,
            ..ABSENT
        }],
        (CallKind::Complete, _) if holds => becomes(&[Completed]),
        (CallKind::Fail, _) if holds => becomes(&[Pending, Failed, Cancelled]),
        (CallKind::Release | CallKind::Snooze, _) if holds => becomes(&[Pending, Cancelled]),
        // A failed task that stops its ordering key can be cancelled. Views do not show which do; the lives tell.
        (CallKind::Cancel, Some(Pending | Failed)) => becomes(&[Cancelled]),
        (CallKind::Cancel, Some(Running)) => becomes(&[Running]),
        (CallKind::Replay, Some(Completed | Failed | Cancelled))
        | (CallKind::Redrive, Some(Pending | Failed)) => becomes(&[Pending]),
        (CallKind::Archive, Some(Completed | Failed | Cancelled)) => becomes(&[Archived]),
        (CallKind::Unarchive, Some(Archived)) => becomes(&[Completed, Failed, Cancelled]),
        _ => Vec::new(),
    }
}

/// Whether a rejection is right about the state.
fn refuses(state: TaskState, rejection: &Rejection, lease: Option<LeaseId>) -> bool {
    match rejection {
        Rejection::NotFound { .. } => state.status.is_none(),
        Rejection::LeaseLost {
            status, attempt, ..
        } => {
            state.status == Some(*status)
                && state.attempt == *attempt
                && (state.status != Some(Status::Running) || state.lease != lease)
        }
        Rejection::WrongStatus { status, .. } => state.status == Some(*status),
        Rejection::CancelAlreadyRequested => state.status == Some(Status::Running),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(status: Status, revision: u64) -> TaskView {
        TaskView {
            status,
            attempt: 0,
            revision,
            lease: None,
        }
    }

    fn call(kind: CallKind, called: u64, answered: u64, reply: Reply) -> Operation {
        Operation {
            effect: Effect::Call(kind),
            lease: None,
            reply,
            called,
            answered,
        }
    }

    fn submitted() -> Operation {
        let reply = Reply::Done(Some(view(Status::Pending, 1)));
        call(CallKind::Submit, 1, 2, reply)
    }

    #[test]
    fn a_read_must_not_show_the_past() {
        let cancelled = call(
            CallKind::Cancel,
            3,
            4,
            Reply::Done(Some(view(Status::Cancelled, 2))),
        );
        let read = |called, revision, status| {
            call(
                CallKind::Get,
                called,
                called + 10,
                Reply::Done(Some(view(status, revision))),
            )
        };
        let fresh = [
            submitted(),
            cancelled.clone(),
            read(5, 2, Status::Cancelled),
        ];
        assert_eq!(linearizable(&fresh), Some(true));
        let stale = [submitted(), cancelled.clone(), read(5, 1, Status::Pending)];
        assert_eq!(linearizable(&stale), Some(false));
        let mut concurrent = [submitted(), cancelled, read(3, 1, Status::Pending)];
        concurrent.sort_by_key(|operation| operation.called);
        assert_eq!(linearizable(&concurrent), Some(true));
    }

    #[test]
    fn an_unknown_call_may_take_effect_late_or_never() {
        let doubtful = call(CallKind::Cancel, 3, u64::MAX, Reply::Unknown);
        let read = |called, revision, status| {
            call(
                CallKind::Get,
                called,
                called + 1,
                Reply::Done(Some(view(status, revision))),
            )
        };
        for (first, second) in [
            ((1, Status::Pending), (1, Status::Pending)),
            ((1, Status::Pending), (2, Status::Cancelled)),
            ((2, Status::Cancelled), (2, Status::Cancelled)),
        ] {
            let history = [
                submitted(),
                doubtful.clone(),
                read(10, first.0, first.1),
                read(20, second.0, second.1),
            ];
            assert_eq!(linearizable(&history), Some(true), "{first:?} {second:?}");
        }
        let undone = [
            submitted(),
            doubtful,
            read(10, 2, Status::Cancelled),
            read(20, 1, Status::Pending),
        ];
        assert_eq!(linearizable(&undone), Some(false));
    }

    #[test]
    fn a_renewal_has_any_place_in_its_group() {
        let lease = Some(LeaseId::from_random(1));
        let running = |revision| TaskView {
            status: Status::Running,
            attempt: 1,
            revision,
            lease,
        };
        let at = |tick, effect| Operation {
            effect,
            lease: None,
            reply: Reply::Unknown,
            called: tick,
            answered: tick,
        };
        // The task is cancelled at revision 3 and renewed at revision 4. The stored versions suggest the other order.
        let history = |renewed| {
            [
                submitted(),
                at(3, Effect::Stored(running(2))),
                call(CallKind::Cancel, 4, 9, Reply::Done(Some(running(3)))),
                at(5, renewed),
                Operation {
                    lease,
                    ..call(CallKind::Renew, 4, 8, Reply::Done(Some(running(4))))
                },
            ]
        };
        let grouped = history(Effect::RenewedInGroup(running(3)));
        assert_eq!(linearizable(&grouped), Some(true));
        let alone = history(Effect::Stored(running(3)));
        assert_eq!(linearizable(&alone), Some(false));
    }

    #[test]
    fn a_rejection_must_fit_the_task() {
        let refused = |status| {
            let rejection = Rejection::WrongStatus {
                action: "replay",
                status,
            };
            call(CallKind::Replay, 3, 4, Reply::Rejected(rejection))
        };
        let fits = [submitted(), refused(Status::Pending)];
        assert_eq!(linearizable(&fits), Some(true));
        let lies = [submitted(), refused(Status::Running)];
        assert_eq!(linearizable(&lies), Some(false));
    }
}
