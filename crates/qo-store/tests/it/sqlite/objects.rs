//! Single objects: conditions, ranges, uploads, limits.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, UpdateVersion,
};
use qo_store::sqlite::{KEY_LENGTH_LIMIT, OBJECT_SIZE_LIMIT, SqliteError};

use super::{ClockRuntime, Fixture, get, is_missing, put, update};

#[tokio::test]
async fn each_put_mode_checks_its_own_condition() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let key = Path::from("k");
    let missing = UpdateVersion {
        e_tag: Some("1".to_owned()),
        version: None,
    };
    let refused = store
        .put_opts(&key, "0".into(), PutMode::Update(missing).into())
        .await;
    assert!(matches!(refused, Err(Error::Precondition { .. })));

    let first = store
        .put_opts(&key, "1".into(), PutMode::Create.into())
        .await
        .unwrap();
    let taken = store
        .put_opts(&key, "2".into(), PutMode::Create.into())
        .await;
    assert!(matches!(taken, Err(Error::AlreadyExists { .. })));

    let second = store
        .put_opts(&key, "2".into(), update(&first).into())
        .await
        .unwrap();
    let stale = store
        .put_opts(&key, "3".into(), update(&first).into())
        .await;
    assert!(matches!(stale, Err(Error::Precondition { .. })));
    assert_eq!(get(store, "k").await, "2");

    let by_version = PutMode::Update(UpdateVersion {
        e_tag: None,
        version: second.version.clone(),
    });
    store
        .put_opts(&key, "3".into(), by_version.into())
        .await
        .unwrap();
    let by_nothing = PutMode::Update(UpdateVersion {
        e_tag: None,
        version: None,
    });
    let refused = store
        .put_opts(&key, "4".into(), by_nothing.into())
        .await
        .unwrap_err();
    assert_eq!(sqlite_error(&refused), Some(&SqliteError::MissingTag));
    put(store, "k", "5").await;
    assert_eq!(get(store, "k").await, "5");
}

fn sqlite_error(error: &Error) -> Option<&SqliteError> {
    match error {
        Error::Generic { source, .. } | Error::NotSupported { source } => source.downcast_ref(),
        _ => None,
    }
}

