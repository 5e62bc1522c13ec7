//! Removal of the objects of probes.
//!
//! A probe always removes its own keys. A probe that is killed leaves them behind. The next probe removes those older
//! than an hour by the store's clock; no running probe is that old. A failed removal is not an error: the keys are
//! small and separate from all others, and the next probe tries again.

use futures_util::stream::{self, StreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;
use qo_core::Timestamp;

use super::PROBE_PREFIX;
use super::report::ProbedVersioning;
use super::session::{Session, describe};

/// The minimum age of leftovers.
const LEFTOVER_AGE_MS: u64 = 60 * 60 * 1_000;

/// The maximum number of versions removed per key.
const VERSIONS_MAX: usize = 1_000;

/// The number of concurrent version removals.
const REMOVALS_AT_ONCE: usize = 8;

/// Removes the keys of this probe, including their versions in a versioned bucket.
pub(super) async fn own(session: &Session<'_>, versioning: ProbedVersioning) {
    remove(session, &session.keys(), versioning).await;
}

/// Removes up to one page of keys that earlier probes left behind.
pub(super) async fn leftovers(
    session: &Session<'_>,
    store_time: Timestamp,
    versioning: ProbedVersioning,
) {
    match session.list(&Path::from(PROBE_PREFIX)).await {
        Ok(listed) => remove(session, &older(&listed, store_time), versioning).await,
        Err(error) => tracing::debug!(%error, "cannot list leftovers of earlier probes"),
    }
}

fn older(listed: &[ObjectMeta], store_time: Timestamp) -> Vec<Path> {
    let latest = store_time.minus_millis(LEFTOVER_AGE_MS).as_millis();
    let old = listed
        .iter()
        .filter(|meta| meta.last_modified.timestamp_millis() < latest);
    old.map(|meta| meta.location.clone()).collect()
}

async fn remove(session: &Session<'_>, keys: &[Path], versioning: ProbedVersioning) {
    if keys.is_empty() {
        return;
    }
    if let Err(error) = session.delete(keys).await {
        let detail = describe(&error);
        tracing::warn!(%detail, "cannot remove the keys of the probe; the next probe tries again");
    }
    let keeps_versions = matches!(
        versioning,
        ProbedVersioning::On | ProbedVersioning::Suspended
    );
    if keeps_versions {
        stream::iter(keys)
            .for_each_concurrent(REMOVALS_AT_ONCE, |key| remove_versions(session, key))
            .await;
    }
}

async fn remove_versions(session: &Session<'_>, key: &Path) {
    let Some(admin) = session.admin else { return };
    let versions = match admin.list_versions(key.as_ref(), VERSIONS_MAX).await {
        Ok(list) => list.versions,
        Err(error) => {
            tracing::debug!(%key, %error, "cannot list versions to remove");
            return;
        }
    };
    for version in versions {
        // Removing versions must not delay the start.
        if session.elapsed() > session.budget * 3 / 2 {
            return;
        }
        if let Err(error) = admin.delete_version(key.as_ref(), &version.version).await {
            tracing::debug!(%key, %error, "cannot remove a version");
            return;
        }
    }
}
