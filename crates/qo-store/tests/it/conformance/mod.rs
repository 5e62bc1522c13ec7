//! The checks that every store must pass.
//!
//! Where it makes sense, a check runs against both the raw `ObjectStore`, as SlateDB uses it, and the
//! [`StoreClient`], whose results must not depend on the store. [`run`] prints the store and the check to standard
//! error, past the output capture of the test harness, so that a log shows what ran. To add a store, add a test in
//! `stores`.

mod admin;
mod conditions;
mod deleting;
mod listing;
mod objects;
mod races;
mod stores;

use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::path::Path;
use qo_core::OpId;
use qo_store::admin::{BucketAdmin, Versioning};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, RuntimeExt, TokioRuntime};
use qo_store::{Store, StoreClient};

/// A store and the parameters of its checks.
struct StoreUnderTest {
    name: &'static str,
    objects: Arc<dyn ObjectStore>,
    admin: Option<Arc<dyn BucketAdmin>>,
    /// The clock that the store's responses update, if it has one.
    clock: Option<Arc<StoreClock>>,
    versioned: bool,
    /// Whether it can read the last bytes of an object without its size. Azure cannot, and qo does not need it.
    suffix_ranges: bool,
    /// The number of writers that contend for one key.
    fan_out: usize,
    /// The number of rounds.
    rounds: usize,
    runtime: Arc<dyn Runtime>,
    client: StoreClient,
}

impl StoreUnderTest {
    fn new(name: &'static str, store: Store) -> Self {
        let runtime = TokioRuntime::shared();
        let client = StoreClient::new(
            Arc::clone(&store.objects),
            Arc::clone(&store.clock),
            Arc::clone(&runtime),
            ClientConfig::default(),
        );
        Self {
            name,
            objects: store.objects,
            admin: store.admin,
            // Only a server's responses contain the time.
            clock: (!store.endpoint.is_empty()).then_some(store.clock),
            versioned: false,
            suffix_ranges: true,
            fan_out: 16,
            rounds: 16,
            runtime,
            client,
        }
    }

    /// A key that no other check uses.
    fn key(&self, name: &str) -> String {
        format!("conformance/{:016x}/{name}", self.runtime.random())
    }

    /// A prefix that no other check uses.
    fn prefix(&self) -> String {
        format!("conformance/{:016x}", self.runtime.random())
    }

    fn op(&self) -> OpId {
        self.runtime.new_op_id()
    }
}

/// The result of a check that did not fail.
enum CheckResult {
    Passed,
    /// Passed, with a note on behaviour that may differ between stores.
    Noted(String),
    /// The store does not support this, and qo does not need it.
    Unsupported(String),
}

type Check = for<'a> fn(&'a StoreUnderTest) -> Pin<Box<dyn Future<Output = CheckResult> + 'a>>;

/// Lists checks by their functions.
macro_rules! checks {
    ($($module:ident :: $check:ident),* $(,)?) => {
        &[$((stringify!($check), |store| Box::pin($module::$check(store)))),*]
    };
}

const CHECKS: &[(&str, Check)] = checks![
    objects::round_trips_bodies_of_every_size,
    objects::keeps_unusual_keys,
    objects::allows_an_object_with_the_name_of_a_folder,
    objects::overwrites,
    objects::reads_ranges,
    objects::uploads_in_parts,
    objects::copies,
    objects::reads_only_what_changed,
    objects::reports_missing_objects,
    conditions::creates_only_missing_objects,
    conditions::swaps_only_with_the_current_tag,
    conditions::swaps_nothing_into_a_missing_key,
    conditions::tags_identify_every_state,
    conditions::keeps_or_changes_the_tag_of_equal_bytes,
    races::one_create_wins,
    races::one_swap_wins,
    races::one_create_wins_through_the_client,
    races::one_swap_wins_through_the_client,
    races::no_increment_is_lost,
    listing::lists_in_order_and_by_whole_segments,
    listing::orders_folders_among_their_siblings,
    listing::starts_after_any_key,
    listing::walks_a_tree_from_key_to_key,
    listing::lists_what_was_just_written_and_deleted,
    listing::pages_through_more_than_two_thousand_keys,
    deleting::deletes_many_and_ignores_missing_objects,
    deleting::deletes_more_than_a_thousand,
    admin::reports_its_versioning,
    admin::keeps_versions,
    admin::keeps_cors_rules,
    admin::keeps_lifecycle_rules,
    admin::shows_its_clock,
];

/// Runs all checks on one store. A failed check panics; its name is the last one printed.
async fn run(store: StoreUnderTest) {
    let mut say = std::io::stderr();
    for (check, ask) in CHECKS {
        let name = store.name;
        writeln!(say, "conformance: {name}: {check} ...").unwrap();
        let outcome = match ask(&store).await {
            CheckResult::Passed => "ok".to_owned(),
            CheckResult::Noted(note) => format!("ok ({note})"),
            CheckResult::Unsupported(why) => format!("unsupported: {why}"),
        };
        writeln!(say, "conformance: {name}: {check} {outcome}").unwrap();
    }
}

fn path(key: &str) -> Path {
    Path::parse(key).unwrap()
}

/// A record that `op` wrote as revision `revision`, after `earlier`.
fn record(revision: u64, op: OpId, earlier: &[OpId]) -> Bytes {
    let record = serde_json::json!({ "revision": revision, "op_id": op, "recent_ops": earlier });
    record.to_string().into()
}

/// Runs `count` futures concurrently on all threads and returns their results.
async fn at_once<T, F>(count: usize, each: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut set = tokio::task::JoinSet::new();
    for number in 0..count {
        set.spawn(each(number));
    }
    set.join_all().await
}
