//! Random operations, with the in-memory store of the `object_store` crate as the model.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode};
use proptest::prelude::*;
use qo_store::admin::{BucketAdmin, Versioning};

use super::{Fixture, path};

#[derive(Debug, Clone)]
enum Operation {
    Put(Path, String),
    Create(Path, String),
    Delete(Path),
    Copy(Path, Path),
    CopyIfNotExists(Path, Path),
}

/// Few enough keys that operations collide, including characters adjacent to `/` in byte order.
fn key() -> impl Strategy<Value = Path> {
    let segment = prop::sample::select(vec!["a", "a.", "a0", "a!", "b", "é"]);
    prop::collection::vec(segment, 1..4).prop_map(|segments| path(&segments.join("/")))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (key(), ".{0,8}").prop_map(|(key, body)| Operation::Put(key, body)),
        2 => (key(), ".{0,8}").prop_map(|(key, body)| Operation::Create(key, body)),
        2 => key().prop_map(Operation::Delete),
        1 => (key(), key()).prop_map(|(from, to)| Operation::Copy(from, to)),
        1 => (key(), key()).prop_map(|(from, to)| Operation::CopyIfNotExists(from, to)),
    ]
}

/// The result of an operation, as far as stores must agree.
fn result_kind<T>(result: &Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(Error::NotFound { .. }) => "not found",
        Err(Error::AlreadyExists { .. }) => "already exists",
        Err(other) => panic!("{other}"),
    }
}

async fn apply(store: &dyn ObjectStore, operation: Operation) -> &'static str {
    match operation {
        Operation::Put(key, body) => result_kind(&store.put(&key, body.into()).await),
        Operation::Create(key, body) => {
            let created = store.put_opts(&key, body.into(), PutMode::Create.into());
            result_kind(&created.await)
        }
        Operation::Delete(key) => result_kind(&store.delete(&key).await),
        Operation::Copy(from, to) => result_kind(&store.copy(&from, &to).await),
        Operation::CopyIfNotExists(from, to) => {
            // Stores differ in which of two reasons they report first.
            match result_kind(&store.copy_if_not_exists(&from, &to).await) {
                "done" => "done",
                _ => "refused",
            }
        }
    }
}

async fn listed(
    store: &dyn ObjectStore,
    prefix: Option<&Path>,
    offset: Option<&Path>,
) -> Vec<Path> {
    let stream = match offset {
        Some(offset) => store.list_with_offset(prefix, offset),
        None => store.list(prefix),
    };
    stream
        .map_ok(|meta| meta.location)
        .try_collect()
        .await
        .unwrap()
}

async fn directory(
    store: &dyn ObjectStore,
    prefix: Option<&Path>,
) -> (BTreeSet<Path>, BTreeSet<Path>) {
    let found = store.list_with_delimiter(prefix).await.unwrap();
    let objects = found.objects.into_iter().map(|meta| meta.location);
    (
        objects.collect(),
        found.common_prefixes.into_iter().collect(),
    )
}

async fn compare(model: &InMemory, store: &dyn ObjectStore, prefixes: &[Path]) {
    let keys = listed(model, None, None).await;
    assert_eq!(listed(store, None, None).await, keys);
    for key in keys {
        let expected = model.get(&key).await.unwrap().bytes().await.unwrap();
        let found = store.get(&key).await.unwrap().bytes().await.unwrap();
        assert_eq!(found, expected, "{key}");
    }
    assert_eq!(directory(store, None).await, directory(model, None).await);
    for prefix in prefixes {
        let prefix = Some(prefix);
        assert_eq!(
            directory(store, prefix).await,
            directory(model, prefix).await
        );
        assert_eq!(
            listed(store, prefix, None).await,
            listed(model, prefix, None).await
        );
        for offset in prefixes {
            assert_eq!(
                listed(store, prefix, Some(offset)).await,
                listed(model, prefix, Some(offset)).await,
                "{prefix:?} after {offset}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn behaves_like_the_in_memory_store(
        operations in prop::collection::vec(operation(), 1..60),
        prefixes in prop::collection::vec(key(), 1..6),
        is_versioned: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let fixture = Fixture::new();
            if is_versioned {
                fixture.store.set_versioning(Versioning::On).await.unwrap();
            }
            let model = InMemory::new();
            for operation in operations {
                let expected = apply(&model, operation.clone()).await;
                let actual = apply(&fixture.store, operation.clone()).await;
                assert_eq!(actual, expected, "{operation:?}");
            }
            compare(&model, &fixture.store, &prefixes).await;
        });
    }
}
