//! Proofs that this engine is still the writer of the database.
//!
//! A response that none of its own writes confirms needs a proof: a request that began after the state was read, and that a replaced
//! writer could not have completed. There are two kinds: a write of the engine that became durable, and a check of the database. The one
//! that completes first counts.
//!
//! A write that began before the read proves nothing. It may have become durable before another process took over, even if its
//! response comes later.
//!
//! | the state is read at | then | the read |
//! | --- | --- | --- |
//! | 1 | a write or a check begins at 2 and succeeds | is confirmed: at 2 or later, no other engine had opened the database |
//! | 2 | a write that began at 1 succeeds | is not confirmed |
//!
//! Reads share a check: those that come while a check is in flight wait for the next one. So there is at most one check at a time,
//! however many reads there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qo_engine::EngineError;
use tokio::sync::{Mutex, watch};

use super::port::WriterCheck;

/// A position in the order in which the engine reads its state and begins requests, and the monotonic time of that moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moment {
    number: u64,
    at: Duration,
}

/// The latest proof that this engine is the writer.
pub(super) struct WriterProof {
    check: Arc<dyn WriterCheck>,
    numbers: AtomicU64,
    /// When the request of the latest proof began.
    proven: watch::Sender<Moment>,
    checking: Mutex<()>,
}

impl WriterProof {
    /// No proof so far, except that the engine took over at `proven_at`.
    pub(super) fn new(check: Arc<dyn WriterCheck>, proven_at: Duration) -> Self {
        let first = Moment {
            number: 0,
            at: proven_at,
        };
        Self {
            check,
            numbers: AtomicU64::new(0),
            proven: watch::Sender::new(first),
            checking: Mutex::new(()),
        }
    }

    /// The next moment: a read of the state, or the beginning of a request.
    pub(super) fn moment(&self, now: Duration) -> Moment {
        let number = self.numbers.fetch_add(1, Ordering::AcqRel) + 1;
        Moment { number, at: now }
    }

    /// Records that a request which began at this moment has succeeded.
    pub(super) fn succeeded(&self, began: Moment) {
        self.proven.send_if_modified(|proven| {
            let is_newer = began.number > proven.number;
            if is_newer {
                *proven = began;
            }
            is_newer
        });
    }

    /// How long before `now` the request of the latest proof began.
    pub(super) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.proven.borrow().at)
    }

    /// Waits for a proof that began after `read`, and checks the database unless a write is faster. `now` is the monotonic time.
    pub(super) async fn after(
        &self,
        read: Moment,
        now: impl Fn() -> Duration,
    ) -> Result<(), EngineError> {
        let mut proven = self.proven.subscribe();
        let is_proven = |proven: &Moment| proven.number > read.number;
        let check = async {
            let _only_one = self.checking.lock().await;
            if is_proven(&self.proven.borrow()) {
                return Ok(());
            }
            let began = self.moment(now());
            self.check.check().await?;
            self.succeeded(began);
            Ok(())
        };
        tokio::select! {
            biased;
            // `self` owns the sender, so the wait cannot fail.
            _ = proven.wait_for(is_proven) => Ok(()),
            checked = check => checked,
        }
    }
}
