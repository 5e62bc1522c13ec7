//! The removal of what probes leave behind.
//!
//! A probe removes its own keys whatever it found. One that is killed in the middle leaves them; the next probe removes
//! what is older than an hour, by the store's clock, and no probe that still runs is that old. A failure to remove is no
//! reason to fail: the keys are small, apart from all others, and the next probe tries again.

use futures_util::stream::{self, StreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;
use qo_core::Timestamp;

use super::PROBE_PREFIX;
use super::session::{Session, describe};
use super::verdict::ProbedVersioning;

/// How old a leftover must be.
const LEFTOVER_AGE_MS: u64 = 60 * 60 * 1_000;

/// How many versions of one key are removed.
const VERSIONS_MAX: usize = 1_000;

/// How many requests that remove versions run at once.
const REMOVALS_AT_ONCE: usize = 8;

/// Removes the keys of this probe, with their versions where the bucket keeps them.
pub(super) async fn own(session: &Session<'_>, versioning: ProbedVersioning) {
    remove(session, &session.keys(), versioning).await;
}

/// Removes what earlier probes left, up to one page of it.
pub(super) async fn leftovers(
    session: &Session<'_>,
    store_time: Timestamp,
    versioning: ProbedVersioning,
) {
    match session.list(&Path::from(PROBE_PREFIX)).await {
        Ok(listed) => remove(session, &older(&listed, store_time), versioning).await,
        Err(error) => tracing::debug!(%error, "cannot look for leftovers of earlier probes"),
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
        // Versions are clutter, not a reason to make a start-up wait.
        if session.elapsed() > session.budget * 3 / 2 {
            return;
        }
        if let Err(error) = admin.delete_version(key.as_ref(), &version.version).await {
            tracing::debug!(%key, %error, "cannot remove a version");
            return;
        }
    }
}
