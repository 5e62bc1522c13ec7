//! Finds out from the times of objects whether anything has used a bucket recently.

use qo_core::keys::{
    BROKER_KEY, CLAIMS_KEY, LEASES_PREFIX, SIGNAL_KEY, TASKS_PREFIX, WORKERS_PREFIX,
};
use qo_core::{Timestamp, keys};
use qo_store::{Store, StoreError, written_since};

/// Workers and brokers write a heartbeat at least every 30 s, so this is several of them.
const RECENT_MS: u64 = 120_000;
/// How many objects are listed per prefix.
const LISTED_MAX: usize = 10_000;
/// How many objects a message names.
const NAMED_MAX: usize = 5;
/// The precision of times in lists, and the error of the store's estimated time.
const PRECISION_MS: u64 = 2_000;

/// Who has used the bucket recently, as a part of a sentence; `None` if nobody has. Costs a LIST each of `workers/`, `meta/` and
/// `leases/`.
pub(super) async fn recent_use(
    store: &Store,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    let since = now.minus_millis(RECENT_MS);
    let workers = written_since(store, WORKERS_PREFIX, since, LISTED_MAX).await?;
    if !workers.is_empty() {
        let count = workers.len();
        let (noun, verb) = if count == 1 {
            ("worker", "is")
        } else {
            ("workers", "are")
        };
        return Ok(Some(format!(
            "{count} {noun} {verb} alive ({})",
            names(&workers)
        )));
    }
    let meta = written_since(store, "meta", since, LISTED_MAX).await?;
    for (key, what) in [
        (BROKER_KEY, "a broker is alive"),
        (CLAIMS_KEY, "tasks were claimed a moment ago"),
        (SIGNAL_KEY, "tasks were submitted a moment ago"),
        (keys::SWEEP_KEY, "maintenance ran a moment ago"),
    ] {
        if meta.iter().any(|recent| recent == key) {
            return Ok(Some(what.to_owned()));
        }
    }
    let leases = written_since(store, LEASES_PREFIX, since, LISTED_MAX).await?;
    Ok((!leases.is_empty()).then(|| "tasks are running".to_owned()))
}

/// The objects that were written since `start`, as the end of a sentence.
pub(super) async fn written_meanwhile(store: &Store, start: Timestamp) -> String {
    let since = start.minus_millis(PRECISION_MS);
    let mut written = Vec::new();
    for prefix in [TASKS_PREFIX, "keys"] {
        match written_since(store, prefix, since, LISTED_MAX).await {
            Ok(keys) => written.extend(keys),
            Err(error) => return format!("; the objects written meanwhile are unknown: {error}"),
        }
    }
    if written.is_empty() {
        return String::new();
    }
    format!(
        "; {} objects were written meanwhile and may refuse every change from now on: {}; run `qo doctor`",
        written.len(),
        names(&written)
    )
}

/// The first few keys.
fn names(keys: &[String]) -> String {
    let named: Vec<&str> = keys.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = keys.len().saturating_sub(NAMED_MAX);
    let rest = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{rest}", named.join(", "))
}
