//! One small object that tells monitors whether tasks may be running.
//!
//! A monitor that listed the leases twice a minute, for nothing, would cost half a dollar a month in every idle worker. So a
//! process that claims says so first, at most every 30 s, and an idle monitor asks for that with a conditional GET, which
//! costs a twelfth of a LIST. It lists
//! - for two minutes after it has seen a change: a claim is at most 30 s younger than what its process last said, and so its
//!   lease entry is there before the two minutes are over;
//! - as long as its last list showed something;
//! - every five minutes in any case, because the claiming process may have failed to say so;
//! - whenever the question is not answered.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use qo_core::keys::CLAIMS_KEY;
use qo_store::StoreError;
use qo_store::client::Tag;
use qo_store::runtime::RuntimeExt;

use super::{DirectEngine, lock};

/// How often a process that claims says so at the most.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(30);
/// How long after a change there may be leases that a list has not shown yet.
const ACTIVE_INTERVAL: Duration = Duration::from_mins(2);
/// How often the leases are listed although nothing was said.
const FALLBACK_INTERVAL: Duration = Duration::from_mins(5);

#[derive(Default)]
pub(super) struct Activity {
    /// When this process last said that it claims. Held while it does, so that no claim overtakes it.
    announced_at: tokio::sync::Mutex<Option<Duration>>,
    seen: Mutex<Seen>,
}

/// What a monitor knows.
#[derive(Default, Clone)]
struct Seen {
    tag: Option<Tag>,
    changed_at: Option<Duration>,
    /// When the leases were last listed, and whether there were none.
    listed: Option<(Duration, bool)>,
}

impl DirectEngine {
    /// Says that tasks are about to be claimed, unless that was said just now.
    pub(super) async fn announce_claims(&self) {
        let mut announced_at = self.shared.activity.announced_at.lock().await;
        let now = self.runtime().monotonic();
        if announced_at.is_some_and(|at| now < at + ANNOUNCE_INTERVAL) {
            return;
        }
        // Any bytes will do that were never there before.
        let body = format!("{{\"op_id\":\"{}\"}}", self.runtime().new_op_id());
        match self.client().put(CLAIMS_KEY, Bytes::from(body)).await {
            Ok(_) => *announced_at = Some(now),
            Err(error) => {
                tracing::debug!(%error, "idle monitors were not told; they look by themselves later");
            }
        }
    }

    /// Remembers what a list of the leases has shown.
    pub(super) fn leases_were_listed(&self, at: Duration, none: bool) {
        lock(&self.shared.activity.seen).listed = Some((at, none));
    }

    /// Whether there may be leases.
    pub(super) async fn may_be_running(&self) -> bool {
        let now = self.runtime().monotonic();
        let seen = lock(&self.shared.activity.seen).clone();
        let Some((listed_at, true)) = seen.listed else {
            return true;
        };
        if now >= listed_at + FALLBACK_INTERVAL
            || seen.changed_at.is_some_and(|at| now < at + ACTIVE_INTERVAL)
        {
            return true;
        }
        let found = match &seen.tag {
            Some(tag) => self.client().get_if_changed(CLAIMS_KEY, tag).await,
            None => self.client().get(CLAIMS_KEY).await.map(Some),
        };
        match found {
            Ok(Some(object)) => {
                let mut seen = lock(&self.shared.activity.seen);
                seen.tag = Some(object.tag);
                // The time at which it is known, not the earlier one at which it was asked.
                seen.changed_at = Some(self.runtime().monotonic());
                true
            }
            // Nothing was claimed since, or ever.
            Ok(None) | Err(StoreError::NotFound { .. }) => false,
            Err(error) => {
                tracing::debug!(%error, "whether tasks are claimed is not known; looking");
                true
            }
        }
    }
}
