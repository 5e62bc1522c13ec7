//! Lists: order, prefixes, start, end and freshness.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::*;

/// Writes an object under each key, many concurrently.
pub(super) async fn write_all(store: &StoreUnderTest, keys: &[String]) {
    stream::iter(keys)
        .map(|key| store.client.put(key, "x".into()))
        .buffer_unordered(32)
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
}

async fn page_keys(
    store: &StoreUnderTest,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Vec<String> {
    let page = store.client.page(prefix, after, limit).await.unwrap();
    page.entries.into_iter().map(|entry| entry.key).collect()
}

fn under(prefix: &str, names: &[&str]) -> Vec<String> {
    names
        .iter()
        .map(|name| format!("{prefix}/{name}"))
        .collect()
}

pub(super) async fn lists_in_order_and_by_whole_segments(store: &StoreUnderTest) -> CheckResult {
    let prefix = store.prefix();
    let keys = under(
        &prefix,
        &[
            "a/1", "a/10", "a/2", "a/b/1", "a/b/2", "ab/1", "b", "c/d/e/f",
        ],
    );
    let mut shuffled = keys.clone();
    shuffled.reverse();
    write_all(store, &shuffled).await;
    assert_eq!(page_keys(store, &prefix, None, 100).await, keys);
    let a = format!("{prefix}/a");
    assert_eq!(page_keys(store, &a, None, 100).await, keys[..5]);
    assert_eq!(
        page_keys(store, &format!("{a}/"), None, 100).await,
        keys[..5]
    );
    assert_eq!(
        page_keys(store, &format!("{a}/b"), None, 100).await,
        keys[3..5]
    );
    // An object is not in the folder of the same name, and part of a segment is not a prefix.
    let nothing: [String; 0] = [];
    assert_eq!(
        page_keys(store, &format!("{prefix}/b"), None, 100).await,
        nothing
    );
    assert_eq!(
        page_keys(store, &format!("{prefix}/c/d/e/"), None, 100).await,
        keys[7..]
    );
    assert_eq!(
        page_keys(store, &format!("{prefix}/x"), None, 100).await,
        nothing
    );
    let root = page_keys(store, "", None, 1_000).await;
    assert!(!root.is_empty() && root.is_sorted());

    let mut raw: Vec<_> = store
        .objects
        .list(Some(&path(&a)))
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await
        .unwrap();
    raw.sort();
    assert_eq!(raw, keys[..5]);
    let folders = store
        .objects
        .list_with_delimiter(Some(&path(&prefix)))
        .await
        .unwrap();
    let folders: Vec<_> = folders
        .common_prefixes
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(folders, under(&prefix, &["a", "ab", "c"]));
    CheckResult::Passed
}

/// A folder `a` sorts as `a/`, after `a-b`. A store that keeps folders separately lists it as `a`, before `a-b`. qo's
/// own keys never have such siblings, and the client rejects such a list.
pub(super) async fn orders_folders_among_their_siblings(store: &StoreUnderTest) -> CheckResult {
    let prefix = store.prefix();
    let keys = under(&prefix, &["a-b/1", "a.b", "a/1", "a0"]);
    write_all(store, &keys).await;
    match store.client.page(&prefix, None, 100).await {
        Ok(page) => {
            let listed: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
            assert_eq!(listed, keys);
            CheckResult::Passed
        }
        Err(error) => {
            // The reason for the rejection: a walk from key to key, which cannot detect the disorder.
            let mut found = 0;
            let mut after = None;
            while let Ok(page) = store.client.page(&prefix, after.as_deref(), 1).await {
                found += page.entries.len();
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let all = keys.len();
            CheckResult::Unsupported(format!("{error}; a walk finds {found} of {all} keys"))
        }
    }
}

pub(super) async fn starts_after_any_key(store: &StoreUnderTest) -> CheckResult {
    let prefix = store.prefix();
    let keys = under(&prefix, &["m/1", "m/2", "m/3", "m/4"]);
    write_all(store, &keys).await;
    let m = format!("{prefix}/m");
    for (after, left) in [
        (format!("{m}/1"), 3),
        (format!("{m}/2"), 2),
        (format!("{m}/2x"), 2),
        (format!("{m}/4"), 0),
        // Before every key of the prefix. SeaweedFS 4.47 lists nothing for such an offset.
        (format!("{prefix}/a"), 4),
        ("0".to_owned(), 4),
        (m.clone(), 4),
        (format!("{m}/"), 4),
        // After every key of the prefix.
        (format!("{prefix}/n"), 0),
        ("zzz".to_owned(), 0),
    ] {
        let listed = page_keys(store, &m, Some(&after), 100).await;
        assert_eq!(listed, keys[4 - left..], "after {after}");
    }
    let limited = store.client.page(&m, Some(&keys[0]), 2).await.unwrap();
    assert_eq!(limited.entries.len(), 2);
    assert_eq!(limited.next.as_deref(), Some(keys[2].as_str()));
    let last = store
        .client
        .page(&m, limited.next.as_deref(), 2)
        .await
        .unwrap();
    assert_eq!(last.entries.len(), 1);
    assert_eq!(last.next, None);
    // The client never sends this, but other users of the raw store may.
    let raw: Vec<_> = store
        .objects
        .list_with_offset(Some(&path(&m)), &path(&format!("{prefix}/a")))
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await
        .unwrap();
    if raw == keys {
        return CheckResult::Passed;
    }
    let outside = raw.iter().filter(|key| !key.starts_with(&m)).count();
    let inside = raw.len() - outside;
    CheckResult::Noted(format!(
        "raw, starting before the prefix, it lists {inside} of 4 keys of the prefix and {outside} of others"
    ))
}

pub(super) async fn walks_a_tree_from_key_to_key(store: &StoreUnderTest) -> CheckResult {
    let prefix = store.prefix();
    let keys = under(
        &prefix,
        &[
            "t/1",
            "t/a/1",
            "t/a/2",
            "t/a/b/1",
            "t/b/c/d/1",
            "t/b/c/d/2",
            "t/b/c/e",
            "t/c/1",
            "t/z",
            "u/1",
            "u/2/3",
        ],
    );
    write_all(store, &keys).await;
    for (folder, expected) in [("t", &keys[..9]), ("t/b", &keys[4..7]), ("u", &keys[9..])] {
        let folder = format!("{prefix}/{folder}");
        for limit in [1, 2, 5] {
            let mut walked = Vec::new();
            let mut after: Option<String> = None;
            loop {
                let page = store
                    .client
                    .page(&folder, after.as_deref(), limit)
                    .await
                    .unwrap();
                walked.extend(page.entries.into_iter().map(|entry| entry.key));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(walked, expected, "{folder} by {limit}");
        }
    }
    // Does a list that starts inside the prefix end with it?
    let folder = path(&format!("{prefix}/t"));
    let raw: Vec<_> = store
        .objects
        .list_with_offset(Some(&folder), &path(&keys[4]))
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await
        .unwrap();
    if raw == keys[5..9] {
        return CheckResult::Passed;
    }
    let outside = raw.iter().filter(|key| !keys[..9].contains(key)).count();
    let inside = raw.len() - outside;
    CheckResult::Noted(format!(
        "raw, starting inside the prefix, it lists {inside} of 4 keys of the prefix and {outside} of others"
    ))
}

pub(super) async fn lists_what_was_just_written_and_deleted(store: &StoreUnderTest) -> CheckResult {
    let prefix = store.prefix();
    for round in 0..20 {
        let key = format!("{prefix}/fresh-{round:02}");
        store.client.put(&key, "x".into()).await.unwrap();
        let listed = page_keys(store, &prefix, None, 100).await;
        assert!(
            listed.contains(&key),
            "round {round}: written and not listed"
        );
        if round % 2 == 0 {
            store
                .client
                .delete_many(std::slice::from_ref(&key))
                .await
                .unwrap();
            let listed = page_keys(store, &prefix, None, 100).await;
            assert!(!listed.contains(&key), "round {round}: deleted and listed");
        }
    }
    assert_eq!(page_keys(store, &prefix, None, 100).await.len(), 10);
    CheckResult::Passed
}

pub(super) async fn pages_through_more_than_two_thousand_keys(
    store: &StoreUnderTest,
) -> CheckResult {
    let prefix = store.prefix();
    let keys: Vec<_> = (0..2_100)
        .map(|number| format!("{prefix}/{number:05}"))
        .collect();
    write_all(store, &keys).await;
    for limit in [1_000, 700, 2_000] {
        let mut listed = Vec::new();
        let mut after = None;
        let mut pages = 0;
        loop {
            let page = store
                .client
                .page(&prefix, after.as_deref(), limit)
                .await
                .unwrap();
            assert!(page.entries.len() <= limit.min(1_000));
            listed.extend(page.entries.into_iter().map(|entry| entry.key));
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(listed == keys, "limit {limit}: {} keys", listed.len());
        assert_eq!(pages, if limit == 700 { 4 } else { 3 }, "limit {limit}");
    }
    let raw: Vec<_> = store
        .objects
        .list(Some(&path(&prefix)))
        .try_collect()
        .await
        .unwrap();
    assert_eq!(raw.len(), keys.len());
    store.client.delete_many(&keys).await.unwrap();
    CheckResult::Passed
}
