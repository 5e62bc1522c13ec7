//! Conditional writes under every response.

use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::*;
use crate::client::Written;
use crate::client::testing::Fault::{self, Hang, Late, LostRequest, LostResponse, Status, Twice};
use crate::client::testing::OtherWriter;
use crate::error::StoreError;

const GET: &str = "GET";
const PUT: &str = "PUT";

#[derive(Debug, PartialEq, Eq)]
enum WriteEnd {
    Confirmed,
    Recognised,
    BuiltUpon,
    Lost,
    InDoubt,
    Unavailable,
    Throttled,
    Denied,
    Unsupported,
}

fn write_end(result: &Result<Written, StoreError>) -> WriteEnd {
    match result {
        Ok(Written::Confirmed(_)) => WriteEnd::Confirmed,
        Ok(Written::Recognised(_)) => WriteEnd::Recognised,
        Ok(Written::BuiltUpon) => WriteEnd::BuiltUpon,
        Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => WriteEnd::Lost,
        Err(StoreError::Unavailable { in_doubt: true, .. }) => WriteEnd::InDoubt,
        Err(StoreError::Unavailable { .. }) => WriteEnd::Unavailable,
        Err(StoreError::Throttled { .. }) => WriteEnd::Throttled,
        Err(StoreError::Denied { .. }) => WriteEnd::Denied,
        Err(StoreError::Unsupported { .. }) => WriteEnd::Unsupported,
        Err(other) => panic!("{other}"),
    }
}

type Row = (
    &'static str,
    Vec<(Fault, Option<OtherWriter>)>,
    WriteEnd,
    Vec<&'static str>,
);

fn by_other() -> OtherWriter {
    OtherWriter::Writes(record(200, &[]))
}

fn built_upon() -> OtherWriter {
    OtherWriter::Writes(record(200, &[1]))
}

/// The rows that apply to both kinds of conditional write. Their operation is number 1.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn common_rows() -> Vec<Row> {
    const SLOW: Fault = Status(503, "SlowDown", false);
    vec![
        ("plain", vec![], WriteEnd::Confirmed, vec![PUT]),
        (
            "lost request",
            vec![(LostRequest, None)],
            WriteEnd::Confirmed,
            vec![PUT, GET, PUT],
        ),
        (
            "lost response",
            vec![(LostResponse, None)],
            WriteEnd::Recognised,
            vec![PUT, GET],
        ),
        (
            "hanging, applied",
            vec![(Hang(true), None)],
            WriteEnd::Recognised,
            vec![PUT, GET],
        ),
        (
            "500 after applying",
            vec![(Status(500, "InternalError", true), None)],
            WriteEnd::Recognised,
            vec![PUT, GET],
        ),
        (
            "500 instead",
            vec![(Status(500, "InternalError", false), None)],
            WriteEnd::Confirmed,
            vec![PUT, GET, PUT],
        ),
        (
            "409",
            vec![(Status(409, "ConditionalRequestConflict", false), None)],
            WriteEnd::Confirmed,
            vec![PUT, GET, PUT],
        ),
        (
            "409 because another writer won",
            vec![(
                Status(409, "ConditionalRequestConflict", false),
                Some(by_other()),
            )],
            WriteEnd::Lost,
            vec![PUT, GET],
        ),
        (
            "lost response, then built upon",
            vec![(LostResponse, Some(built_upon()))],
            WriteEnd::BuiltUpon,
            vec![PUT, GET],
        ),
        (
            "lost request, then another writer wins",
            vec![(LostRequest, Some(by_other()))],
            WriteEnd::Lost,
            vec![PUT, GET],
        ),
        (
            "another writer wins between the read and the second attempt",
            vec![(LostRequest, None), (Fault::None, Some(by_other()))],
            WriteEnd::Lost,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "the first copy arrives between the read and the second attempt",
            vec![
                (LostRequest, None),
                (Fault::None, Some(OtherWriter::Writes(record(1, &[100])))),
            ],
            WriteEnd::Recognised,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "as before, and is built upon",
            vec![(LostRequest, None), (Fault::None, Some(built_upon()))],
            WriteEnd::BuiltUpon,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "throttled twice: no reads",
            vec![(SLOW, None), (Status(429, "", false), None)],
            WriteEnd::Confirmed,
            vec![PUT, PUT, PUT],
        ),
        (
            "503 though applied",
            vec![(Status(503, "", true), None)],
            WriteEnd::Recognised,
            vec![PUT, PUT, GET],
        ),
        (
            "throttled, then another writer wins",
            vec![(SLOW, Some(by_other()))],
            WriteEnd::Lost,
            vec![PUT, PUT, GET],
        ),
        (
            "the read fails twice",
            vec![
                (LostResponse, None),
                (Status(500, "", false), None),
                (Fault::Torn, None),
            ],
            WriteEnd::Recognised,
            vec![PUT, GET, GET, GET],
        ),
        (
            "denied at once",
            vec![(Status(403, "AccessDenied", false), None)],
            WriteEnd::Denied,
            vec![PUT],
        ),
        (
            "rejected at once",
            vec![(Status(400, "EntityTooLarge", false), None)],
            WriteEnd::Unsupported,
            vec![PUT],
        ),
        (
            "a lost request, then denied: the first copy may still arrive",
            vec![
                (LostRequest, None),
                (Fault::None, None),
                (Status(403, "ExpiredToken", false), None),
            ],
            WriteEnd::InDoubt,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "a 409, then denied: nothing was applied",
            vec![
                (Status(409, "", false), None),
                (Fault::None, None),
                (Status(403, "ExpiredToken", false), None),
            ],
            WriteEnd::Denied,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "applied, then reads are denied too",
            vec![
                (LostResponse, None),
                (Status(403, "AccessDenied", false), None),
            ],
            WriteEnd::InDoubt,
            vec![PUT, GET],
        ),
        (
            "applied twice",
            vec![(Twice(Duration::from_secs(1)), None)],
            WriteEnd::Confirmed,
            vec![PUT],
        ),
    ]
}

