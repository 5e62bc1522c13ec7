//! The conformance suite: the tests that every engine must pass.
//!
//! The checks define the behaviour that the [`Engine`] trait promises. Each check uses only the trait and a [`Harness`], so a new
//! engine runs the same checks unchanged. All checks share one store, as users of a queue do. Each check works in its own queue
//! ([`context`]).
//!
//! ```text
//! Harness       starts engines on the shared store, runs maintenance, provides the clock
//!    |
//! TestContext   the queue, task type and worker of one check
//!    |
//! checks        submitting, idempotency, claiming, pausing, running, leases, operators, ordering, limits, query, rejections, contention,
//!               documents, queue_settings, uniqueness, fairness, webhooks
//! ```
//!
//! All checks run even if some fail, so that one run shows all failures. The module is built only with the feature `conformance`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a check fails by panicking"
)]

mod claiming;
mod contention;
mod context;
mod documents;
mod fairness;
mod idempotency;
mod later_versions;
mod leases;
mod limits;
mod operators;
mod ordering;
mod pausing;
mod query;
mod queue_settings;
mod rejections;
mod running;
mod submitting;
mod uniqueness;
mod webhooks;

use std::fmt::Debug;
use std::future::Future;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use qo_store::runtime::Runtime;

use self::context::TestContext;
pub use self::later_versions::refusals;
use crate::engine::Engine;

/// What the checks need besides the engine's operations.
#[async_trait]
pub trait Harness: Debug + Send + Sync {
    /// The name of the tested engine and store, such as `direct on memory`.
    fn name(&self) -> String;

    /// Creates an engine on the same store, as another process would: it shares only the store with the other engines.
    async fn engine(&self) -> Arc<dyn Engine>;

    /// Runs one round of maintenance: expires leases, repairs missing index entries, cancels expired tasks.
    async fn maintain(&self);

    /// Time, sleeping, spawning and randomness.
    fn runtime(&self) -> Arc<dyn Runtime>;

    /// Whether the store keeps versions of a task.
    fn keeps_versions(&self) -> bool {
        false
    }

    /// Whether queues can have settings. They cannot in a queue that is divided over several engines.
    fn has_queue_settings(&self) -> bool {
        true
    }

    /// Whether claims of single tasks show the turns of groups. Direct mode over HTTP takes the tasks of a page in any order.
    fn has_turns(&self) -> bool {
        true
    }

    /// The payload size limit of the harness's engines. A low limit keeps the checks fast.
    fn payload_max_bytes(&self) -> u64;

    /// How many tasks of another type are submitted ahead of the task that the starvation check claims.
    fn foreign_tasks(&self) -> usize;
}

type Check = for<'a> fn(&'a TestContext<'a>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Pairs each check with the name of its function.
macro_rules! checks {
    ($($module:ident :: $check:ident),* $(,)?) => {
        &[$((stringify!($check), |ctx| Box::pin($module::$check(ctx)))),*]
    };
}

