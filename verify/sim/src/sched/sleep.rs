//! Waiting in virtual time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Scheduler;

/// Completes at its time.
pub struct Sleep {
    scheduler: Scheduler,
    deadline: Duration,
    timer: Option<u64>,
}

impl Sleep {
    pub(super) fn new(scheduler: Scheduler, deadline: Duration) -> Self {
        Self {
            scheduler,
            deadline,
            timer: None,
        }
    }

    fn forget_timer(&mut self) {
        if let Some(number) = self.timer.take() {
            let timer = self
                .scheduler
                .state()
                .timers
                .remove(&(self.deadline, number));
            drop(timer);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.forget_timer();
        let mut state = self.scheduler.state();
        if state.now >= self.deadline {
            return Poll::Ready(());
        }
        let number = state.next_timer;
        state.next_timer += 1;
        state
            .timers
            .insert((self.deadline, number), context.waker().clone());
        drop(state);
        self.timer = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.forget_timer();
    }
}
