//! The queue of handlers: its requests use the runtime of the worker.
//!
//! A client such as an HTTP connection consists of background tasks and timers, which belong to the runtime in which a request is
//! polled. On the handler threads they would stand still while all of these threads are blocked: a handler that blocks its thread
//! until the queue responds would wait forever, and so would a lease renewal on the same connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use qo_core::Timestamp;
use qo_engine::api::Duty;
use qo_engine::watch::Watcher;
use qo_engine::{ChangeCall, Engine, EngineError, ForwardingEngine, ReadCall};
use qo_store::runtime::{BoxFuture, ProcessUsage, Runtime};
use tokio::runtime::Handle;

use crate::queue::Queue;

/// The same queue, with its requests in the runtime `home`.
pub(super) fn queue_at(home: Handle, queue: &Queue) -> Queue {
    let engine = HomeEngine {
        engine: Arc::clone(queue.engine()),
        home: home.clone(),
    };
    let runtime = HomeRuntime {
        runtime: Arc::clone(queue.runtime()),
        home,
    };
    queue.with(Arc::new(engine), Arc::new(runtime))
}

/// A future whose tasks, timers and connections belong to the runtime `home`, wherever it is polled.
struct AtHome<F> {
    home: Handle,
    future: F,
}

impl<F: Future + Unpin> Future for AtHome<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _entered = this.home.enter();
        Pin::new(&mut this.future).poll(context)
    }
}

#[derive(Debug)]
struct HomeRuntime {
    runtime: Arc<dyn Runtime>,
    home: Handle,
}

impl Runtime for HomeRuntime {
    fn now(&self) -> Timestamp {
        self.runtime.now()
    }

    fn monotonic(&self) -> Duration {
        self.runtime.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let _entered = self.home.enter();
        self.runtime.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<()>) {
        let _entered = self.home.enter();
        self.runtime.spawn(future);
    }

    fn random(&self) -> u64 {
        self.runtime.random()
    }

    fn process_usage(&self) -> Option<ProcessUsage> {
        self.runtime.process_usage()
    }
}

#[derive(Debug)]
struct HomeEngine {
    engine: Arc<dyn Engine>,
    home: Handle,
}

impl HomeEngine {
    fn at_home<F: Future + Unpin>(&self, future: F) -> AtHome<F> {
        AtHome {
            home: self.home.clone(),
            future,
        }
    }
}

impl ForwardingEngine for HomeEngine {
    fn now(&self) -> Timestamp {
        self.engine.now()
    }

    async fn read<'a, T: Send + 'a>(
        &'a self,
        call: impl ReadCall<'a, T>,
    ) -> Result<T, EngineError> {
        self.at_home(call(Arc::clone(&self.engine))).await
    }

    async fn change<'a, T: Send + 'a>(
        &'a self,
        call: impl ChangeCall<'a, T>,
    ) -> Result<T, EngineError> {
        self.at_home(call(Arc::clone(&self.engine))).await
    }

    fn duty(&self) -> Duty {
        self.engine.duty()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        self.engine.watch(watcher)
    }

    async fn close(&self) {
        self.at_home(self.engine.close()).await;
    }
}
