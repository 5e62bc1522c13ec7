//! Builds a worker.
//!
//! Setters take plain text and durations and never fail. [`WorkerBuilder::build`] validates all of them.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use qo_core::limits::LEASE_MAX_MS;
use qo_core::{QueueName, Shard, TaskType, WorkerId};
use qo_direct::{MaintenanceConfig, embeds_monitor};

use super::batch::{BatchHandler, Gatherer, LIMIT_MAX, WAIT_MAX};
use super::context::SharedValues;
use super::handler::FunctionHandler;
use super::log_tail::LOG_DEFAULT_MAX_BYTES;
use super::run::{Batches, Plan};
use super::runner::RunIn;
use super::{
    BatchFunction, Handler, Hook, Idleness, TaskHandler, TaskInput, Worker, WorkerRequests, host,
};
use crate::error::Error;
use crate::queue::Queue;

/// Concurrent tasks: default and maximum.
const CONCURRENCY_DEFAULT: usize = 10;
const CONCURRENCY_MAX: usize = 10_000;
/// The shortest lease. A renewal must succeed within a third of it.
const LEASE_MIN: Duration = Duration::from_millis(100);
/// Shutdown deadline: default and maximum.
const SHUTDOWN_DEFAULT: Duration = Duration::from_secs(30);
const SHUTDOWN_MAX: Duration = Duration::from_hours(24);
/// Grace period of handlers that are asked to stop: default and maximum.
const GRACE_DEFAULT: Duration = Duration::from_secs(5);
const GRACE_MAX: Duration = Duration::from_hours(1);

/// Worker builder, from [`Worker::builder`].
#[must_use = "no worker is made before `build`"]
pub struct WorkerBuilder {
    queue: Queue,
    id: Option<String>,
    queues: Option<Vec<String>>,
    shards: Vec<Shard>,
    handlers: Vec<Arc<dyn TaskHandler>>,
    hooks: Vec<Box<dyn Hook>>,
    state: SharedValues,
    concurrency: usize,
    lease: Option<Duration>,
    shutdown_deadline: Duration,
    grace: Duration,
    log_max_bytes: usize,
    run_in: RunIn,
    maintenance: MaintenanceChoice,
    batches: Vec<Arc<dyn Gatherer>>,
    drives_schedules: bool,
}

/// Whether the worker runs maintenance.
enum MaintenanceChoice {
    /// As the environment variables say. Default: it does.
    FromEnvironment,
    /// With this configuration.
    Enabled(MaintenanceConfig),
    Disabled,
}

impl WorkerBuilder {
    pub(super) fn new(queue: Queue) -> Self {
        Self {
            queue,
            id: None,
            queues: None,
            shards: Vec::new(),
            handlers: Vec::new(),
            hooks: Vec::new(),
            state: SharedValues::new(),
            concurrency: CONCURRENCY_DEFAULT,
            lease: None,
            shutdown_deadline: SHUTDOWN_DEFAULT,
            grace: GRACE_DEFAULT,
            log_max_bytes: LOG_DEFAULT_MAX_BYTES,
            run_in: RunIn::default(),
            maintenance: MaintenanceChoice::FromEnvironment,
            batches: Vec::new(),
            drives_schedules: true,
        }
    }

