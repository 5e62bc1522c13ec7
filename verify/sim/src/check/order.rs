//! Whether the answers about each task fit into one order: linearizability.
//!
//! Every call took effect at one moment between its question and its answer, or at some moment after its question if nobody knows, or
//! never. The search looks for an order of all calls in which each gets the answer that it got, by the method of Wing and Gong with
//! Lowe's memory of what was tried. What the engine did by itself (a lease that ran out, a task that expired) has its place at the moment
//! at which it was stored. This check sees the answers alone, so that it holds for every engine; the [lives](super::life) are
//! the finer net where versions are kept.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{LeaseId, Rejection, Status, TaskId};

use super::life::{Life, Step};
use super::{Found, Promise};
use crate::journal::{Asked, Call, Seen, Told};

/// A search that takes longer than this is given up, and counted.
const STATES_MAX: usize = 200_000;

/// What a task is, as far as answers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    status: Option<Status>,
    attempt: u32,
    revision: u64,
    lease: Option<LeaseId>,
}

const ABSENT: State = State {
    status: None,
    attempt: 0,
    revision: 0,
    lease: None,
};

/// One operation of a history.
#[derive(Debug, Clone)]
struct Operation {
    what: What,
    lease: Option<LeaseId>,
    told: Told,
    called: u64,
    /// Never, if nobody knows whether it took effect.
    answered: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Asked(Asked),
    /// The engine did it by itself, and this is what the task was after it.
    ByItself(Seen),
}

