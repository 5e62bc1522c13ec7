//! Deleting.

use object_store::ObjectStoreExt;

use super::listing::write_all;
use super::*;

pub(super) async fn deletes_many_and_ignores_missing_objects(
    store: &StoreUnderTest,
) -> CheckResult {
    let prefix = store.prefix();
    let keys: Vec<_> = (0..5).map(|number| format!("{prefix}/{number}")).collect();
    write_all(store, &keys[1..]).await;
    store.client.delete_many(&keys[..4]).await.unwrap();
    let page = store.client.page(&prefix, None, 10).await.unwrap();
    let left: Vec<_> = page.entries.iter().map(|entry| &entry.key).collect();
    assert_eq!(left, [&keys[4]]);
    store.client.delete_many(&keys).await.unwrap();
    store.client.delete_many(&keys).await.unwrap();
    store.client.delete_many(&[]).await.unwrap();
    let page = store.client.page(&prefix, None, 10).await.unwrap();
    assert!(page.entries.is_empty());
    // A raw delete of a missing object: S3 succeeds, others may report that it is missing.
    match store.objects.delete(&path(&keys[0])).await {
        Ok(()) => CheckResult::Passed,
        Err(object_store::Error::NotFound { .. }) => {
            CheckResult::Noted("a raw delete reports a missing object".to_owned())
        }
        Err(error) => panic!("{error}"),
    }
}

pub(super) async fn deletes_more_than_a_thousand(store: &StoreUnderTest) -> CheckResult {
    let prefix = store.prefix();
    let keys: Vec<_> = (0..1_100)
        .map(|number| format!("{prefix}/{number:04}"))
        .collect();
    write_all(store, &keys).await;
    store.client.delete_many(&keys[1..]).await.unwrap();
    let page = store.client.page(&prefix, None, 1_000).await.unwrap();
    let left: Vec<_> = page.entries.iter().map(|entry| &entry.key).collect();
    assert_eq!(left, [&keys[0]]);
    CheckResult::Passed
}
