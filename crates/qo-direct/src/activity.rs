//! One small object that shows lease reapers whether tasks may be running.
//!
//! Listing the leases twice a minute in an idle bucket would cost half a dollar a month for every idle worker. Therefore a
//! process announces its claims in this object when it begins to claim, at most every 30 s. The announcement is a hint: it is sent once, in
//! the background, and a failed one is repeated with the next claim. An idle lease reaper reads the object with a
//! conditional GET, which costs a twelfth of a LIST. It lists the leases
//! - for two minutes after it has seen a change: a claim is at most 30 s newer than the last announcement of its process, so its
//!   lease entry is written before the two minutes end;
//! - as long as its last LIST returned entries;
//! - every five minutes in any case, because the announcement may have failed;
//! - whenever it cannot read the object.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use qo_core::keys::CLAIMS_KEY;
use qo_store::StoreError;
use qo_store::client::Tag;
use qo_store::runtime::RuntimeExt;

use super::{DirectEngine, lock};

/// The minimum time between two announcements of a process.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(30);
/// How long after an announcement there may be leases that no LIST has shown yet.
const ACTIVE_INTERVAL: Duration = Duration::from_mins(2);
/// How often the leases are listed without an announcement.
const FALLBACK_INTERVAL: Duration = Duration::from_mins(5);

#[derive(Default)]
pub(super) struct Activity {
    /// When this process last announced claims, or began to.
    announced_at: Mutex<Option<Duration>>,
    observed: Mutex<ObservedActivity>,
}

/// What the lease reaper of this process has observed.
#[derive(Default, Clone)]
struct ObservedActivity {
    tag: Option<Tag>,
    changed_at: Option<Duration>,
    /// When the leases were last listed, and whether the list was empty.
    listed: Option<(Duration, bool)>,
}

impl DirectEngine {
    /// Announces in the background that tasks are being claimed, unless that was announced recently.
    pub(super) fn announce_claims(&self) {
        let now = self.runtime().monotonic();
        {
            let mut announced_at = lock(&self.shared.activity.announced_at);
            if announced_at.is_some_and(|at| now < at + ANNOUNCE_INTERVAL) {
                return;
            }
            *announced_at = Some(now);
        }
        let engine = self.clone();
        self.shared.runtime.spawn(Box::pin(async move {
            // The body only has to differ from all earlier ones.
            let body = format!("{{\"op_id\":\"{}\"}}", engine.runtime().new_op_id());
            let client = engine.client().trying_once();
            if let Err(error) = client.put(CLAIMS_KEY, Bytes::from(body)).await {
                tracing::debug!(%error, "could not announce claims; idle lease reapers list the leases later without it");
                *lock(&engine.shared.activity.announced_at) = None;
            }
        }));
    }

    /// Records when the leases were listed and whether the list was empty.
    pub(super) fn record_lease_list(&self, at: Duration, is_empty: bool) {
        lock(&self.shared.activity.observed).listed = Some((at, is_empty));
    }

    /// Whether there may be leases.
    pub(super) async fn may_have_leases(&self) -> bool {
        let now = self.runtime().monotonic();
        let observed = lock(&self.shared.activity.observed).clone();
        let Some((listed_at, true)) = observed.listed else {
            return true;
        };
        if now >= listed_at + FALLBACK_INTERVAL
            || observed
                .changed_at
                .is_some_and(|at| now < at + ACTIVE_INTERVAL)
        {
            return true;
        }
        let result = match &observed.tag {
            Some(tag) => self.client().get_if_changed(CLAIMS_KEY, tag).await,
            None => self.client().get(CLAIMS_KEY).await.map(Some),
        };
        match result {
            Ok(Some(object)) => {
                let mut observed = lock(&self.shared.activity.observed);
                observed.tag = Some(object.tag);
                // The time of the response, not of the request.
                observed.changed_at = Some(self.runtime().monotonic());
                true
            }
            // No claims since the last read, or none at all.
            Ok(None) | Err(StoreError::NotFound { .. }) => false,
            Err(error) => {
                tracing::debug!(%error, "could not read the claim activity; listing the leases");
                true
            }
        }
    }
}
