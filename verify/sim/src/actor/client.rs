//! A client: submits, and now and then acts as an operator.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::task::{IdempotencyScope, KeyHold, OnConflict, OnFailure, OrderingRule, Uniqueness};
use qo_core::{LimitKey, QueueName, RetryPolicy, TaskId, TaskType};
use qo_engine::api::{IdempotencyRequest, SubmitRequest, When};

use super::{Caller, ELSEWHERE, TYPES, large, medium, small};
use crate::faults::{LATE_MAX, Trouble};
use crate::sched::{Scheduler, lock};

/// The shortest time from a submit to a purge: by then no request of the submit is in flight.
const PURGE_AFTER: Duration = Duration::from_secs(LATE_MAX.as_secs() + 20);

/// How much later the tasks of the small group are due than those of the large one.
const YOUNGER: Duration = Duration::from_secs(1);

/// The shared work of all clients.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a seed chooses each on its own"
)]
pub(crate) struct Errands {
    /// The duration of the faults.
    pub(crate) trouble: Duration,
    /// The number of tasks that are still to be submitted.
    pub(crate) left: u64,
    /// The submitted tasks.
    pub(crate) submitted: Vec<SubmittedTask>,
    /// Whether some tasks have an ordering key.
    pub(crate) has_order: bool,
    /// Whether some tasks have a limit key.
    pub(crate) has_limits: bool,
    /// Whether tasks have groups.
    pub(crate) has_groups: bool,
    /// Whether submits change the tasks that hold their keys.
    pub(crate) is_unique: bool,
    /// Whether tasks come faster than they can run.
    pub(crate) is_crowded: bool,
    /// Whether operators move tasks to another queue and back.
    pub(crate) has_redrives: bool,
}

/// A task that a client has submitted.
#[derive(Debug, Clone)]
pub(crate) struct SubmittedTask {
    id: TaskId,
    /// The end of its last submit.
    settled_at: Option<Duration>,
    /// Its request, if it has an idempotency key.
    keyed: Option<Box<SubmitRequest>>,
}

/// Runs until the faults are over and all tasks are submitted.
pub(crate) async fn client(
    caller: Arc<Caller>,
    trouble: Arc<Trouble>,
    errands: Arc<Mutex<Errands>>,
    scheduler: Scheduler,
) {
    while !trouble.is_over() {
        if caller.below(3) < 2 {
            submit(&caller, &errands, &scheduler).await;
        } else {
            operate(&caller, &errands, &scheduler).await;
        }
        let pause = caller.millis(0, 4_000);
        // Groups take turns, and tasks wait for others, only if there is a backlog.
        let hurries = {
            let errands = lock(&errands);
            (errands.has_groups || errands.is_crowded) && errands.left > 0
        };
        caller.sleep(if hurries { pause / 8 } else { pause }).await;
    }
}

/// Submits one of the remaining tasks.
async fn submit(caller: &Caller, errands: &Mutex<Errands>, scheduler: &Scheduler) {
    let place = {
        let mut errands = lock(errands);
        if errands.left == 0 {
            return;
        }
        errands.left -= 1;
        errands.submitted.len()
    };
    let name = TYPES[usize::try_from(caller.below(2)).unwrap_or_default()];
    let Ok(task_type) = name.parse() else { return };
    let (left, has_order, has_limits, has_groups, is_unique, has_redrives) = {
        let errands = lock(errands);
        let left = errands.trouble.saturating_sub(scheduler.elapsed());
        let Errands {
            has_order,
            has_limits,
            has_groups,
            is_unique,
            has_redrives,
            ..
        } = *errands;
        (
            left,
            has_order,
            has_limits,
            has_groups,
            is_unique,
            has_redrives,
        )
    };
    let mut request = request(caller, &task_type, left);
    if has_order {
        request.ordering = ordering(&request);
    }
    let Some(id) = request.id else { return };
    if has_redrives {
        keep_in_queue(&mut request);
    }
    if is_unique {
        make_unique(&mut request, left);
    }
    if has_limits {
        request.limit_key = limit_key(id);
    }
    if has_groups {
        let elapsed = scheduler.elapsed();
        join_backlog(&mut request, id, (left + elapsed) / 2, elapsed);
    }
    lock(errands).submitted.push(SubmittedTask {
        id,
        settled_at: None,
        keyed: (request.idempotency.is_some()).then(|| Box::new(request.clone())),
    });
    if request.idempotency.is_some() && caller.below(4) > 0 {
        // Two submits of one key at once.
        let mut twin = request.clone();
        twin.id = Some(draw_id(caller));
        if is_unique {
            make_unique(&mut twin, left);
        }
        // The journal records the replies.
        let _ =
            futures_util::future::join(caller.submit(request.clone()), caller.submit(twin)).await;
    }
    for _ in 0..=caller.below(3) {
        // A caller without a clear reply retries. Some retry without a reason.
        let answer = caller.submit(request.clone()).await;
        if answer.is_ok() && caller.below(6) > 0 {
            break;
        }
    }
    let now = scheduler.elapsed();
    if let Some(entry) = lock(errands).submitted.get_mut(place) {
        entry.settled_at = Some(now);
    }
}

