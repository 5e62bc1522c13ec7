//! Bodies, keys, ranges, multipart uploads and copies.

use futures_util::TryStreamExt;
use object_store::{GetOptions, GetRange, ObjectStoreExt, PutMultipartOptions, PutPayload};
use qo_store::StoreError;

use super::*;

/// Bytes without a repeating pattern that could hide a mix-up.
fn body_of(length: usize) -> Bytes {
    (0..length)
        .map(|index| u8::try_from((index * 31 + index / 251) % 256).unwrap())
        .collect::<Vec<_>>()
        .into()
}

pub(super) async fn round_trips_bodies_of_every_size(store: &StoreUnderTest) -> CheckResult {
    for length in [0, 1, 4_096, 65_537, 1024 * 1024] {
        let key = store.key(&format!("body-{length}"));
        let body = body_of(length);
        let tag = store.client.put(&key, body.clone()).await.unwrap();
        let object = store.client.get(&key).await.unwrap();
        assert!(object.body == body, "{length}");
        assert!(object.tag.matches(&tag), "{length}: {object:?} {tag:?}");
        let age = store.client.now().since(object.last_modified);
        assert!(age.as_secs() < 600, "{length}: written {age:?} ago");
        let raw = store.objects.get(&path(&key)).await.unwrap();
        assert_eq!(raw.meta.size, length as u64);
        assert!(raw.bytes().await.unwrap() == body);
        store.objects.delete(&path(&key)).await.unwrap();
        let gone = store.client.get(&key).await;
        assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
    }
    CheckResult::Passed
}

pub(super) async fn keeps_unusual_keys(store: &StoreUnderTest) -> CheckResult {
    let long = "x".repeat(200);
    let names = [
        "plain.json",
        "with space",
        "plus+equals=and&",
        "percent%and%2Fencoded",
        "colon:at@comma,semicolon;",
        "(parentheses)'quote'!",
        "tilde~dollar$star*",
        "umlaut-äöü",
        "emoji-🦀",
        "..dots..",
        "UPPER-and-lower",
        "under_score-and-dash.and.dot",
        &long,
    ];
    let prefix = store.prefix();
    for name in names {
        let key = format!("{prefix}/{name}");
        store.client.put(&key, key.clone().into()).await.unwrap();
    }
    for name in names {
        let key = format!("{prefix}/{name}");
        let object = store.client.get(&key).await.unwrap();
        assert_eq!(object.body, key.as_bytes(), "{key}");
    }
    let page = store.client.page(&prefix, None, 100).await.unwrap();
    let listed: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
    let mut expected: Vec<_> = names
        .iter()
        .map(|name| format!("{prefix}/{name}"))
        .collect();
    expected.sort();
    assert_eq!(listed, expected);
    store.client.delete_many(&listed).await.unwrap();
    let page = store.client.page(&prefix, None, 100).await.unwrap();
    assert!(page.entries.is_empty(), "{page:?}");
    CheckResult::Passed
}

pub(super) async fn allows_an_object_with_the_name_of_a_folder(
    store: &StoreUnderTest,
) -> CheckResult {
    let folder = store.key("folder");
    let inside = format!("{folder}/inside");
    store.client.put(&inside, "in".into()).await.unwrap();
    if let Err(error) = store.client.put(&folder, "on".into()).await {
        return CheckResult::Unsupported(error.to_string());
    }
    let both = [&folder, &inside].map(|key| store.client.get(key));
    let [folder_body, inside_body] = both;
    let bodies = (folder_body.await, inside_body.await);
    match bodies {
        (Ok(on), Ok(inside)) if on.body == "on" && inside.body == "in" => CheckResult::Passed,
        other => CheckResult::Unsupported(format!("wrote both, read {other:?}")),
    }
}

pub(super) async fn overwrites(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("overwritten");
    let mut last = store.client.put(&key, "0".into()).await.unwrap();
    for number in 1..5 {
        let body = number.to_string();
        let tag = store.client.put(&key, body.clone().into()).await.unwrap();
        assert!(!tag.matches(&last));
        let object = store.client.get(&key).await.unwrap();
        assert_eq!(object.body, body.as_bytes());
        last = tag;
    }
    CheckResult::Passed
}

