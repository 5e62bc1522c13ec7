//! Lists: order, prefixes and pages.

use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use qo_store::SqliteStore;

use super::{Fixture, path, put};

async fn keys(store: &SqliteStore, prefix: Option<&str>, offset: Option<&str>) -> Vec<String> {
    let prefix = prefix.map(path);
    let listed = match offset {
        None => store.list(prefix.as_ref()),
        Some(offset) => store.list_with_offset(prefix.as_ref(), &path(offset)),
    };
    listed
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_prefix_names_whole_segments() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    for key in [
        "a/b", "a/b/1", "a/b/2/3", "a/b.x", "a/b0", "a/bc", "b", "é/ü",
    ] {
        put(store, key, key).await;
    }
    assert_eq!(keys(store, Some("a/b"), None).await, ["a/b/1", "a/b/2/3"]);
    assert_eq!(keys(store, Some("a/b"), Some("a/b/1")).await, ["a/b/2/3"]);
    assert_eq!(
        keys(store, Some("a/b"), Some("a")).await,
        ["a/b/1", "a/b/2/3"]
    );
    assert!(keys(store, Some("a/b"), Some("b")).await.is_empty());
    assert_eq!(keys(store, Some("é"), None).await, ["é/ü"]);
    let all = keys(store, None, None).await;
    assert_eq!(
        all,
        [
            "a/b", "a/b.x", "a/b/1", "a/b/2/3", "a/b0", "a/bc", "b", "é/ü"
        ]
    );
    assert_eq!(keys(store, Some(""), None).await, all);
    assert_eq!(keys(store, None, Some("a/b0")).await, ["a/bc", "b", "é/ü"]);
}

#[tokio::test]
async fn a_directory_is_listed_without_its_subdirectories() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    for key in [
        "d/1",
        "d/sub",
        "d/sub/1",
        "d/sub/2/3",
        "d/sub0",
        "d/tub/1",
        "top",
    ] {
        put(store, key, key).await;
    }
    let below = store
        .list_with_delimiter(Some(&Path::from("d")))
        .await
        .unwrap();
    let objects: Vec<_> = below.objects.iter().map(|o| o.location.as_ref()).collect();
    let directories: Vec<_> = below.common_prefixes.iter().map(AsRef::as_ref).collect();
    assert_eq!(objects, ["d/1", "d/sub", "d/sub0"]);
    assert_eq!(directories, ["d/sub", "d/tub"]);
    assert_eq!(below.objects[0].size, 3);
    let root = store.list_with_delimiter(None).await.unwrap();
    assert_eq!(root.common_prefixes, [Path::from("d")]);
    assert_eq!(root.objects.len(), 1);
}

#[tokio::test]
async fn pages_join_without_gaps_and_no_connection_is_held_between_them() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let expected: Vec<String> = (0..2_750).map(|n| format!("p/{n:05}")).collect();
    let paths: Vec<Path> = expected
        .iter()
        .map(|key| Path::from(key.as_str()))
        .collect();
    let written = join_all(paths.iter().map(|key| store.put(key, "x".into()))).await;
    assert!(written.iter().all(Result::is_ok));
    put(store, "q", "x").await;
    assert_eq!(keys(store, Some("p"), None).await, expected);
    assert_eq!(
        keys(store, Some("p"), Some("p/00999")).await,
        expected[1_000..]
    );

    // Even if more streams than connections are paused midway, reads still succeed.
    let mut paused: Vec<_> = (0..16).map(|_| store.list(None)).collect();
    for stream in &mut paused {
        stream.next().await.unwrap().unwrap();
    }
    assert_eq!(keys(store, None, None).await.len(), 2_751);
    // Keys deleted meanwhile are missing from later pages, and nothing else is.
    store.delete(&Path::from("p/02000")).await.unwrap();
    let rest: Vec<_> = paused.remove(0).try_collect().await.unwrap();
    assert_eq!(rest.len(), 2_751 - 1 - 1);
}