fn request(caller: &Caller, task_type: &TaskType, left: Duration) -> SubmitRequest {
    let mut request = SubmitRequest::new(task_type.clone(), small(caller.below(100)));
    request.id = Some(draw_id(caller));
    request.max_retries = Some(u32::try_from(caller.below(4)).unwrap_or_default());
    request.priority = u8::try_from(caller.below(10)).unwrap_or_default();
    request.retry_policy = RetryPolicy {
        initial_interval_ms: 200,
        max_interval_ms: 5_000,
        ..RetryPolicy::default()
    };
    match caller.below(10) {
        0 | 1 => request.input = large(caller.below(u64::MAX)),
        2 => {
            // It is due when the faults are over, so that a task that is late then has no excuse.
            let left_ms = millis(left);
            let most_ms =
                [5_000, 20_000, 150_000][usize::try_from(caller.below(3)).unwrap_or_default()];
            request.available = When::InMillis(caller.below(most_ms).min(left_ms));
        }
        3 => request.expires = Some(When::InMillis(1 + caller.below(20_000))),
        4..=6 => {
            let window_ms = (caller.below(3) == 0).then(|| 5_000 + caller.below(30_000));
            let key = format!("key-{}", caller.below(12));
            if let Ok(key) = key.parse() {
                request.idempotency = Some(IdempotencyRequest {
                    key,
                    scope: IdempotencyScope::Global,
                    window_ms,
                });
            }
        }
        _ => {}
    }
    request
}

/// The order of a task: most share one of three keys. The bits of the id decide, so that nothing else of the run is drawn differently.
pub(crate) fn ordering(request: &SubmitRequest) -> Option<OrderingRule> {
    let bits = request.id?.as_uuid().as_u128() >> 20;
    if request.idempotency.is_some() || bits.is_multiple_of(5) {
        return None;
    }
    Some(OrderingRule {
        key: format!("line-{}", (bits >> 8) % 3).parse().ok()?,
        on_failure: if (bits >> 16) & 1 == 0 {
            OnFailure::Continue
        } else {
            OnFailure::Stop
        },
    })
}

/// The limit key of a task: two of three have one of two keys. The bits of the id decide, so that nothing else of the run is drawn differently.
pub(crate) fn limit_key(id: TaskId) -> Option<LimitKey> {
    let bits = id.as_uuid().as_u128() >> 40;
    let key = format!("account-{}", bits % 3);
    key.parse().ok().filter(|_| bits % 3 < 2)
}

/// Lets most tasks wait until the middle of the run, so that a large group and a small one compete, whose tasks are younger. The bits of the id
/// decide about the group.
fn join_backlog(request: &mut SubmitRequest, id: TaskId, middle: Duration, elapsed: Duration) {
    let bits = id.as_uuid().as_u128() >> 44;
    let (group, later) = if bits.is_multiple_of(8) {
        ("small", YOUNGER)
    } else {
        ("large", Duration::ZERO)
    };
    request.fairness_group = group.parse().ok();
    request.priority = 5;
    if request.available == When::Now && request.expires.is_none() {
        let millis = (middle + later).saturating_sub(elapsed).as_millis();
        request.available = When::InMillis(u64::try_from(millis).unwrap_or_default());
    }
}

/// Lets an idempotency key hold in the queue of the submit, so that it matters to which queue its task is moved. Its name says so: keys with
/// different scopes do not exclude each other.
fn keep_in_queue(request: &mut SubmitRequest) {
    let Some(idempotency) = &mut request.idempotency else {
        return;
    };
    if let Ok(key) = format!("queue-{}", idempotency.key).parse() {
        idempotency.key = key;
        idempotency.scope = IdempotencyScope::Queue;
    }
}