pub(super) async fn reads_ranges(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("ranged");
    let body = body_of(10_000);
    store.client.put(&key, body.clone()).await.unwrap();
    let location = path(&key);
    for range in [0..1, 0..10_000, 17..4_242, 9_999..10_000] {
        let part = store.objects.get_range(&location, range.clone());
        let expected =
            body.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap());
        assert!(part.await.unwrap() == expected, "{range:?}");
    }
    let parts = store
        .objects
        .get_ranges(&location, &[0..2, 5_000..5_003, 9_000..10_000])
        .await
        .unwrap();
    assert!(
        parts
            == [
                body.slice(0..2),
                body.slice(5_000..5_003),
                body.slice(9_000..)
            ]
    );
    for (range, expected) in [
        (GetRange::Suffix(10), body.slice(9_990..)),
        (GetRange::Offset(9_000), body.slice(9_000..)),
        (GetRange::Bounded(9_990..20_000), body.slice(9_990..)),
    ] {
        if matches!(range, GetRange::Suffix(_)) && !store.suffix_ranges {
            continue;
        }
        let options = GetOptions::new().with_range(Some(range.clone()));
        let result = store.objects.get_opts(&location, options).await.unwrap();
        assert_eq!(result.meta.size, 10_000, "{range:?}");
        assert!(result.bytes().await.unwrap() == expected, "{range:?}");
    }
    CheckResult::Passed
}

pub(super) async fn uploads_in_parts(store: &StoreUnderTest) -> CheckResult {
    const MIB: usize = 1024 * 1024;
    let key = store.key("in-parts");
    let body = body_of(6 * MIB);
    let mut upload = store
        .objects
        .put_multipart_opts(&path(&key), PutMultipartOptions::default())
        .await
        .unwrap();
    for part in [body.slice(..5 * MIB), body.slice(5 * MIB..)] {
        upload.put_part(PutPayload::from(part)).await.unwrap();
    }
    let unfinished = store.client.get(&key).await;
    assert!(matches!(unfinished, Err(StoreError::NotFound { .. })));
    upload.complete().await.unwrap();
    assert!(store.client.get(&key).await.unwrap().body == body);

    let aborted = store.key("aborted");
    let mut upload = store
        .objects
        .put_multipart_opts(&path(&aborted), PutMultipartOptions::default())
        .await
        .unwrap();
    upload.put_part("part".into()).await.unwrap();
    upload.abort().await.unwrap();
    let gone = store.client.get(&aborted).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })));
    CheckResult::Passed
}

pub(super) async fn copies(store: &StoreUnderTest) -> CheckResult {
    let (from, to) = (store.key("from"), store.key("to"));
    store.client.put(&from, "copied".into()).await.unwrap();
    store.objects.copy(&path(&from), &path(&to)).await.unwrap();
    assert_eq!(store.client.get(&to).await.unwrap().body, "copied");
    assert_eq!(store.client.get(&from).await.unwrap().body, "copied");
    let missing = store
        .objects
        .copy(&path(&store.key("missing")), &path(&to))
        .await;
    assert!(
        matches!(missing, Err(object_store::Error::NotFound { .. })),
        "{missing:?}"
    );
    CheckResult::Passed
}

pub(super) async fn reads_only_what_changed(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("polled");
    let tag = store.client.put(&key, "one".into()).await.unwrap();
    let same = store.client.get_if_changed(&key, &tag).await.unwrap();
    assert!(same.is_none(), "{same:?}");
    let options = GetOptions::new().with_if_none_match(tag.e_tag());
    let raw = store.objects.get_opts(&path(&key), options).await;
    assert!(
        matches!(raw, Err(object_store::Error::NotModified { .. })),
        "the store sent an unchanged body: {raw:?}"
    );
    store.client.put(&key, "two".into()).await.unwrap();
    let changed = store.client.get_if_changed(&key, &tag).await.unwrap();
    assert_eq!(changed.unwrap().body, "two");
    let options = GetOptions::new().with_if_match(tag.e_tag());
    let raw = store.objects.get_opts(&path(&key), options).await;
    assert!(
        matches!(raw, Err(object_store::Error::Precondition { .. })),
        "{raw:?}"
    );
    CheckResult::Passed
}

pub(super) async fn reports_missing_objects(store: &StoreUnderTest) -> CheckResult {
    let key = store.key("missing");
    let tag = store
        .client
        .put(&store.key("other"), "x".into())
        .await
        .unwrap();
    let read = store.client.get(&key).await;
    assert!(matches!(read, Err(StoreError::NotFound { .. })), "{read:?}");
    let read = store.client.get_if_changed(&key, &tag).await;
    assert!(matches!(read, Err(StoreError::NotFound { .. })), "{read:?}");
    let head = store.objects.head(&path(&key)).await;
    assert!(
        matches!(head, Err(object_store::Error::NotFound { .. })),
        "{head:?}"
    );
    let listed: Vec<_> = store
        .objects
        .list(Some(&path(&key)))
        .try_collect()
        .await
        .unwrap();
    assert!(listed.is_empty(), "{listed:?}");
    CheckResult::Passed
}
