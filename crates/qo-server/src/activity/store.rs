//! Stores the counters of periods periodically, and loads them when this process starts to serve.
//!
//! | what | requests |
//! | --- | --- |
//! | begin to serve, or to lead | 1 GET |
//! | while tasks change | 1 PUT every five minutes |
//! | clean stop | 1 PUT |
//!
//! A leader counts all changes of the queue, so the next leader continues its counters. A server in direct mode counts only its own changes, and
//! has an object of its own. What was counted since the last PUT is lost in a crash: at most five minutes.

use std::time::Duration;

use bytes::Bytes;
use qo_store::{StoreClient, StoreError};

use super::SavedActivity;
use crate::app::App;

/// How often changed counters are stored.
const SAVE_INTERVAL: Duration = Duration::from_mins(5);
/// How often it is checked whether this process leads.
const LEADER_CHECK: Duration = Duration::from_secs(2);
/// A larger object is not taken over.
const SAVED_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Where the counters of a server are stored.
#[derive(Debug, Clone)]
pub struct ActivityStore {
    client: StoreClient,
    key: String,
}

impl ActivityStore {
    /// The counters of all changes of a queue, which its leader makes.
    pub fn of_queue(client: StoreClient) -> Self {
        Self {
            client,
            key: "meta/activity/queue.json".to_owned(),
        }
    }

    /// The counters of one of the servers in direct mode. Characters that do not belong into a key are replaced.
    pub fn of_server(client: StoreClient, name: &str) -> Self {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name: String = name
            .chars()
            .take(128)
            .map(|c| if allowed(c) { c } else { '-' })
            .collect();
        Self {
            client,
            key: format!("meta/activity/server-{name}.json"),
        }
    }

    async fn load(&self) -> Result<Option<SavedActivity>, StoreError> {
        let object = match self.client.get(&self.key).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if object.body.len() > SAVED_MAX_BYTES {
            return Ok(None);
        }
        Ok(serde_json::from_slice(&object.body).ok())
    }

    async fn save(&self, saved: &SavedActivity) {
        let Ok(body) = serde_json::to_vec(saved) else {
            return;
        };
        if let Err(error) = self.client.put(&self.key, Bytes::from(body)).await {
            tracing::debug!(%error, "cannot store the counters of the last week");
        }
    }
}

/// Loads the counters when this process starts to serve, and stores them periodically. Runs until it is dropped.
pub(crate) async fn save_periodically(app: &App) {
    let Some(store) = &app.activity_store else {
        return std::future::pending().await;
    };
    let runtime = app.runtime();
    let mut saved_at = runtime.monotonic();
    loop {
        // What is stored must be taken over before it may be replaced.
        if is_leading(app) && app.activity.must_resume() && app.confirm_leader().await.is_some() {
            match store.load().await {
                Ok(saved) => {
                    app.activity.resume(saved, app.now());
                    saved_at = runtime.monotonic();
                }
                Err(error) => tracing::debug!(%error, "cannot read the counters of the last week"),
            }
        }
        if runtime.monotonic() >= saved_at + SAVE_INTERVAL {
            save(app).await;
            saved_at = runtime.monotonic();
        }
        runtime.sleep(LEADER_CHECK).await;
    }
}

/// Whether this process serves, as far as is known without a request.
fn is_leading(app: &App) -> bool {
    let leader = app.leader.as_ref();
    leader.is_none_or(|leader| leader.is_confirmed())
}

/// Stores the counters, if they have changed since the last time.
pub(crate) async fn save(app: &App) {
    if let Some(store) = &app.activity_store
        && is_leading(app)
        && let Some(saved) = app.activity.take_changed()
    {
        store.save(&saved).await;
    }
}