/// All checks. Those that read all tasks of the store come first, while there are few tasks.
const CHECKS: &[(&str, Check)] = checks![
    query::lists_by_every_filter,
    query::lists_page_by_page,
    query::lists_the_newest_first,
    query::finds_texts_in_inputs_and_errors,
    query::rejects_an_invalid_cursor,
    query::counts_tasks,
    query::returns_the_history_of_a_task,
    query::returns_stored_versions,
    query::lists_registered_workers,
    submitting::stores_every_option,
    submitting::applies_the_defaults,
    submitting::returns_the_first_task_for_a_repeated_id,
    submitting::stores_payloads_byte_for_byte,
    submitting::stores_large_payloads,
    submitting::returns_one_result_per_submit,
    idempotency::creates_one_task_per_key,
    idempotency::separates_key_scopes,
    idempotency::releases_a_key_after_its_window,
    idempotency::creates_one_task_per_key_concurrently,
    uniqueness::holds_a_key_while_the_task_waits,
    uniqueness::holds_a_key_until_the_task_is_finished,
    uniqueness::replaces_the_input_of_a_waiting_task,
    uniqueness::postpones_a_waiting_task,
    uniqueness::lets_one_submit_win_a_free_key,
    uniqueness::refuses_invalid_uniqueness,
    claiming::claims_nothing_when_nothing_is_ready,
    claiming::claims_by_priority_then_due_time,
    claiming::claims_only_requested_queues_and_types,
    claiming::claims_at_most_the_requested_number,
    claiming::wakes_a_waiting_claim,
    claiming::wakes_a_waiting_claim_of_another_process,
    claiming::claims_a_task_of_another_process,
    claiming::claims_a_delayed_task_when_due,
    claiming::takes_the_share_of_an_idle_worker,
    claiming::does_not_claim_expired_tasks,
    pausing::skips_a_paused_queue,
    pausing::skips_a_paused_type,
    documents::changes_documents_by_compare_and_swap,
    documents::refuses_invalid_documents,
    documents::submits_tasks_with_a_document,
    ordering::orders_tasks_of_documents,
    queue_settings::applies_the_settings_of_a_queue,
    queue_settings::rejects_submits_to_a_full_queue,
    queue_settings::fails_tasks_that_waited_too_long,
    queue_settings::refuses_invalid_settings,
    running::completes,
    running::acts_on_many,
    running::keeps_logs,
    running::protects_outputs_from_foreign_leases,
    running::renews,
    running::reports_progress,
    running::releases,
    running::snoozes,
    running::retries_up_to_the_limit_then_fails,
    running::fails_at_once_on_a_permanent_error,
    running::retries_after_a_timeout,
    leases::rejects_every_operation_with_a_stale_lease,
    leases::retries_the_task_of_a_dead_worker,
    leases::fails_a_task_that_kills_its_workers,
    leases::does_not_expire_a_renewed_lease,
    operators::cancels_a_pending_task,
    operators::requests_cancellation_of_a_running_task,
    operators::cancels_when_the_attempt_ends,
    operators::runs_a_delayed_task_now,
    operators::replays,
    operators::redrives_a_waiting_task,
    operators::redrives_a_failed_task,
    operators::archives_and_unarchives,
    operators::records_who_acted,
    operators::purges_everything,
    operators::asks_a_worker,
    ordering::runs_tasks_of_one_key_in_submit_order,
    ordering::keeps_the_place_of_a_returned_task,
    ordering::keeps_the_place_of_a_task_whose_worker_died,
    ordering::passes_over_tasks_that_left_the_line,
    ordering::continues_after_a_failure,
    ordering::stops_a_key_until_the_failed_task_is_replayed,
    ordering::stops_a_key_until_the_failed_task_is_cancelled,
    ordering::lets_a_replayed_task_join_at_the_end,
    ordering::orders_concurrent_workers,
    limits::runs_no_more_tasks_than_a_limit_allows,
    limits::follows_a_changed_limit,
    limits::passes_over_tasks_that_wait_for_a_limit,
    limits::returns_a_slot_however_the_attempt_ends,
    limits::returns_the_slot_of_a_dead_worker,
    limits::starts_no_more_tasks_than_a_window_allows,
    limits::needs_a_slot_of_each_limit,
    limits::keeps_a_limit_among_concurrent_workers,
    limits::refuses_invalid_limits,
    fairness::does_not_let_a_group_delay_the_first_task_of_another,
    fairness::gives_groups_turns_by_their_weights,
    webhooks::submits_a_delivery_for_each_end,
    webhooks::delivers_the_end_of_a_task_that_killed_its_worker,
    webhooks::delivers_the_cancel_of_a_task_that_stops_its_key,
    webhooks::refuses_invalid_webhooks,
    rejections::reports_an_unknown_task_as_not_found,
    rejections::rejects_out_of_bounds_values,
    rejections::rejects_payloads_over_the_limit,
    contention::claims_each_task_once,
    contention::is_not_starved_by_foreign_types,
];

/// How many checks run concurrently. Many checks mostly wait for time to pass.
const CHECK_CONCURRENCY: usize = 4;

/// Runs all checks against one engine, then panics if any failed.
pub async fn run(harness: &dyn Harness) {
    let name = harness.name();
    let engine = harness.engine().await;
    let (name, engine) = (&name, &engine);
    let results = futures_util::stream::iter(CHECKS).map(|(check, run_check)| async move {
        let ctx = TestContext::new(harness, Arc::clone(engine), check);
        // A check that panics leaves only tasks in its own queue behind.
        let result = AssertUnwindSafe(run_check(&ctx)).catch_unwind().await;
        let outcome = if result.is_ok() { "ok" } else { "FAILED" };
        print_line(&format!("engine conformance: {name}: {check} {outcome}"));
        result.is_err().then_some(*check)
    });
    let failed: Vec<_> = results
        .buffer_unordered(CHECK_CONCURRENCY)
        .filter_map(std::future::ready)
        .collect()
        .await;
    engine.close().await;
    assert!(failed.is_empty(), "{name} failed {}", failed.join(", "));
}

/// Writes to stderr directly, bypassing the output capture of the test harness, so that logs always show which checks ran.
fn print_line(line: &str) {
    // A closed stderr must not fail the run.
    let _ = writeln!(std::io::stderr(), "{line}");
}
