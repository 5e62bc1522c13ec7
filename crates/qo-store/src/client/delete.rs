//! Deleting many objects, with a result for each.
//!
//! A delete is idempotent: it has no condition, and a missing object counts as deleted. A delete that was given up on
//! may still arrive later, so a deleted key must not be reused for something else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use object_store::path::Path;
use thiserror::Error;

use super::classify::Failure;
use super::{StoreClient, key_path};
use crate::error::StoreError;

/// The maximum number of keys that one S3 request deletes.
const BATCH_KEYS_MAX: usize = 1_000;

/// The objects that could not be deleted. All others are gone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("could not delete {} objects; the first error: {}", failed.len(), failed.first().map(|(_, error)| error.to_string()).unwrap_or_default())]
pub struct DeleteFailures {
    /// Each key with its error, in key order. Never empty.
    pub failed: Vec<(String, StoreError)>,
}

/// The keys of a batch that remain, each with its failure.
type Remaining = BTreeMap<Path, Failure>;

pub(super) async fn delete_many(
    client: &StoreClient,
    keys: &[String],
) -> Result<(), DeleteFailures> {
    let mut failed = Vec::new();
    let mut paths = BTreeSet::new();
    for key in keys {
        match key_path(key) {
            Ok(path) => {
                paths.insert(path);
            }
            Err(error) => failed.push((key.clone(), error)),
        }
    }
    let paths: Vec<Path> = paths.into_iter().collect();
    for batch in paths.chunks(BATCH_KEYS_MAX) {
        failed.extend(delete_batch(client, batch.to_vec()).await);
    }
    if failed.is_empty() {
        return Ok(());
    }
    failed.sort_by(|a, b| a.0.cmp(&b.0));
    Err(DeleteFailures { failed })
}

/// Deletes one batch, retrying only the keys that remain and may still succeed.
async fn delete_batch(client: &StoreClient, mut batch: Vec<Path>) -> Vec<(String, StoreError)> {
    let mut budget = client.budget();
    let mut failed = Vec::new();
    // A key that an earlier attempt may have deleted stays in doubt, whatever later attempts return.
    let mut doubtful: BTreeSet<Path> = BTreeSet::new();
    loop {
        let left = delete_once(client, budget.next_timeout(), &batch).await;
        let in_doubt = left
            .iter()
            .filter(|(_, failure)| failure.may_have_applied());
        doubtful.extend(in_doubt.map(|(path, _)| path.clone()));
        let (transient, refused): (Remaining, Remaining) = left
            .into_iter()
            .partition(|(_, failure)| failure.is_transient());
        let mut give_up = |left: Remaining, budget: &_| {
            failed.extend(left.into_iter().map(|(path, failure)| {
                let in_doubt = doubtful.contains(&path);
                let error = failure.give_up("delete_many", path.as_ref(), budget, in_doubt);
                (path.to_string(), error)
            }));
        };
        give_up(refused, &budget);
        let throttled = transient.values().any(Failure::is_throttled);
        if transient.is_empty() || !budget.pause(throttled).await {
            give_up(transient, &budget);
            return failed;
        }
        batch = transient.into_keys().collect();
    }
}

/// Sends one request and returns the remaining keys.
async fn delete_once(client: &StoreClient, timeout: Duration, batch: &[Path]) -> Remaining {
    let paths: Vec<_> = batch.iter().cloned().map(Ok).collect();
    let mut left: BTreeSet<&Path> = batch.iter().collect();
    let mut results = client
        .objects()
        .delete_stream(futures_util::stream::iter(paths).boxed());
    // Stores return one result per key, in key order. There are fewer only if the request fails as a whole.
    let mut replies: Vec<Option<Failure>> = Vec::with_capacity(batch.len());
    let reading = async {
        while let Some(result) = results.next().await {
            match result {
                Ok(path) => {
                    left.remove(&path);
                    replies.push(None);
                }
                Err(error) => replies.push(Some(of_delete(&error))),
            }
            if replies.len() >= batch.len() {
                break;
            }
        }
    };
    let timed_out = client.with_timeout(timeout, reading).await.err();
    let one_each = replies.len() == batch.len();
    let whole = timed_out
        .or_else(|| replies.iter().rev().find_map(Clone::clone))
        .unwrap_or_else(|| {
            Failure::Doubtful("the store did not report what it deleted".to_owned())
        });
    batch
        .iter()
        .enumerate()
        .filter(|(_, path)| left.contains(path))
        .map(|(index, path)| {
            let own = replies.get(index).filter(|_| one_each).cloned().flatten();
            (path.clone(), own.unwrap_or_else(|| whole.clone()))
        })
        .filter(|(_, failure)| !(one_each && *failure == Failure::NotFound))
        .collect()
}

/// S3 returns an error code per key, which `object_store` keeps only as text.
fn of_delete(error: &object_store::Error) -> Failure {
    match Failure::of(error) {
        Failure::Doubtful(text) if text.contains("AccessDenied") => Failure::Denied(text),
        other => other,
    }
}