#[tokio::test]
async fn a_tag_never_repeats_even_for_equal_bytes_or_after_a_deletion() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let mut tags = HashSet::new();
    for _ in 0..3 {
        tags.insert(put(store, "k", "same").await.e_tag.unwrap());
        tags.insert(put(store, "other", "same").await.e_tag.unwrap());
        store.delete(&Path::from("k")).await.unwrap();
        tags.insert(put(store, "k", "same").await.e_tag.unwrap());
        store
            .copy(&Path::from("other"), &Path::from("k"))
            .await
            .unwrap();
        tags.insert(store.head(&Path::from("k")).await.unwrap().e_tag.unwrap());
    }
    assert_eq!(tags.len(), 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_32_swaps_wins() {
    let fixture = Fixture::new();
    // Half of them use their own connections, like another process.
    let stores = [fixture.store.clone(), fixture.second()];
    let key = Path::from("contended");
    let mut current = put(&stores[0], "contended", "0").await;
    for round in 0..25 {
        let swaps = (0..32).map(|swap: usize| {
            let body = format!("{round}/{swap}");
            let mode = update(&current);
            stores[swap % 2].put_opts(&key, body.into(), mode.into())
        });
        let outcomes = join_all(swaps).await;
        let mut winners = Vec::new();
        for (swap, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(written) => winners.push((swap, written)),
                Err(Error::Precondition { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        let (swap, written) = winners.remove(0);
        assert_eq!(
            get(&stores[1], "contended").await,
            format!("{round}/{swap}")
        );
        current = written;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_32_creates_wins() {
    let fixture = Fixture::new();
    let stores = [fixture.store.clone(), fixture.second()];
    for round in 0..25 {
        let key = Path::from(format!("new/{round}"));
        let creations = (0..32).map(|creation: usize| {
            stores[creation % 2].put_opts(&key, "x".into(), PutMode::Create.into())
        });
        let outcomes = join_all(creations).await;
        let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let lost = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Err(Error::AlreadyExists { .. })))
            .count();
        assert_eq!((won, lost), (1, 31), "round {round}");
    }
}

#[tokio::test]
async fn ranges_match_the_trait() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let key = Path::from("k");
    put(store, "k", "0123456789").await;
    let ask = async |range: GetRange| {
        let options = GetOptions::new().with_range(Some(range));
        let found = store.get_opts(&key, options).await?;
        assert_eq!(found.meta.size, 10);
        Ok::<_, Error>((found.range.clone(), found.bytes().await?))
    };
    for (range, resolved, expected) in [
        (GetRange::Bounded(2..5), 2..5, "234"),
        (GetRange::Bounded(8..99), 8..10, "89"),
        (GetRange::Offset(7), 7..10, "789"),
        (GetRange::Suffix(3), 7..10, "789"),
        (GetRange::Suffix(99), 0..10, "0123456789"),
        (GetRange::Suffix(0), 10..10, ""),
    ] {
        let (got_range, got) = ask(range.clone()).await.unwrap();
        assert_eq!(
            (got_range, got.as_ref()),
            (resolved, expected.as_bytes()),
            "{range}"
        );
    }
    #[expect(clippy::reversed_empty_ranges, reason = "it must be rejected")]
    let backwards = GetRange::Bounded(5..2);
    for range in [
        GetRange::Bounded(10..12),
        GetRange::Offset(10),
        GetRange::Bounded(3..3),
        backwards,
    ] {
        let refused = ask(range.clone()).await;
        assert!(matches!(refused, Err(Error::Generic { .. })), "{range}");
    }
    let parts = store.get_ranges(&key, &[0..2, 8..20, 4..5]).await.unwrap();
    assert_eq!(parts, ["01", "89", "4"]);
    assert!(store.get_ranges(&key, &[0..2, 10..11]).await.is_err());
    let missing = store.get_ranges(&Path::from("none"), &[0..1, 1..2]).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn reads_honour_conditions_and_use_the_runtimes_clock() {
    let clock = ClockRuntime::at(1_700_000_000_123);
    let fixture = Fixture::in_runtime(clock.clone());
    let store = &fixture.store;
    let key = Path::from("k");
    let written = put(store, "k", "body").await;
    let meta = store.head(&key).await.unwrap();
    assert_eq!(meta.last_modified.timestamp_millis(), 1_700_000_000_123);
    assert_eq!((meta.e_tag, meta.size), (written.e_tag.clone(), 4));
    let at = meta.last_modified;
    let earlier = at - chrono::Duration::milliseconds(1);

    let unchanged = GetOptions::new().with_if_none_match(written.e_tag.clone());
    assert!(matches!(
        store.get_opts(&key, unchanged.clone()).await,
        Err(Error::NotModified { .. })
    ));
    let not_since = GetOptions::new().with_if_modified_since(Some(at));
    assert!(matches!(
        store.get_opts(&key, not_since).await,
        Err(Error::NotModified { .. })
    ));
    let since = GetOptions::new().with_if_modified_since(Some(earlier));
    store.get_opts(&key, since).await.unwrap();
    let not_unmodified = GetOptions::new().with_if_unmodified_since(Some(earlier));
    assert!(matches!(
        store.get_opts(&key, not_unmodified).await,
        Err(Error::Precondition { .. })
    ));
    put(store, "k", "new").await;
    store.get_opts(&key, unchanged).await.unwrap();
    let old = GetOptions::new().with_if_match(written.e_tag);
    assert!(matches!(
        store.get_opts(&key, old).await,
        Err(Error::Precondition { .. })
    ));
    let head = GetOptions::new().with_head(true);
    let found = store.get_opts(&key, head).await.unwrap();
    assert!(found.bytes().await.unwrap().is_empty());
}

#[tokio::test]
async fn attributes_follow_the_object() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let attributes = Attributes::from_iter([
        (Attribute::ContentType, "application/json"),
        (Attribute::Metadata("op".into()), "1"),
    ]);
    let options = PutOptions::from(attributes.clone());
    store
        .put_opts(&Path::from("a"), "x".into(), options)
        .await
        .unwrap();
    store
        .copy(&Path::from("a"), &Path::from("b"))
        .await
        .unwrap();
    for key in ["a", "b"] {
        let found = store.get(&Path::from(key)).await.unwrap();
        assert_eq!(found.attributes, attributes);
    }
    put(store, "a", "y").await;
    let found = store.get(&Path::from("a")).await.unwrap();
    assert!(found.attributes.is_empty());
}

#[tokio::test]
async fn an_upload_appears_at_once_and_in_order_or_never() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let key = Path::from("large");
    let mut upload = store.put_multipart(&key).await.unwrap();
    let parts: Vec<Bytes> = (0..3_u8).map(|n| vec![n; 300_000].into()).collect();
    let arrivals: Vec<_> = parts
        .iter()
        .map(|part| upload.put_part(part.clone().into()))
        .collect();
    assert!(upload.complete().await.is_err(), "no part has arrived yet");
    for arrival in arrivals.into_iter().rev() {
        arrival.await.unwrap();
    }
    assert!(is_missing(store, "large").await);
    upload.complete().await.unwrap();
    assert_eq!(get(store, "large").await, parts.concat());
    assert!(upload.complete().await.is_err());

    let mut upload = store.put_multipart(&key).await.unwrap();
    upload.put_part("never".into()).await.unwrap();
    upload.abort().await.unwrap();
    assert!(upload.complete().await.is_err());
    assert!(upload.put_part("late".into()).await.is_err());
    assert_eq!(get(store, "large").await, parts.concat());
}

#[tokio::test]
async fn limits_are_enforced_and_reported() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let largest = vec![7; OBJECT_SIZE_LIMIT];
    let key = Path::from("largest");
    store.put(&key, largest.into()).await.unwrap();
    assert_eq!(get(store, "largest").await.len(), OBJECT_SIZE_LIMIT);
    let too_large = vec![7; OBJECT_SIZE_LIMIT + 1];
    let refused = store.put(&key, too_large.into()).await.unwrap_err();
    assert!(matches!(
        sqlite_error(&refused),
        Some(SqliteError::TooLarge { .. })
    ));
    let mut upload = store.put_multipart(&key).await.unwrap();
    let half = Bytes::from(vec![7; OBJECT_SIZE_LIMIT / 2 + 1]);
    upload.put_part(half.clone().into()).await.unwrap();
    let refused = upload.put_part(half.into()).await.unwrap_err();
    assert!(refused.to_string().contains("too large"), "{refused}");

    put(store, &"k".repeat(KEY_LENGTH_LIMIT), "x").await;
    for bad in [String::new(), "k".repeat(KEY_LENGTH_LIMIT + 1)] {
        let bad = Path::from(bad);
        let refused = store.put(&bad, "x".into()).await.unwrap_err();
        assert!(matches!(
            sqlite_error(&refused),
            Some(SqliteError::KeyLength { .. })
        ));
        assert!(store.copy(&key, &bad).await.is_err());
        assert!(store.put_multipart(&bad).await.is_err());
        assert!(matches!(store.get(&bad).await, Err(Error::NotFound { .. })));
        store.delete(&bad).await.unwrap();
    }
}

#[tokio::test]
async fn thousands_are_deleted_in_few_transactions_ignoring_missing_ones() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let keys: Vec<Path> = (0..2_500)
        .map(|n| Path::from(format!("k/{n:04}")))
        .collect();
    // Every fifth key does not exist.
    let existing = keys.iter().enumerate().filter(|(n, _)| n % 5 != 0);
    join_all(existing.map(|(_, key)| store.put(key, "x".into()))).await;
    put(store, "kept", "x").await;
    let error = Error::NotImplemented {
        operation: "the test's".to_owned(),
        implementer: "list".to_owned(),
    };
    let locations = stream::iter(keys.clone())
        .map(Ok)
        .chain(stream::iter([Err(error)]));
    let results: Vec<_> = store.delete_stream(locations.boxed()).collect().await;
    assert_eq!(results.len(), 2_501);
    for (result, key) in results.iter().zip(&keys) {
        assert_eq!(result.as_ref().unwrap(), key);
    }
    assert!(results[2_500].is_err());
    let left: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert_eq!(left.len(), 1);
}

#[tokio::test]
async fn renaming_is_atomic_and_onto_itself_does_nothing() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    put(store, "a", "1").await;
    let (a, b) = (Path::from("a"), Path::from("b"));
    store.rename(&a, &a).await.unwrap();
    assert_eq!(get(store, "a").await, "1");
    store.rename(&a, &b).await.unwrap();
    assert!(is_missing(store, "a").await);
    assert_eq!(get(store, "b").await, "1");
    put(store, "a", "2").await;
    for (from, to) in [(&a, &b), (&a, &a)] {
        assert!(matches!(
            store.rename_if_not_exists(from, to).await,
            Err(Error::AlreadyExists { .. })
        ));
    }
    assert_eq!(get(store, "a").await, "2");
    store.copy(&a, &a).await.unwrap();
    assert_eq!(get(store, "a").await, "2");
}
