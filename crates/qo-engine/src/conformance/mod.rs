//! What qo asks of every engine, asked of every engine.
//!
//! A mode of qo is an [`Engine`]; this is the one list of what that word promises. Each check sees the trait and a [`Harness`],
//! nothing of what lies below, so that an engine that comes later is held to the same list, unchanged. Checks share a space,
//! as the users of a queue do, and keep apart by queues of their own ([`room`]).
//!
//! ```text
//! Harness   how a new process joins the space, how time passes, what the dead left behind is put right
//!    |
//! Room      one check's queue, type and worker
//!    |
//! checks    submitting, keys, claiming, running, leases, operators, looking, refusals, crowds
//! ```
//!
//! All checks are made, also after one has failed, so that one run shows everything that is wrong. The module is built with
//! the feature `conformance` only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a check that cannot go on should stop loudly"
)]

mod claiming;
mod crowds;
mod keys;
mod leases;
mod operators;
mod pauses;
mod query;
mod refusals;
mod room;
mod running;
mod submitting;

use std::fmt::Debug;
use std::future::Future;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use qo_store::runtime::Runtime;

use self::room::Room;
use crate::engine::Engine;

/// What the checks need of an engine beyond its operations.
#[async_trait]
pub trait Harness: Debug + Send + Sync {
    /// What is asked, such as `objects on memory`.
    fn name(&self) -> String;

    /// A new engine on the same space, as another process would have it: it shares nothing with the others but the store.
    async fn engine(&self) -> Arc<dyn Engine>;

    /// Puts right what the dead left behind, once: leases that ran out, tasks that nobody can find, tasks that expired.
    async fn maintain(&self);

    /// Time, sleeping, spawning and randomness.
    fn runtime(&self) -> Arc<dyn Runtime>;

    /// Whether the stored versions of a task are kept.
    fn keeps_versions(&self) -> bool;

    /// The largest payload that the engines of this harness take. A small one keeps the checks cheap.
    fn payload_max_bytes(&self) -> u64;

    /// How many tasks that nobody takes are put before the one that somebody wants.
    fn foreign_tasks(&self) -> usize;
}

type Check = for<'a> fn(&'a Room<'a>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Names checks by their functions.
macro_rules! checks {
    ($($module:ident :: $check:ident),* $(,)?) => {
        &[$((stringify!($check), |room| Box::pin($module::$check(room)))),*]
    };
}

/// Everything that is asked. Those that look at all tasks of the space come first, while there are few.
const CHECKS: &[(&str, Check)] = checks![
    query::lists_by_every_filter,
    query::lists_page_by_page,
    query::refuses_a_cursor_that_it_did_not_give,
    query::counts_tasks,
    query::tells_what_happened,
    query::shows_versions_where_they_are_kept,
    query::knows_its_workers,
    submitting::keeps_every_option,
    submitting::fills_in_the_defaults,
    submitting::returns_the_first_task_of_an_id,
    submitting::keeps_payloads_to_the_byte,
    submitting::keeps_large_payloads,
    submitting::reports_each_of_many,
    keys::one_task_for_one_key,
    keys::keeps_scopes_apart,
    keys::forgets_a_key_after_its_window,
    keys::one_task_for_one_key_at_once,
    claiming::hands_out_nothing_where_nothing_is,
    claiming::serves_by_priority_and_then_by_due_time,
    claiming::serves_the_asked_queues_and_types,
    claiming::hands_out_no_more_than_asked,
    claiming::wakes_a_waiting_claim,
    claiming::wakes_a_waiting_claim_of_another_process,
    claiming::sees_what_another_process_submitted,
    claiming::hands_out_a_delayed_task_in_its_time,
    claiming::leaves_nothing_to_an_idle_worker,
    claiming::does_not_hand_out_what_has_expired,
    pauses::passes_a_paused_queue_by,
    running::completes,
    running::acts_on_many,
    running::keeps_outputs_apart,
    running::renews,
    running::reports_progress,
    running::releases,
    running::snoozes,
    running::retries_and_then_gives_up,
    running::gives_up_at_once_where_nothing_can_help,
    running::retries_after_a_timeout,
    leases::refuses_every_operation_of_a_stale_lease,
    leases::takes_back_the_task_of_a_dead_worker,
    leases::gives_up_a_task_that_kills_its_workers,
    leases::leaves_a_renewed_lease_alone,
    operators::cancels_a_pending_task,
    operators::asks_a_running_task_to_stop,
    operators::cancels_when_the_attempt_ends,
    operators::runs_a_waiting_task_now,
    operators::replays,
    operators::archives_and_unarchives,
    operators::purges_for_good,
    refusals::does_not_know_an_unknown_task,
    refusals::refuses_what_is_out_of_bounds,
    refusals::refuses_payloads_that_are_too_large,
    crowds::hands_out_each_task_once,
    crowds::is_not_starved_by_foreign_tasks,
];

/// Many checks wait for time to pass, and need not wait for each other.
const CHECKS_AT_ONCE: usize = 4;

/// Asks one engine everything, and panics at the end if it failed a check.
pub async fn run(harness: &dyn Harness) {
    let name = harness.name();
    let engine = harness.engine().await;
    let (name, engine) = (&name, &engine);
    let asked = futures_util::stream::iter(CHECKS).map(|(check, ask)| async move {
        let room = Room::new(harness, Arc::clone(engine), check);
        // A check that panics leaves nothing behind but tasks in its own room.
        let ended = AssertUnwindSafe(ask(&room)).catch_unwind().await;
        let outcome = if ended.is_ok() { "ok" } else { "FAILED" };
        say(&format!("engine conformance: {name}: {check} {outcome}"));
        ended.is_err().then_some(*check)
    });
    let failed: Vec<_> = asked
        .buffer_unordered(CHECKS_AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    engine.close().await;
    assert!(failed.is_empty(), "{name} failed {}", failed.join(", "));
}

/// Writes past the capture of the test harness, so that a log shows what was run where.
fn say(line: &str) {
    // Nobody listens if this fails.
    let _ = writeln!(std::io::stderr(), "{line}");
}
