//! Conditional writes, one at a time.

use object_store::{PutMode, PutOptions, UpdateVersion};
use qo_store::StoreError;
use qo_store::client::Written;

use super::*;

pub(super) async fn creates_only_missing_objects(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("created");
    let (first, second) = (store.op(), store.op());
    let written = store
        .client
        .create(&key, record(1, first, &[]), &first)
        .await;
    assert!(matches!(written, Ok(Written::Confirmed(_))), "{written:?}");
    let again = store
        .client
        .create(&key, record(1, second, &[]), &second)
        .await;
    assert!(
        matches!(again, Err(StoreError::AlreadyExists { .. })),
        "{again:?}"
    );
    let raw = store
        .objects
        .put_opts(&path(&key), "raw".into(), PutMode::Create.into())
        .await;
    assert!(
        matches!(raw, Err(object_store::Error::AlreadyExists { .. })),
        "{raw:?}"
    );
    assert_eq!(
        store.client.get(&key).await.unwrap().body,
        record(1, first, &[])
    );
    // A deleted key may be created again.
    store
        .client
        .delete_many(std::slice::from_ref(&key))
        .await
        .unwrap();
    let recreated = store
        .client
        .create(&key, record(1, second, &[]), &second)
        .await;
    assert!(
        matches!(recreated, Ok(Written::Confirmed(_))),
        "{recreated:?}"
    );
    CheckResult::Passed
}

pub(super) async fn swaps_only_with_the_current_tag(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("swapped");
    let [first, second, third] = [store.op(), store.op(), store.op()];
    let old = store
        .client
        .create(&key, record(1, first, &[]), &first)
        .await
        .unwrap();
    let old = old.tag().unwrap();
    let body = record(2, second, &[first]);
    let new = store
        .client
        .swap(&key, body.clone(), old, &second)
        .await
        .unwrap();
    let new = new.tag().unwrap();
    assert!(!new.matches(old));

    let late = store
        .client
        .swap(&key, record(2, third, &[first]), old, &third)
        .await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
    let mode = PutMode::Update(UpdateVersion {
        e_tag: old.e_tag().map(str::to_owned),
        version: old.version().map(str::to_owned),
    });
    let raw = store
        .objects
        .put_opts(&path(&key), "raw".into(), PutOptions::from(mode))
        .await;
    assert!(
        matches!(raw, Err(object_store::Error::Precondition { .. })),
        "{raw:?}"
    );
    let object = store.client.get(&key).await.unwrap();
    assert_eq!(object.body, body);

    // The tag of a read works like that of a write.
    let swapped = store
        .client
        .swap(&key, record(3, third, &[second]), &object.tag, &third)
        .await;
    assert!(matches!(swapped, Ok(Written::Confirmed(_))), "{swapped:?}");
    CheckResult::Passed
}

/// Writes the first record of a key.
async fn created(store: &StoreUnderTest, key: &str) -> (OpId, Written) {
    let op = store.op();
    let first = record(1, op, &[]);
    let written = store.client.create(key, first, &op).await.unwrap();
    (op, written)
}

pub(super) async fn swaps_nothing_into_a_missing_key(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("deleted");
    let (op, written) = created(store, &key).await;
    store
        .client
        .delete_many(std::slice::from_ref(&key))
        .await
        .unwrap();
    let next = store.op();
    for missing in [key, store.key("never-there")] {
        let swapped = store
            .client
            .swap(
                &missing,
                record(2, next, &[op]),
                written.tag().unwrap(),
                &next,
            )
            .await;
        assert!(
            matches!(swapped, Err(StoreError::Conflict { .. })),
            "{swapped:?}"
        );
        let read = store.client.get(&missing).await;
        assert!(matches!(read, Err(StoreError::NotFound { .. })), "{read:?}");
    }
    CheckResult::Passed
}

pub(super) async fn tags_identify_every_state(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("tagged");
    let (op, written) = created(store, &key).await;
    let tag = written.tag().unwrap();
    let read = store.client.get(&key).await.unwrap();
    assert!(read.tag.matches(tag), "{:?} {tag:?}", read.tag);
    let prefix = key.rsplit_once('/').unwrap().0;
    let page = store.client.page(prefix, None, 10).await.unwrap();
    let entry = page.entries.first().unwrap();
    assert!(entry.tag.matches(tag), "{:?} {tag:?}", entry.tag);
    assert_eq!(entry.key, key);
    assert_eq!(entry.size, read.body.len() as u64);
    let apart = entry.last_modified.as_millis() - read.last_modified.as_millis();
    assert!(apart.abs() <= 1_000, "{apart} ms between a read and a list");
    CheckResult::Passed
}

/// qo does not depend on this: a record's revision makes its bytes differ.
pub(super) async fn keeps_or_changes_the_tag_of_equal_bytes(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("equal");
    let first = store.client.put(&key, "same".into()).await.unwrap();
    let second = store.client.put(&key, "same".into()).await.unwrap();
    let bare = |tag: &qo_store::client::Tag| tag.e_tag().map(|e_tag| e_tag.replace('"', ""));
    let keeps = bare(&first) == bare(&second);
    CheckResult::Noted(format!(
        "equal bytes {} their entity tag",
        if keeps { "keep" } else { "change" }
    ))
}