/// Lets a submit with an idempotency key hold the key for part of the task's life, and change the task that holds it. Few keys, so that many are
/// held. The bits of the id decide, so that nothing else of the run is drawn differently.
pub(crate) fn make_unique(request: &mut SubmitRequest, left: Duration) {
    let (Some(id), Some(idempotency)) = (request.id, &mut request.idempotency) else {
        return;
    };
    let bits = id.as_uuid().as_u128() >> 10;
    let of = |shift: u32, count: u128| (bits >> shift) % count;
    let pick = |shift, count: usize| usize::try_from(of(shift, count as u128)).unwrap_or_default();
    let number = (idempotency.key.as_str().bytes().last()).map_or(0, |digit| digit % 3);
    // Keys with different scopes do not exclude each other, so their names differ.
    let key = match idempotency.scope {
        IdempotencyScope::Global => format!("unique-{number}"),
        _ => format!("queue-unique-{number}"),
    };
    if let Ok(key) = key.parse() {
        idempotency.key = key;
    }
    request.uniqueness = Uniqueness {
        hold: KeyHold::ALL[pick(0, KeyHold::ALL.len())],
        on_conflict: OnConflict::ALL[pick(8, OnConflict::ALL.len())],
    };
    // Only an input that fits into a record can replace another one.
    let mark = u64::try_from(of(20, 1_000)).unwrap_or_default();
    request.input = if of(32, 2) == 0 {
        medium(mark)
    } else {
        small(mark)
    };
    // It is due when the faults are over, as above. A task can only be postponed to the future.
    let delay_ms = u64::try_from(of(60, 20_000)).unwrap_or_default();
    let delay_ms = delay_ms.min(millis(left));
    request.available = if request.uniqueness.on_conflict.postpones() {
        When::InMillis(delay_ms.max(1))
    } else {
        When::Now
    };
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn draw_id(caller: &Caller) -> TaskId {
    let bits = (u128::from(caller.below(u64::MAX)) << 64) | u128::from(caller.below(u64::MAX));
    TaskId::from_random(bits)
}

/// Acts on an earlier task.
async fn operate(caller: &Caller, errands: &Mutex<Errands>, scheduler: &Scheduler) {
    let known = {
        let errands = lock(errands);
        let index = caller.below(errands.submitted.len() as u64);
        let index = usize::try_from(index).unwrap_or_default();
        errands.submitted.get(index).cloned()
    };
    let Some(SubmittedTask {
        id,
        settled_at,
        keyed,
    }) = known
    else {
        return;
    };
    let has_redrives = lock(errands).has_redrives;
    match caller.below(16) {
        10..=12 if has_redrives => redrive(caller, id).await,
        0..=2 => drop(caller.cancel(id).await),
        3 | 4 => drop(caller.engine.replay(id).await),
        5 => drop(caller.engine.archive(id).await),
        6 => drop(caller.engine.unarchive(id).await),
        7 | 8 => {
            let now = scheduler.elapsed();
            if settled_at.is_some_and(|at| now > at + PURGE_AFTER) {
                match keyed {
                    Some(request) => {
                        purge_and_submit(caller, errands, scheduler, id, *request).await;
                    }
                    None => drop(caller.engine.purge(id).await),
                }
            }
        }
        9 => {
            let queue = QueueName::default();
            let _ = caller.engine.pause(&queue).await;
            let most_ms = if caller.below(4) == 0 { 150_000 } else { 4_000 };
            caller.sleep(caller.millis(0, most_ms)).await;
            // A client that pauses a queue resumes it, however many retries that takes.
            while caller.engine.resume(&queue).await.is_err() {
                caller.sleep(Duration::from_secs(1)).await;
            }
        }
        _ => drop(caller.engine.get(id).await),
    }
}

/// Moves a task to another queue, and sometimes back at once.
async fn redrive(caller: &Caller, id: TaskId) {
    let Ok(elsewhere) = ELSEWHERE.parse::<QueueName>() else {
        return;
    };
    let [first, second] = match caller.below(3) {
        0 => [Some(QueueName::default()), None],
        1 => [Some(elsewhere), None],
        _ => [Some(elsewhere), Some(QueueName::default())],
    };
    for to in [first, second].into_iter().flatten() {
        // The journal records the reply.
        let _ = caller.engine.redrive(id, to).await;
    }
}

/// Purges a task while its idempotency key is submitted again.
async fn purge_and_submit(
    caller: &Caller,
    errands: &Mutex<Errands>,
    scheduler: &Scheduler,
    id: TaskId,
    mut request: SubmitRequest,
) {
    let next = draw_id(caller);
    request.id = Some(next);
    if lock(errands).is_unique {
        make_unique(&mut request, Duration::ZERO);
    }
    let keyed = Some(Box::new(request.clone()));
    let delay = caller.millis(0, 200);
    let submit = async {
        caller.sleep(delay).await;
        caller.submit(request).await
    };
    // The journal records the replies.
    let _ = futures_util::future::join(caller.engine.purge(id), submit).await;
    lock(errands).submitted.push(SubmittedTask {
        id: next,
        settled_at: Some(scheduler.elapsed()),
        keyed,
    });
}