/// Checks all tasks, and says how many searches were given up.
pub(super) fn check(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    spoiled: &BTreeSet<TaskId>,
    found: &mut Found,
) -> usize {
    let mut by_task: BTreeMap<TaskId, Vec<Operation>> = BTreeMap::new();
    let mut left_out = spoiled.clone();
    for call in calls {
        let Some(task) = call.task else { continue };
        if call.asked == Asked::Purge {
            // A purge is several changes, and others may see what it has done so far.
            left_out.insert(task);
        }
        by_task.entry(task).or_default().extend(operation(call));
    }
    for (key, task) in calls
        .iter()
        .filter_map(|call| Some((call.key.clone()?, call.task?)))
    {
        // A submit of this key whose fate nobody knows may have created this task instead of its own.
        let same_key = calls.iter().filter(|call| {
            call.asked == Asked::Submit
                && call.task != Some(task)
                && call.key.as_ref() == Some(&key)
                && matches!(call.told, Told::Unsure | Told::Failed(_))
        });
        let maybe = same_key.map(|call| Operation {
            what: What::Asked(Asked::Submit),
            lease: None,
            told: Told::Unsure,
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
            history.extend(by_itself(life));
        }
        history.sort_by_key(|operation| operation.called);
        match linearizable(&history) {
            Some(true) => {}
            Some(false) => found.add(
                Promise::OneAttempt,
                format!(
                    "task {task}: the answers fit into no order: {}",
                    describe(&history)
                ),
            ),
            None => given_up += 1,
        }
    }
    given_up
}

fn operation(call: &Call) -> Option<Operation> {
    let answered = match &call.told {
        Told::Unsure => u64::MAX,
        // Nothing has changed, and nothing was said of the task.
        Told::Failed(_) => return None,
        _ => call.answered.unwrap_or(u64::MAX),
    };
    if call.asked == Asked::Get && call.told == Told::Unsure {
        return None;
    }
    Some(Operation {
        what: What::Asked(call.asked),
        lease: call.lease,
        told: call.told.clone(),
        called: call.called,
        answered,
    })
}

/// What the engine did by itself; and claims and renewals, which somebody may have made without ever hearing of it.
fn by_itself(life: &Life) -> Vec<Operation> {
    life.changes
        .iter()
        .filter(|change| match change.step {
            Step::LeaseExpiry | Step::Expiry | Step::TakenBack => true,
            Step::Asked(asked) => matches!(asked, Asked::Claim | Asked::Keep),
        })
        .filter_map(|change| {
            let after = change.after.as_ref()?;
            Some(Operation {
                what: What::ByItself(Seen::of(after)),
                lease: None,
                told: Told::Unsure,
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
                operation.what,
                operation.told
            )
        })
        .collect();
    lines.join("; ")
}

/// Whether there is an order; nothing, if the search was given up.
fn linearizable(history: &[Operation]) -> Option<bool> {
    let words = history.len().div_ceil(64).max(1);
    let mut tried: BTreeSet<(Vec<u64>, State)> = BTreeSet::new();
    let mut open = vec![(vec![0_u64; words], ABSENT)];
    while let Some((done, state)) = open.pop() {
        let is_done = |place: usize| done[place / 64] & (1 << (place % 64)) != 0;
        // What was called after another was answered comes after it.
        let first_answer = (0..history.len())
            .filter(|place| !is_done(*place))
            .map(|place| history[place].answered)
            .min();
        let Some(first_answer) = first_answer else {
            return Some(true);
        };
        if first_answer == u64::MAX {
            // What is left may never have happened.
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

/// What a task may be after an operation that got this answer; nothing, if it cannot have got it.
fn next_states(state: State, operation: &Operation) -> Vec<State> {
    let asked = match operation.what {
        What::ByItself(seen) => {
            let fits = state.revision + 1 == seen.revision;
            return if fits { vec![of(seen)] } else { Vec::new() };
        }
        What::Asked(asked) => asked,
    };
    match &operation.told {
        Told::Unsure if asked == Asked::Keep => vec![state],
        Told::Unsure => effects(state, asked, operation.lease),
        Told::Failed(_) => vec![state],
        Told::Rejected(rejection) => {
            if refuses(state, rejection, operation.lease) {
                vec![state]
            } else {
                Vec::new()
            }
        }
        Told::Duplicate(seen) => {
            if state == of(*seen) {
                vec![state]
            } else {
                Vec::new()
            }
        }
        Told::Done(seen) if asked == Asked::Get => match seen {
            Some(seen) if state == of(*seen) => vec![state],
            _ => Vec::new(),
        },
        // Its effect is in the history by itself, from what was stored; here is only who was told.
        Told::Done(Some(seen)) if asked == Asked::Claim => {
            let known = state.revision >= seen.revision;
            if known { vec![state] } else { Vec::new() }
        }
        // The same; a renewal that somebody built upon leaves no trace to recognise it by, and may have been made twice.
        Told::Done(Some(seen)) if asked == Asked::Keep => {
            let holds = state.status == Some(Status::Running) && state.lease == operation.lease;
            let known = state.revision >= seen.revision;
            if holds && known {
                vec![state]
            } else {
                Vec::new()
            }
        }
        Told::Done(seen) => effects(state, asked, operation.lease)
            .into_iter()
            .filter(|next| match seen {
                // Somebody may have built upon it before it was read back.
                Some(seen) if seen.revision > next.revision => true,
                Some(seen) => *next == of(*seen),
                None => true,
            })
            .collect(),
    }
}

fn of(seen: Seen) -> State {
    State {
        status: Some(seen.status),
        attempt: seen.attempt,
        revision: seen.revision,
        lease: seen.lease,
    }
}

/// What an operation makes of a task: what it may become, where that is not decided by what answers tell. Nothing, if the rules
/// refuse it.
fn effects(state: State, asked: Asked, lease: Option<LeaseId>) -> Vec<State> {
    use Status::{Archived, Cancelled, Completed, Failed, Pending, Running};
    let becomes = |statuses: &[Status]| -> Vec<State> {
        statuses
            .iter()
            .map(|status| State {
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
    match (asked, state.status) {
        (Asked::Submit, None) => vec![State {
            status: Some(Pending),
            revision: 1,
            ..ABSENT
        }],
        (Asked::Complete, _) if holds => becomes(&[Completed]),
        (Asked::Fail, _) if holds => becomes(&[Pending, Failed, Cancelled]),
        (Asked::Release | Asked::Snooze, _) if holds => becomes(&[Pending, Cancelled]),
        (Asked::Cancel, Some(Pending)) => becomes(&[Cancelled]),
        (Asked::Cancel, Some(Running)) => becomes(&[Running]),
        (Asked::Replay, Some(Completed | Failed | Cancelled)) => becomes(&[Pending]),
        (Asked::Archive, Some(Completed | Failed | Cancelled)) => becomes(&[Archived]),
        (Asked::Unarchive, Some(Archived)) => becomes(&[Completed, Failed, Cancelled]),
        _ => Vec::new(),
    }
}

/// Whether a task is what a refusal says it is.
fn refuses(state: State, rejection: &Rejection, lease: Option<LeaseId>) -> bool {
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

    fn seen(status: Status, revision: u64) -> Seen {
        Seen {
            status,
            attempt: 0,
            revision,
            lease: None,
        }
    }

    fn call(asked: Asked, called: u64, answered: u64, told: Told) -> Operation {
        Operation {
            what: What::Asked(asked),
            lease: None,
            told,
            called,
            answered,
        }
    }

    fn submitted() -> Operation {
        let told = Told::Done(Some(seen(Status::Pending, 1)));
        call(Asked::Submit, 1, 2, told)
    }

    #[test]
    fn a_look_must_not_show_the_past() {
        let cancelled = call(
            Asked::Cancel,
            3,
            4,
            Told::Done(Some(seen(Status::Cancelled, 2))),
        );
        let look = |called, revision, status| {
            call(
                Asked::Get,
                called,
                called + 10,
                Told::Done(Some(seen(status, revision))),
            )
        };
        let fresh = [
            submitted(),
            cancelled.clone(),
            look(5, 2, Status::Cancelled),
        ];
        assert_eq!(linearizable(&fresh), Some(true));
        let stale = [submitted(), cancelled.clone(), look(5, 1, Status::Pending)];
        assert_eq!(linearizable(&stale), Some(false));
        let mut beside = [submitted(), cancelled, look(3, 1, Status::Pending)];
        beside.sort_by_key(|operation| operation.called);
        assert_eq!(linearizable(&beside), Some(true));
    }

    #[test]
    fn what_nobody_knows_may_have_happened_late_or_never() {
        let doubtful = call(Asked::Cancel, 3, u64::MAX, Told::Unsure);
        let look = |called, revision, status| {
            call(
                Asked::Get,
                called,
                called + 1,
                Told::Done(Some(seen(status, revision))),
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
                look(10, first.0, first.1),
                look(20, second.0, second.1),
            ];
            assert_eq!(linearizable(&history), Some(true), "{first:?} {second:?}");
        }
        let undone = [
            submitted(),
            doubtful,
            look(10, 2, Status::Cancelled),
            look(20, 1, Status::Pending),
        ];
        assert_eq!(linearizable(&undone), Some(false));
    }

    #[test]
    fn a_refusal_must_fit_what_the_task_is() {
        let refused = |status| {
            let rejection = Rejection::WrongStatus {
                action: "replay",
                status,
            };
            call(Asked::Replay, 3, 4, Told::Rejected(rejection))
        };
        let fits = [submitted(), refused(Status::Pending)];
        assert_eq!(linearizable(&fits), Some(true));
        let lies = [submitted(), refused(Status::Running)];
        assert_eq!(linearizable(&lies), Some(false));
    }
}
