//! Reading, listing and deleting under faults.

use std::collections::BTreeSet;

use object_store::memory::InMemory;

use super::*;
use crate::client::PAGE_LIMIT_MAX;
use crate::client::testing::Fault::{self, Hang, LostResponse, Status, Torn};
use crate::error::StoreError;
use crate::wrap::{CountingStore, FaultKind, FaultPlan, FaultStore, Operation};

#[tokio::test(start_paused = true)]
async fn a_truncated_read_is_retried() {
    let (store, client) = scripted();
    let tag = created(&store, &client).await;
    store
        .then(Torn)
        .then(Status(500, "", false))
        .then(LostResponse)
        .then(Status(503, "SlowDown", false))
        .then(Torn);
    let object = client.get(KEY).await.unwrap();
    assert_eq!(object.body, record(100, &[]));
    assert!(object.tag.matches(&tag));
    assert_eq!(store.calls(), ["GET"; 6]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_stays_truncated_is_corrupt() {
    let (store, client) = scripted();
    created(&store, &client).await;
    store.then(Torn).then(Torn).then(Torn);
    let result = client.get(KEY).await;
    assert!(matches!(result, Err(StoreError::Corrupt { .. })));
    assert_eq!(store.calls(), ["GET"; 3]);
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_are_not_retried() {
    let (store, client) = scripted();
    assert!(matches!(
        client.get(KEY).await,
        Err(StoreError::NotFound { .. })
    ));
    store.then(Status(403, "RequestTimeTooSkewed", false));
    match client.get(KEY).await {
        Err(StoreError::Denied { detail, .. }) => assert!(detail.contains("TimeTooSkewed")),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.calls(), ["GET"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_store_ends_a_read_within_its_budget() {
    let (store, client) = scripted();
    for _ in 0..100 {
        store.then(Hang(false));
    }
    let result = client.get(KEY).await;
    assert!(
        matches!(
            result,
            Err(StoreError::Unavailable {
                in_doubt: false,
                elapsed,
                ..
            }) if elapsed <= ClientConfig::default().retry.budget
        ),
        "{result:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_over_the_size_limit_is_not_read() {
    let (store, client) = scripted();
    created(&store, &client).await;
    let runtime = Arc::clone(&client.shared.runtime);
    let config = ClientConfig {
        object_bytes_max: 3,
        ..ClientConfig::default()
    };
    let small = StoreClient::new(store, Arc::new(StoreClock::new()), runtime, config);
    assert!(matches!(
        small.get(KEY).await,
        Err(StoreError::Unsupported { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_conditional_read_returns_only_changed_objects() {
    let (store, client) = scripted();
    let tag = created(&store, &client).await;
    store.then(Status(500, "", false));
    assert!(client.get_if_changed(KEY, &tag).await.unwrap().is_none());
    // This store does not recognise a tag with other quotes, but the client does.
    let bare = tag.e_tag().unwrap().trim_matches('"').to_owned();
    let unquoted = Tag::new(Some(bare), None).unwrap();
    assert!(
        client
            .get_if_changed(KEY, &unquoted)
            .await
            .unwrap()
            .is_none()
    );
    let newer = client.put(KEY, "x".into()).await.unwrap();
    let changed = client.get_if_changed(KEY, &tag).await.unwrap().unwrap();
    assert!(changed.tag.matches(&newer));
    assert!(matches!(
        client.get_if_changed("missing", &tag).await,
        Err(StoreError::NotFound { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_page_takes_one_request_and_returns_the_start_of_the_next() {
    let (store, client) = scripted();
    for key in ["a/1", "a/2", "a/3", "a", "ab/1", "b/1"] {
        client.put(key, "x".into()).await.unwrap();
    }
    store.calls();
    let keys = |page: &crate::client::Page| -> Vec<String> {
        page.entries.iter().map(|entry| entry.key.clone()).collect()
    };
    let first = client.page("a", None, 2).await.unwrap();
    assert_eq!(keys(&first), ["a/1", "a/2"]);
    assert_eq!(first.next.as_deref(), Some("a/2"));
    let second = client.page("a/", first.next.as_deref(), 2).await.unwrap();
    assert_eq!(keys(&second), ["a/3"]);
    assert_eq!(second.next, None);
    assert_eq!(store.calls(), ["LIST", "LIST AFTER"]);
    // A key before every key of the prefix is ignored and not sent.
    for before in ["", "0", "a", "a/", "A/z"] {
        let page = client.page("a", Some(before), 10).await.unwrap();
        assert_eq!(keys(&page).len(), 3, "{before}");
        assert_eq!(store.calls(), ["LIST"], "{before}");
    }
    // A key after every key of the prefix gives an empty page without a request.
    for behind in ["a0", "b", "zz"] {
        assert!(
            client
                .page("a", Some(behind), 10)
                .await
                .unwrap()
                .entries
                .is_empty()
        );
        assert!(store.calls().is_empty());
    }
    assert_eq!(client.page("", None, 10).await.unwrap().entries.len(), 6);
    assert_eq!(client.page("", None, 0).await.unwrap().entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_is_limited_to_one_request() {
    let (store, client) = scripted();
    for number in 0..=PAGE_LIMIT_MAX {
        client
            .put(&format!("k/{number:05}"), "x".into())
            .await
            .unwrap();
    }
    store.calls();
    store.then(Status(503, "SlowDown", false)).then(Hang(false));
    let page = client.page("k", None, usize::MAX).await.unwrap();
    assert_eq!(page.entries.len(), PAGE_LIMIT_MAX);
    assert_eq!(page.next.as_deref(), Some("k/00999"));
    assert_eq!(store.calls(), ["LIST"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_page_takes_one_list_request_in_a_large_bucket() {
    let runtime: Arc<dyn Runtime> = Arc::new(PausableRuntime::new(7));
    let counting = Arc::new(CountingStore::new(Arc::new(InMemory::new())));
    let client = client_of(Arc::clone(&counting) as Arc<dyn ObjectStore>, runtime);
    for number in 0..2_500 {
        let key = format!("k/{number:05}");
        client.put(&key, "x".into()).await.unwrap();
    }
    let mut after = None;
    for (page, entries) in [1_000, 1_000, 500].into_iter().enumerate() {
        let listed = client.page("k", after.as_deref(), 1_000).await.unwrap();
        assert_eq!(listed.entries.len(), entries);
        after = listed.next;
        let lists = counting.counts().total(Operation::List).requests;
        assert_eq!(lists, page as u64 + 1);
    }
    assert_eq!(after, None);
}

#[tokio::test(start_paused = true)]
async fn only_failed_deletes_are_retried() {
    let (store, client) = scripted();
    for key in ["a", "b", "c", "d"] {
        client.put(key, "x".into()).await.unwrap();
    }
    store.calls();
    store
        .then(Fault::None)
        .then(Status(500, "", false))
        .then(Status(403, "AccessDenied", false))
        .then(Status(404, "NoSuchKey", false));
    let keys = ["a", "b", "c", "missing", "b", "bad//key"].map(str::to_owned);
    let failures = client.delete_many(&keys).await.unwrap_err();
    let failed: BTreeSet<_> = failures
        .failed
        .iter()
        .map(|(key, _)| key.as_str())
        .collect();
    assert_eq!(failed, BTreeSet::from(["bad//key", "c"]));
    assert!(matches!(failures.failed[1].1, StoreError::Denied { .. }));
    assert_eq!(store.calls(), ["DELETE"; 2]);
    let left = client.page("", None, 10).await.unwrap();
    let left: Vec<_> = left
        .entries
        .iter()
        .map(|entry| entry.key.as_str())
        .collect();
    assert_eq!(left, ["c", "d"]);
    assert!(client.delete_many(&[]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_hanging_delete_is_retried_for_the_remaining_keys() {
    let (store, client) = scripted();
    let config = ClientConfig {
        retry: crate::client::RetryConfig {
            request_timeout: Duration::from_secs(1),
            ..crate::client::RetryConfig::default()
        },
        ..ClientConfig::default()
    };
    let patient = StoreClient::new(
        Arc::clone(&store) as Arc<dyn ObjectStore>,
        Arc::new(StoreClock::new()),
        Arc::clone(&client.shared.runtime),
        config,
    );
    for key in ["a", "b"] {
        client.put(key, "x".into()).await.unwrap();
    }
    store.then(Fault::None).then(Hang(false));
    let keys = ["a", "b"].map(str::to_owned);
    patient.delete_many(&keys).await.unwrap();
    assert!(client.page("", None, 10).await.unwrap().entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn now_is_the_stores_time() {
    let (store, client) = scripted();
    let clock = Arc::new(StoreClock::new());
    let runtime = Arc::clone(&client.shared.runtime);
    let at = runtime.moment();
    let local = at.wall;
    clock.observe(at, at, local.plus_millis(90_000));
    let ahead = StoreClient::new(store, clock, runtime, ClientConfig::default());
    let shown = ahead.now().since(local).as_millis();
    assert!((90_000..91_000).contains(&shown), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_may_have_been_applied_stays_in_doubt() {
    let runtime: Arc<dyn Runtime> = Arc::new(PausableRuntime::new(7));
    let memory = Arc::new(InMemory::new());
    // The first attempt is applied without a response. Every later one is throttled.
    let plan = FaultPlan::always(FaultKind::Unavailable).at(1, FaultKind::LostResponse);
    let store = Arc::new(FaultStore::new(memory, Arc::clone(&runtime), plan, 1));
    let client = client_of(store, runtime);
    let failures = client.delete_many(&[KEY.to_owned()]).await.unwrap_err();
    assert!(
        matches!(
            failures.failed.as_slice(),
            [(key, StoreError::Unavailable { in_doubt: true, .. })] if key == KEY
        ),
        "{failures:?}"
    );
}
