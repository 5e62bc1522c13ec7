//! Tests of every row of the tables in the [module's documentation](super).

mod counter;
mod reads;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectStore;
use qo_core::OpId;

use super::testing::ScriptedStore;
use super::{ClientConfig, StoreClient, Tag};
use crate::clock::StoreClock;
use crate::runtime::{Runtime, RuntimeExt};
use crate::wrap::testing::PausableRuntime;

const KEY: &str = "tasks/a/1.json";

/// A client of a scripted store.
fn scripted() -> (Arc<ScriptedStore>, StoreClient) {
    let runtime: Arc<dyn Runtime> = Arc::new(PausableRuntime::new(7));
    let store = Arc::new(ScriptedStore::new(Arc::clone(&runtime)));
    (Arc::clone(&store), client_of(store, runtime))
}

fn client_of(store: Arc<dyn ObjectStore>, runtime: Arc<dyn Runtime>) -> StoreClient {
    StoreClient::new(
        store,
        Arc::new(StoreClock::new()),
        runtime,
        ClientConfig::default(),
    )
}

fn op(number: u128) -> OpId {
    OpId::from_random(number)
}

/// A record that operation `newest` wrote after the operations `earlier`.
fn record(newest: u128, earlier: &[u128]) -> Bytes {
    let recent: Vec<_> = earlier.iter().map(|number| op(*number)).collect();
    let record = serde_json::json!({
        "revision": earlier.len(),
        "op_id": op(newest),
        "recent_ops": recent,
    });
    record.to_string().into()
}

/// Creates the object and clears the recorded requests.
async fn created(store: &ScriptedStore, client: &StoreClient) -> Tag {
    let written = client.create(KEY, record(100, &[]), &op(100)).await;
    store.calls();
    written.unwrap().tag().unwrap().clone()
}

/// The maximum duration of a write.
fn longest() -> Duration {
    let retry = ClientConfig::default().retry;
    retry.budget + retry.settle
}
