//! Conditional writes under every answer.

use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::*;
use crate::client::Written;
use crate::client::testing::Fault::{self, Hang, Late, LostAnswer, LostRequest, Status, Twice};
use crate::client::testing::Meddling;
use crate::error::StoreError;

const GET: &str = "GET";
const PUT: &str = "PUT";

#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Answered,
    Recognised,
    BuiltUpon,
    Lost,
    InDoubt,
    Unavailable,
    Throttled,
    Denied,
    Unsupported,
}

fn ending(result: &Result<Written, StoreError>) -> Ending {
    match result {
        Ok(Written::Answered(_)) => Ending::Answered,
        Ok(Written::Recognised(_)) => Ending::Recognised,
        Ok(Written::BuiltUpon) => Ending::BuiltUpon,
        Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => Ending::Lost,
        Err(StoreError::Unavailable { in_doubt: true, .. }) => Ending::InDoubt,
        Err(StoreError::Unavailable { .. }) => Ending::Unavailable,
        Err(StoreError::Throttled { .. }) => Ending::Throttled,
        Err(StoreError::Denied { .. }) => Ending::Denied,
        Err(StoreError::Unsupported { .. }) => Ending::Unsupported,
        Err(other) => panic!("{other}"),
    }
}

type Row = (
    &'static str,
    Vec<(Fault, Option<Meddling>)>,
    Ending,
    Vec<&'static str>,
);

fn by_other() -> Meddling {
    Meddling::Writes(record(200, &[]))
}

fn built_upon() -> Meddling {
    Meddling::Writes(record(200, &[1]))
}