fn elapsed_since(client: &StoreClient, before: Duration) -> Duration {
    client.shared.runtime.monotonic().saturating_sub(before)
}

async fn check(row: Row, swaps: bool) {
    let (name, script, expected, calls) = row;
    let (store, client) = scripted();
    let tag = if swaps {
        Some(created(&store, &client).await)
    } else {
        None
    };
    for (fault, other_writer) in script {
        match other_writer {
            Some(other_writer) => store.then_with_other_writer(fault, other_writer),
            None => store.then(fault),
        };
    }
    let before = client.shared.runtime.monotonic();
    let result = match &tag {
        Some(tag) => client.swap(KEY, record(1, &[100]), tag, &op(1)).await,
        None => client.create(KEY, record(1, &[100]), &op(1)).await,
    };
    let name = format!("{name} (swap: {swaps}): {result:?}");
    assert_eq!(write_end(&result), expected, "{name}");
    assert_eq!(store.calls(), calls, "{name}");
    assert!(elapsed_since(&client, before) <= longest(), "{name}");
    if let Err(StoreError::Conflict { .. }) = result {
        assert!(swaps, "{name}");
    }
    // A returned tag is valid for the next swap.
    if let Some(tag) = result.ok().as_ref().and_then(Written::tag) {
        let next = client.swap(KEY, record(2, &[1, 100]), tag, &op(2)).await;
        assert_eq!(write_end(&next), WriteEnd::Confirmed, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_response_leads_to_its_action() {
    for swaps in [false, true] {
        for row in common_rows() {
            check(row, swaps).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_refusal_is_final_and_costs_no_read() {
    let (store, client) = scripted();
    created(&store, &client).await;
    let again = client.create(KEY, record(1, &[]), &op(1)).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists { .. })));
    let stale = Tag::new(Some("\"stale\"".to_owned()), None).unwrap();
    let swap = client.swap(KEY, record(1, &[]), &stale, &op(1)).await;
    assert!(matches!(swap, Err(StoreError::Conflict { .. })));
    let missing = client.swap("missing", record(1, &[]), &stale, &op(1)).await;
    assert!(matches!(missing, Err(StoreError::Conflict { .. })));
    store.then(Status(404, "NoSuchKey", false));
    let missing = client.swap("missing", record(1, &[]), &stale, &op(1)).await;
    assert!(matches!(missing, Err(StoreError::Conflict { .. })));
    assert_eq!(store.calls(), [PUT; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_first_refusal_is_read_back_if_a_proxy_resends_requests() {
    let (store, client) = scripted();
    let wary = StoreClient::new(
        Arc::clone(&store) as Arc<dyn ObjectStore>,
        Arc::new(StoreClock::new()),
        Arc::clone(&client.shared.runtime),
        ClientConfig {
            trust_first_refusal: false,
            ..ClientConfig::default()
        },
    );
    // The first copy was applied, and the response to the second one arrives.
    store.then(Status(412, "", true));
    let created = wary.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(write_end(&created), WriteEnd::Recognised);
    let again = wary.create(KEY, record(2, &[]), &op(2)).await;
    assert_eq!(write_end(&again), WriteEnd::Lost);
    assert_eq!(store.calls(), [PUT, GET, PUT, GET]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_bucket_is_not_a_missing_key() {
    let (store, client) = scripted();
    store.then(Status(404, "", false));
    let created = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(write_end(&created), WriteEnd::Denied);
}

#[tokio::test(start_paused = true)]
async fn a_swap_of_a_deleted_object_is_in_doubt_only_if_it_may_have_been_applied() {
    for (fault, expected) in [
        (LostResponse, WriteEnd::InDoubt),
        (LostRequest, WriteEnd::InDoubt),
        (Status(409, "", false), WriteEnd::Lost),
    ] {
        let (store, client) = scripted();
        let tag = created(&store, &client).await;
        store.then_with_other_writer(fault, OtherWriter::Deletes);
        let result = client.swap(KEY, record(1, &[100]), &tag, &op(1)).await;
        assert_eq!(write_end(&result), expected, "{fault:?}");
        assert_eq!(store.calls(), [PUT, GET]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_without_its_operation_id_is_in_doubt() {
    for (fault, expected) in [
        (LostResponse, WriteEnd::InDoubt),
        (Status(409, "", false), WriteEnd::Lost),
    ] {
        let (store, client) = scripted();
        store.then_with_other_writer(fault, OtherWriter::Writes("another writer's".into()));
        let result = client.create(KEY, "plain".into(), &op(1)).await;
        assert_eq!(write_end(&result), expected, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_is_never_applied_a_second_time() {
    // From before the first read to long after the write was reported.
    for delay_ms in [0, 1, 10, 20, 40, 60, 100, 1_000, 60_000] {
        for swaps in [false, true] {
            let (store, client) = scripted();
            let tag = if swaps {
                Some(created(&store, &client).await)
            } else {
                None
            };
            store.then(Late(Duration::from_millis(delay_ms)));
            let result = match &tag {
                Some(tag) => client.swap(KEY, record(1, &[100]), tag, &op(1)).await,
                None => client.create(KEY, record(1, &[100]), &op(1)).await,
            };
            let written = result.unwrap();
            let next = client
                .swap(KEY, record(2, &[1, 100]), written.tag().unwrap(), &op(2))
                .await;
            assert_eq!(write_end(&next), WriteEnd::Confirmed, "{delay_ms}");
            client.shared.runtime.sleep(Duration::from_mins(2)).await;
            let stored = client.get(KEY).await.unwrap();
            assert_eq!(stored.body, record(2, &[1, 100]), "{delay_ms}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_lost_swap_changes_nothing() {
    let (store, client) = scripted();
    let tag = created(&store, &client).await;
    store.then_with_other_writer(
        Late(Duration::from_mins(1)),
        OtherWriter::Writes(record(200, &[])),
    );
    let result = client.swap(KEY, record(1, &[100]), &tag, &op(1)).await;
    assert_eq!(write_end(&result), WriteEnd::Lost);
    client.shared.runtime.sleep(Duration::from_mins(2)).await;
    assert_eq!(client.get(KEY).await.unwrap().body, record(200, &[]));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_failing_ends_each_write_with_its_error() {
    for (fault, expected) in [
        (Status(503, "SlowDown", false), WriteEnd::Throttled),
        (Status(429, "", false), WriteEnd::Throttled),
        (Status(503, "", false), WriteEnd::InDoubt),
        (Status(500, "", false), WriteEnd::InDoubt),
        (LostRequest, WriteEnd::InDoubt),
        (Hang(false), WriteEnd::InDoubt),
        (Hang(true), WriteEnd::InDoubt),
        (Status(409, "", false), WriteEnd::InDoubt),
    ] {
        let (store, client) = scripted();
        for _ in 0..100 {
            store.then(fault);
        }
        let before = client.shared.runtime.monotonic();
        let result = client.create(KEY, record(1, &[]), &op(1)).await;
        assert_eq!(write_end(&result), expected, "{fault:?}");
        let took = elapsed_since(&client, before);
        assert!(took <= longest(), "{fault:?} took {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn endless_contention_is_not_in_doubt() {
    let (store, client) = scripted();
    for _ in 0..100 {
        store.then(Status(409, "", false)).then(Fault::None);
    }
    let result = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(write_end(&result), WriteEnd::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_write_is_settled_after_the_budget_is_exhausted() {
    let (store, client) = scripted();
    store.then(Hang(false)).then(Fault::None).then(Hang(true));
    let before = client.shared.runtime.monotonic();
    let result = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(write_end(&result), WriteEnd::Recognised);
    assert_eq!(store.calls(), [PUT, GET, PUT, GET]);
    let took = elapsed_since(&client, before);
    assert!(took >= ClientConfig::default().retry.budget, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_before_lasting_throttling_is_settled_at_the_end() {
    let (store, client) = scripted();
    store.then(LostRequest).then(Fault::None);
    for _ in 0..11 {
        store.then(Status(503, "SlowDown", false));
    }
    let result = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(write_end(&result), WriteEnd::InDoubt);
    let calls = store.calls();
    assert_eq!(calls.last(), Some(&GET), "{calls:?}");
    assert_eq!(calls.iter().filter(|call| **call == GET).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_tags_is_unsupported() {
    let runtime: Arc<dyn Runtime> = Arc::new(PausableRuntime::new(7));
    let mut store = ScriptedStore::new(Arc::clone(&runtime));
    store.omits_tags = true;
    let client = client_of(Arc::new(store), runtime);
    let created = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(write_end(&created), WriteEnd::Unsupported);
    assert!(matches!(
        client.put(KEY, "x".into()).await,
        Err(StoreError::Unsupported { .. })
    ));
    assert!(matches!(
        client.get(KEY).await,
        Err(StoreError::Unsupported { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn an_unconditional_write_is_retried() {
    let (store, client) = scripted();
    store
        .then(LostResponse)
        .then(Status(500, "", true))
        .then(Status(409, "", false))
        .then(Status(503, "SlowDown", false));
    let tag = client.put(KEY, "x".into()).await.unwrap();
    assert_eq!(store.calls(), [PUT; 5]);
    assert!(client.get(KEY).await.unwrap().tag.matches(&tag));
    for _ in 0..100 {
        store.then(LostRequest);
    }
    assert!(matches!(
        client.put(KEY, "y".into()).await,
        Err(StoreError::Unavailable { in_doubt: true, .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn keys_are_used_verbatim_or_rejected() {
    let (store, client) = scripted();
    for bad in ["", "/a", "a/", "a//b", "a/../b", ".", "a\nb"] {
        let result = client.put(bad, "x".into()).await;
        assert!(
            matches!(result, Err(StoreError::Unsupported { .. })),
            "{bad:?}"
        );
    }
    assert!(store.calls().is_empty());
    for good in ["a b/ü.json", "a%2Fb", "a/b+c=d&e?f#g"] {
        client.put(good, "x".into()).await.unwrap();
        assert!(store.inner.head(&Path::parse(good).unwrap()).await.is_ok());
    }
}

#[test]
fn operations_can_be_spawned() {
    fn sendable<T: Send>(_: &T) {}
    fn never_called(client: &StoreClient, tag: &Tag) {
        sendable(&client.create(KEY, Bytes::new(), &op(1)));
        sendable(&client.swap(KEY, Bytes::new(), tag, &op(1)));
        sendable(&client.put(KEY, Bytes::new()));
        sendable(&client.get(KEY));
        sendable(&client.get_if_changed(KEY, tag));
        sendable(&client.page("", None, 1));
        sendable(&client.delete_many(&[]));
    }
    let _: fn(&StoreClient, &Tag) = never_called;
}