    /// Sets the worker's name, which must be unique among running workers. Default: host name, process id and a random number.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the queues to claim from. An empty list means all queues. Default: the queue `default`.
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.queues = Some(queues.into_iter().map(Into::into).collect());
        self
    }

    /// Restricts the shards to claim from. Other workers must cover the rest. Default: all shards.
    pub fn shards(mut self, shards: impl IntoIterator<Item = Shard>) -> Self {
        self.shards = shards.into_iter().collect();
        self
    }

    /// Sets the number of concurrent tasks. Default: 10.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// Sets the duration of leases, which the worker renews after a third of it. With a shorter lease, the tasks of a dead worker
    /// are retried sooner, at the cost of more writes. Default: the engine's 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Limits how long a stop waits for running tasks. Default: 30 s.
    pub fn shutdown_deadline(mut self, deadline: Duration) -> Self {
        self.shutdown_deadline = deadline;
        self
    }

    /// Sets the grace period: a handler that is asked to stop is dropped after it. Default: 5 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Limits how much of the log of an attempt is kept: its end, at most 16 KiB, which is the default. 0 keeps no logs. See
    /// [`Context::log`](super::Context::log).
    pub fn log_limit(mut self, bytes: usize) -> Self {
        self.log_max_bytes = bytes.min(LOG_DEFAULT_MAX_BYTES);
        self
    }

    /// Handles the tasks of a type with an async function.
    pub fn handle<T: TaskInput>(self, function: impl Handler<T>) -> Self {
        self.handler(FunctionHandler::<T, _>::new(function))
    }

    /// Handles the tasks of a type in batches with an async function: up to `limit` tasks in one call, or those that have come within
    /// `wait` after the first one. The function returns one result per task, in their order. An error or a panic of the call counts for
    /// each task.
    ///
    /// Each task has its own lease, timeout, cancellation and attempt number, and uses one of the worker's slots, also while the batch
    /// gathers. `limit` is therefore at most the [concurrency](WorkerBuilder::concurrency).
    ///
    /// ```
    /// use std::time::Duration;
    /// use qo::{Context, TaskError, TaskInput, Worker};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Email { to: String }
    ///
    /// impl TaskInput for Email {
    ///     const TYPE: &'static str = "send_email";
    /// }
    ///
    /// async fn send(emails: Vec<(Email, Context)>) -> Result<Vec<Result<String, TaskError>>, TaskError> {
    ///     let many = emails.len();
    ///     Ok(emails
    ///         .into_iter()
    ///         .map(|(email, _)| match email.to.contains('@') {
    ///             true => Ok(format!("sent with {many}")),
    ///             false => Err(TaskError::permanent("not an address")),
    ///         })
    ///         .collect())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (queue, _clock) = qo::testing::memory_queue()?;
    /// for to in ["ada@example.org", "nobody"] {
    ///     queue.task_of(&Email { to: to.into() })?.submit().await?;
    /// }
    /// let worker = Worker::builder(queue)
    ///     .handle_batch::<Email>(10, Duration::from_millis(200), send)
    ///     .build()?;
    /// let report = worker.drain().await?;
    /// assert_eq!((report.completed, report.failed), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn handle_batch<T: TaskInput>(
        mut self,
        limit: usize,
        wait: Duration,
        function: impl BatchFunction<T>,
    ) -> Self {
        let handler = Arc::new(BatchHandler::<T, _>::new(limit, wait, function));
        self.batches.push(Arc::clone(&handler) as Arc<dyn Gatherer>);
        self.handlers.push(handler);
        self
    }

    /// Handles the tasks of a type that is known only at run time.
    pub fn handler(mut self, handler: impl TaskHandler) -> Self {
        self.handlers.push(Arc::new(handler));
        self
    }

    /// Shares a value with handlers, which get it from [`Context::state`](super::Context::state). A second value of the same type
    /// replaces the first.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }

    /// Adds callbacks around every attempt.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Configures the maintenance of direct mode, which runs in the worker. Default: the `QO_MONITOR_…` variables, or none if
    /// `QO_NO_MONITOR` is set.
    pub fn maintenance(mut self, config: MaintenanceConfig) -> Self {
        self.maintenance = MaintenanceChoice::Enabled(config);
        self
    }

    /// Runs no maintenance in this worker. Another process must run it.
    pub fn no_maintenance(mut self) -> Self {
        self.maintenance = MaintenanceChoice::Disabled;
        self
    }

    /// Does not fire the queue's schedules in this worker. Another process must do it.
    pub fn no_schedules(mut self) -> Self {
        self.drives_schedules = false;
        self
    }

    /// Runs handlers on the queue's runtime instead of separate threads. A handler that blocks its thread then also delays lease
    /// renewals.
    pub fn handlers_in_runtime(mut self) -> Self {
        self.run_in = RunIn::Runtime;
        self
    }

    /// Validates the settings and builds the worker.
    pub fn build(self) -> Result<Worker, Error> {
        check(
            (1..=CONCURRENCY_MAX).contains(&self.concurrency),
            "concurrency",
            "from 1 to 10,000",
        )?;
        check(
            self.shutdown_deadline <= SHUTDOWN_MAX,
            "shutdown_deadline",
            "at most a day",
        )?;
        check(self.grace <= GRACE_MAX, "grace", "at most an hour")?;
        for batch in &self.batches {
            check(
                (1..=LIMIT_MAX.min(self.concurrency)).contains(&batch.limit()),
                "limit of a batch",
                "from 1 to 1,000, and at most the concurrency",
            )?;
            check(
                batch.wait() <= WAIT_MAX,
                "wait for a batch",
                "at most an hour",
            )?;
        }
        let lease_ms = match self.lease {
            None => None,
            Some(lease) => {
                let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
                check(
                    lease >= LEASE_MIN && lease_ms <= LEASE_MAX_MS,
                    "lease",
                    "from 100 ms to 30 days",
                )?;
                Some(lease_ms)
            }
        };
        let queues = match self.queues {
            None => vec![QueueName::default()],
            Some(names) => names
                .iter()
                .map(|name| QueueName::new(name))
                .collect::<Result<_, _>>()?,
        };
        let id = self.id.unwrap_or_else(|| {
            host::worker_name(host::host_name().as_deref(), self.queue.runtime().as_ref())
        });
        let id = WorkerId::new(&id)?;
        let maintenance = match self.maintenance {
            MaintenanceChoice::Disabled => None,
            MaintenanceChoice::Enabled(config) => Some(config),
            MaintenanceChoice::FromEnvironment => match self.queue.environment() {
                Some(vars) if embeds_monitor(vars)? => Some(MaintenanceConfig::from_env(vars)?),
                _ => None,
            },
        };
        Ok(Worker {
            plan: Arc::new(Plan {
                id,
                queues,
                shards: self.shards,
                handlers: by_type(self.handlers)?,
                hooks: self.hooks.into(),
                state: Arc::new(self.state),
                concurrency: self.concurrency,
                lease_ms,
                shutdown_deadline: self.shutdown_deadline,
                grace: self.grace,
                log_max_bytes: self.log_max_bytes,
                run_in: self.run_in,
                maintenance,
                batches: Batches::new(&self.batches)?,
                idleness: Idleness::new(Arc::clone(self.queue.runtime())),
                requests: WorkerRequests::new(),
                drives_schedules: self.drives_schedules,
                queue: self.queue,
            }),
        })
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self
            .handlers
            .iter()
            .map(|handler| handler.task_type())
            .collect();
        f.debug_struct("WorkerBuilder")
            .field("id", &self.id)
            .field("types", &types)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

fn check(is_valid: bool, setting: &'static str, allowed: &'static str) -> Result<(), Error> {
    if is_valid {
        return Ok(());
    }
    Err(Error::WorkerSetting { setting, allowed })
}

/// Maps task types and aliases to handlers.
fn by_type(
    handlers: Vec<Arc<dyn TaskHandler>>,
) -> Result<BTreeMap<TaskType, Arc<dyn TaskHandler>>, Error> {
    let mut by_type = BTreeMap::new();
    for handler in handlers {
        let names = std::iter::once(handler.task_type().to_owned()).chain(handler.aliases());
        for name in names {
            match by_type.entry(TaskType::new(&name)?) {
                Entry::Vacant(entry) => entry.insert(Arc::clone(&handler)),
                Entry::Occupied(_) => return Err(Error::DuplicateHandler { task_type: name }),
            };
        }
    }
    if by_type.is_empty() {
        return Err(Error::NoHandler);
    }
    Ok(by_type)
}