/// What both kinds of conditional write do. Their operation is number 1.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn common_rows() -> Vec<Row> {
    const SLOW: Fault = Status(503, "SlowDown", false);
    vec![
        ("plain", vec![], Ending::Answered, vec![PUT]),
        (
            "lost request",
            vec![(LostRequest, None)],
            Ending::Answered,
            vec![PUT, GET, PUT],
        ),
        (
            "lost answer",
            vec![(LostAnswer, None)],
            Ending::Recognised,
            vec![PUT, GET],
        ),
        (
            "hanging, applied",
            vec![(Hang(true), None)],
            Ending::Recognised,
            vec![PUT, GET],
        ),
        (
            "500 after applying",
            vec![(Status(500, "InternalError", true), None)],
            Ending::Recognised,
            vec![PUT, GET],
        ),
        (
            "500 instead",
            vec![(Status(500, "InternalError", false), None)],
            Ending::Answered,
            vec![PUT, GET, PUT],
        ),
        (
            "409",
            vec![(Status(409, "ConditionalRequestConflict", false), None)],
            Ending::Answered,
            vec![PUT, GET, PUT],
        ),
        (
            "409 because another one won",
            vec![(
                Status(409, "ConditionalRequestConflict", false),
                Some(by_other()),
            )],
            Ending::Lost,
            vec![PUT, GET],
        ),
        (
            "lost answer, then built upon",
            vec![(LostAnswer, Some(built_upon()))],
            Ending::BuiltUpon,
            vec![PUT, GET],
        ),
        (
            "lost request, then somebody else wins",
            vec![(LostRequest, Some(by_other()))],
            Ending::Lost,
            vec![PUT, GET],
        ),
        (
            "somebody else wins between the read and the second try",
            vec![(LostRequest, None), (Fault::None, Some(by_other()))],
            Ending::Lost,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "the first copy arrives between the read and the second try",
            vec![
                (LostRequest, None),
                (Fault::None, Some(Meddling::Writes(record(1, &[100])))),
            ],
            Ending::Recognised,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "as before, and is built upon",
            vec![(LostRequest, None), (Fault::None, Some(built_upon()))],
            Ending::BuiltUpon,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "throttled twice: no reads",
            vec![(SLOW, None), (Status(429, "", false), None)],
            Ending::Answered,
            vec![PUT, PUT, PUT],
        ),
        (
            "503 though applied",
            vec![(Status(503, "", true), None)],
            Ending::Recognised,
            vec![PUT, PUT, GET],
        ),
        (
            "throttled, then somebody else wins",
            vec![(SLOW, Some(by_other()))],
            Ending::Lost,
            vec![PUT, PUT, GET],
        ),
        (
            "the read fails twice",
            vec![
                (LostAnswer, None),
                (Status(500, "", false), None),
                (Fault::Torn, None),
            ],
            Ending::Recognised,
            vec![PUT, GET, GET, GET],
        ),
        (
            "denied at once",
            vec![(Status(403, "AccessDenied", false), None)],
            Ending::Denied,
            vec![PUT],
        ),
        (
            "refused at once",
            vec![(Status(400, "EntityTooLarge", false), None)],
            Ending::Unsupported,
            vec![PUT],
        ),
        (
            "a lost request, then denied: the first copy may yet arrive",
            vec![
                (LostRequest, None),
                (Fault::None, None),
                (Status(403, "ExpiredToken", false), None),
            ],
            Ending::InDoubt,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "a 409, then denied: nothing was applied",
            vec![
                (Status(409, "", false), None),
                (Fault::None, None),
                (Status(403, "ExpiredToken", false), None),
            ],
            Ending::Denied,
            vec![PUT, GET, PUT, GET],
        ),
        (
            "applied, then denied even to read",
            vec![
                (LostAnswer, None),
                (Status(403, "AccessDenied", false), None),
            ],
            Ending::InDoubt,
            vec![PUT, GET],
        ),
        (
            "applied twice",
            vec![(Twice(Duration::from_secs(1)), None)],
            Ending::Answered,
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
    for (fault, meddling) in script {
        match meddling {
            Some(meddling) => store.then_meddled(fault, meddling),
            None => store.then(fault),
        };
    }
    let before = client.shared.runtime.monotonic();
    let result = match &tag {
        Some(tag) => client.swap(KEY, record(1, &[100]), tag, &op(1)).await,
        None => client.create(KEY, record(1, &[100]), &op(1)).await,
    };
    let name = format!("{name} (swap: {swaps}): {result:?}");
    assert_eq!(ending(&result), expected, "{name}");
    assert_eq!(store.calls(), calls, "{name}");
    assert!(elapsed_since(&client, before) <= longest(), "{name}");
    if let Err(StoreError::Conflict { .. }) = result {
        assert!(swaps, "{name}");
    }
    // A tag that was handed out is good for the next swap.
    if let Some(tag) = result.ok().as_ref().and_then(Written::tag) {
        let next = client.swap(KEY, record(2, &[1, 100]), tag, &op(2)).await;
        assert_eq!(ending(&next), Ending::Answered, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_answer_leads_to_its_action() {
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
async fn a_first_refusal_is_read_back_where_something_repeats_requests() {
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
    // The first copy was applied, and the answer to the second one arrives.
    store.then(Status(412, "", true));
    let created = wary.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(ending(&created), Ending::Recognised);
    let again = wary.create(KEY, record(2, &[]), &op(2)).await;
    assert_eq!(ending(&again), Ending::Lost);
    assert_eq!(store.calls(), [PUT, GET, PUT, GET]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_bucket_is_not_a_missing_key() {
    let (store, client) = scripted();
    store.then(Status(404, "", false));
    let created = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(ending(&created), Ending::Denied);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_leaves_a_swap_in_doubt_only_if_it_may_have_been_applied() {
    for (fault, expected) in [
        (LostAnswer, Ending::InDoubt),
        (LostRequest, Ending::InDoubt),
        (Status(409, "", false), Ending::Lost),
    ] {
        let (store, client) = scripted();
        let tag = created(&store, &client).await;
        store.then_meddled(fault, Meddling::Deletes);
        let result = client.swap(KEY, record(1, &[100]), &tag, &op(1)).await;
        assert_eq!(ending(&result), expected, "{fault:?}");
        assert_eq!(store.calls(), [PUT, GET]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_without_its_operation_is_never_settled_by_guesswork() {
    for (fault, expected) in [
        (LostAnswer, Ending::InDoubt),
        (Status(409, "", false), Ending::Lost),
    ] {
        let (store, client) = scripted();
        store.then_meddled(fault, Meddling::Writes("somebody's".into()));
        let result = client.create(KEY, "plain".into(), &op(1)).await;
        assert_eq!(ending(&result), expected, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_never_applies_a_second_time() {
    // From before the first read to long after the caller was answered.
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
            assert_eq!(ending(&next), Ending::Answered, "{delay_ms}");
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
    store.then_meddled(
        Late(Duration::from_mins(1)),
        Meddling::Writes(record(200, &[])),
    );
    let result = client.swap(KEY, record(1, &[100]), &tag, &op(1)).await;
    assert_eq!(ending(&result), Ending::Lost);
    client.shared.runtime.sleep(Duration::from_mins(2)).await;
    assert_eq!(client.get(KEY).await.unwrap().body, record(200, &[]));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_failing_ends_each_write_as_what_is_known() {
    for (fault, expected) in [
        (Status(503, "SlowDown", false), Ending::Throttled),
        (Status(429, "", false), Ending::Throttled),
        (Status(503, "", false), Ending::InDoubt),
        (Status(500, "", false), Ending::InDoubt),
        (LostRequest, Ending::InDoubt),
        (Hang(false), Ending::InDoubt),
        (Hang(true), Ending::InDoubt),
        (Status(409, "", false), Ending::InDoubt),
    ] {
        let (store, client) = scripted();
        for _ in 0..100 {
            store.then(fault);
        }
        let before = client.shared.runtime.monotonic();
        let result = client.create(KEY, record(1, &[]), &op(1)).await;
        assert_eq!(ending(&result), expected, "{fault:?}");
        let took = elapsed_since(&client, before);
        assert!(took <= longest(), "{fault:?} took {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn contention_that_never_ends_is_no_doubt() {
    let (store, client) = scripted();
    for _ in 0..100 {
        store.then(Status(409, "", false)).then(Fault::None);
    }
    let result = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(ending(&result), Ending::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_write_is_still_looked_for_when_it_used_up_the_budget() {
    let (store, client) = scripted();
    store.then(Hang(false)).then(Fault::None).then(Hang(true));
    let before = client.shared.runtime.monotonic();
    let result = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(ending(&result), Ending::Recognised);
    assert_eq!(store.calls(), [PUT, GET, PUT, GET]);
    let took = elapsed_since(&client, before);
    assert!(took >= ClientConfig::default().retry.budget, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_came_before_a_lasting_throttle_is_looked_for_at_the_end() {
    let (store, client) = scripted();
    store.then(LostRequest).then(Fault::None);
    for _ in 0..11 {
        store.then(Status(503, "SlowDown", false));
    }
    let result = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(ending(&result), Ending::InDoubt);
    let calls = store.calls();
    assert_eq!(calls.last(), Some(&GET), "{calls:?}");
    assert_eq!(calls.iter().filter(|call| **call == GET).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_tags_is_unsupported() {
    let runtime: Arc<dyn Runtime> = Arc::new(PausableRuntime::new(7));
    let mut store = ScriptedStore::new(Arc::clone(&runtime));
    store.names_no_tags = true;
    let client = client_of(Arc::new(store), runtime);
    let created = client.create(KEY, record(1, &[]), &op(1)).await;
    assert_eq!(ending(&created), Ending::Unsupported);
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
async fn an_unconditional_write_is_simply_repeated() {
    let (store, client) = scripted();
    store
        .then(LostAnswer)
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
async fn keys_are_taken_as_they_are_or_refused() {
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
