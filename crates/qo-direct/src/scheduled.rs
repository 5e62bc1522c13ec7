//! Tasks that are not due yet become due.
//!
//! Their entries stand apart, in the order of their times, so that one LIST from the front shows all that is due and when the
//! next one will be. Whoever looks moves what is due to the ready index: first the new entry, then the old one's deletion, so
//! that a crash between the two leaves an entry too many and never one too few. Many may do so at once.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::Timestamp;
use qo_core::keys::{Key, LATER_PREFIX};
use qo_engine::EngineError;

use super::{DirectEngine, lock};

#[derive(Default)]
pub(super) struct Scheduled {
    known: Mutex<Known>,
    /// Held while somebody looks.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// When the next entry that is known of falls due.
    next_due: Option<Timestamp>,
    /// When the entries were last looked at, and after which signal.
    looked: Option<(Duration, u64)>,
}

impl Scheduled {
    /// Remembers that something will be due.
    pub(super) fn expect(&self, at: Timestamp) {
        let mut known = lock(&self.known);
        known.next_due = Some(known.next_due.map_or(at, |known| known.min(at)));
    }

    /// When the next entry that is known of falls due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        lock(&self.known).next_due
    }
}

impl DirectEngine {
    /// Moves what has become due to the ready index, if there can be something.
    pub(super) async fn promote_due(&self) -> Result<(), EngineError> {
        let later = &self.shared.scheduled;
        let Ok(_looking) = later.looking.try_lock() else {
            return Ok(());
        };
        loop {
            let epoch = self.shared.signal.epoch();
            let at = self.runtime().monotonic();
            let now = self.client().now();
            {
                let known = lock(&later.known);
                let is_due = known.next_due.is_some_and(|due| due <= now);
                let is_new = known.looked.is_none_or(|(looked_at, looked_epoch)| {
                    looked_epoch != epoch || at >= looked_at + self.config().fallback_interval
                });
                if !is_due && !is_new {
                    return Ok(());
                }
            }
            let page = self
                .client()
                .page(LATER_PREFIX, None, self.config().ready_page_size)
                .await?;
            let entries = page
                .entries
                .iter()
                .filter_map(|entry| match entry.key.parse() {
                    Ok(Key::Later(entry)) => Some(entry),
                    _ => None,
                });
            let (due, not_due): (Vec<_>, Vec<_>) =
                entries.partition(|entry| entry.available_at <= now);
            let whole_page_due = not_due.is_empty() && page.next.is_some();
            let moved = due.len();
            let results: Vec<Result<Key, EngineError>> = futures_util::stream::iter(due)
                .map(|entry| async move {
                    self.put_entry(&Key::Ready(entry.clone())).await?;
                    Ok(Key::Later(entry))
                })
                .buffer_unordered(self.config().concurrency)
                .collect()
                .await;
            let done = results.into_iter().collect::<Result<Vec<_>, _>>()?;
            self.shared.index_gc.sweep(done);
            let mut looked_epoch = epoch;
            if moved > 0 {
                // The next look must not see these again.
                self.shared.index_gc.flush().await;
                self.shared.signal.bump();
                // This bump is known. Any other one means that there may be an entry that this look has not seen.
                looked_epoch += 1;
            }
            {
                let mut known = lock(&later.known);
                known.next_due = not_due.iter().map(|entry| entry.available_at).min();
                known.looked = Some((at, looked_epoch));
            }
            if !whole_page_due {
                return Ok(());
            }
            lock(&later.known).looked = None;
        }
    }
}
