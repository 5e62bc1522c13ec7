//! More submits than the store takes. All of this runs in paused time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use qo_broker::{BrokerEngine, JsonConfig};
use qo_core::Json;
use qo_engine::api::SubmitRequest;
use qo_engine::{Engine, EngineError};
use qo_fixtures::Bucket;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;
use qo_store::wrap::{Delay, LatencyStore};

use super::engines::{claim_one, claim_request, job, json};

/// The time of a request to a slow store.
const LATENCY: Duration = Duration::from_secs(4);

fn engine(bucket: &Bucket, configure: impl FnOnce(&mut JsonConfig)) -> BrokerEngine {
    let runtime: Arc<dyn Runtime> = bucket.runtime.clone();
    let delay = Delay::Fixed(LATENCY);
    let slow = LatencyStore::new(bucket.objects(), Arc::clone(&runtime), delay, 1);
    let mut config = JsonConfig::local();
    config.state.lease_ms = 10_000;
    configure(&mut config);
    let clock = Arc::new(StoreClock::new());
    BrokerEngine::json(
        Arc::new(slow),
        clock,
        runtime,
        ClientConfig::default(),
        config,
    )
}

#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_wait_behind_submits() {
    let bucket = Bucket::new();
    // A write serves two callers, so a dozen submits take longer than a lease.
    let engine = engine(&bucket, |config| config.state.group_max = 2);
    engine.submit(job("a")).await.unwrap();
    let (task, lease) = claim_one(&engine, "a").await;
    let submits = join_all((0..12).map(|_| engine.submit(job("b"))));
    let renewal = async {
        bucket.runtime.sleep(Duration::from_millis(1)).await;
        engine.renew(task.id, lease, None).await
    };
    let (submitted, renewed) = join(submits, renewal).await;
    assert!(submitted.iter().all(Result::is_ok), "{submitted:?}");
    assert_eq!(renewed.unwrap().attempt, 1);
    let done = engine.complete(task.id, lease, None).await;
    assert_eq!(done.unwrap().attempt, 1);
    engine.close().await;
}

/// Submits tasks with this input at the same time to a broker that is writing. Three of eight must be rejected, at once, and leave nothing behind.
async fn three_of_eight_are_rejected(bucket: &Bucket, engine: &BrokerEngine, input: &Json) {
    let request = || SubmitRequest {
        input: input.clone(),
        ..job("b")
    };
    engine.submit(job("a")).await.unwrap();
    let began = bucket.runtime.monotonic();
    let submits = (0..8).map(|_| async {
        let submitted = engine.submit(request()).await;
        (submitted, bucket.runtime.monotonic().saturating_sub(began))
    });
    let submitted = join_all(submits).await;
    let (accepted, rejected): (Vec<_>, Vec<_>) = submitted
        .into_iter()
        .partition(|(result, _)| result.is_ok());
    assert_eq!((accepted.len(), rejected.len()), (5, 3));
    for (result, after) in rejected {
        let error = result.unwrap_err();
        assert!(matches!(error, EngineError::Overloaded { .. }), "{error}");
        assert_eq!(after, Duration::ZERO);
    }
    // There is room again, and what was rejected has left nothing behind.
    let claimed = engine.claim(&claim_request("b", 9, 0)).await.unwrap();
    assert_eq!(claimed.len(), 5);
    engine.submit(request()).await.unwrap();
    engine.close().await;
}

#[tokio::test(start_paused = true)]
async fn submits_beyond_the_limit_are_rejected_at_once() {
    let bucket = Bucket::new();
    let engine = engine(&bucket, |config| config.state.submits_max = 5);
    three_of_eight_are_rejected(&bucket, &engine, &json("1")).await;
}

/// An input of this many bytes that is stored with its task.
fn input_of(bytes: usize) -> Json {
    json(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

#[tokio::test(start_paused = true)]
async fn submits_beyond_the_limit_on_bytes_are_rejected_at_once() {
    let bucket = Bucket::new();
    // There is room for the records beside the inputs, but not for a sixth input.
    let engine = engine(&bucket, |config| {
        config.state.submit_bytes_max = 5 * 8_000 + 7_000;
    });
    three_of_eight_are_rejected(&bucket, &engine, &input_of(8_000)).await;
}

#[tokio::test(start_paused = true)]
async fn a_submit_above_the_limit_on_bytes_is_accepted_alone() {
    let bucket = Bucket::new();
    let engine = engine(&bucket, |config| config.state.submit_bytes_max = 4_000);
    let large = || SubmitRequest {
        input: input_of(8_000),
        ..job("b")
    };
    let (first, second) = join(engine.submit(large()), engine.submit(large())).await;
    assert!(first.is_ok(), "{first:?}");
    let error = second.unwrap_err();
    assert!(matches!(error, EngineError::Overloaded { .. }), "{error}");
    // It would never be accepted otherwise.
    engine.submit(large()).await.unwrap();
    engine.close().await;
}
