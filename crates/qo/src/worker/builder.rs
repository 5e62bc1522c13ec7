//! Describing a worker, word by word.
//!
//! The words take plain text and plain durations, and never fail; [`WorkerBuilder::build`] says what is wrong with them.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use qo_core::limits::LEASE_MAX_MS;
use qo_core::{QueueName, Shard, TaskType, WorkerId};
use qo_direct::{MaintenanceConfig, embeds_monitor};

use super::context::States;
use super::handler::Typed;
use super::run::Plan;
use super::runner::RunIn;
use super::{Handler, Hook, TaskHandler, TaskInput, Worker, host};
use crate::error::Error;
use crate::queue::Queue;

/// How many tasks a worker runs at once, if not said, and at the most.
const CONCURRENCY_DEFAULT: usize = 10;
const CONCURRENCY_MAX: usize = 10_000;
/// The shortest lease: a third of it must be enough for a renewal.
const LEASE_MIN: Duration = Duration::from_millis(100);
/// How long a stop waits for what runs, if not said, and at the most.
const SHUTDOWN_DEFAULT: Duration = Duration::from_secs(30);
const SHUTDOWN_MAX: Duration = Duration::from_hours(24);
/// How long a handler that is told to stop has for that, if not said, and at the most.
const GRACE_DEFAULT: Duration = Duration::from_secs(5);
const GRACE_MAX: Duration = Duration::from_hours(1);

/// A worker to be. What is not said has the default that its word names.
#[must_use = "no worker is made before `build`"]
pub struct WorkerBuilder {
    queue: Queue,
    id: Option<String>,
    queues: Option<Vec<String>>,
    shards: Vec<Shard>,
    handlers: Vec<Arc<dyn TaskHandler>>,
    hooks: Vec<Box<dyn Hook>>,
    state: States,
    concurrency: usize,
    lease: Option<Duration>,
    shutdown_deadline: Duration,
    grace: Duration,
    run_in: RunIn,
    maintenance: Upkeep,
}

/// Who keeps the store healthy.
enum Upkeep {
    /// This worker, unless the environment says otherwise.
    ByEnvironment,
    /// This worker, so.
    Here(MaintenanceConfig),
    /// Somebody else.
    Elsewhere,
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
            state: States::new(),
            concurrency: CONCURRENCY_DEFAULT,
            lease: None,
            shutdown_deadline: SHUTDOWN_DEFAULT,
            grace: GRACE_DEFAULT,
            run_in: RunIn::default(),
            maintenance: Upkeep::ByEnvironment,
        }
    }

    /// Its name, which no other worker has at the same time. The machine's name, the process's number and a random one, if not said.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The queues to take from; `default` alone, if not said, and all of them, if the list is empty.
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.queues = Some(queues.into_iter().map(Into::into).collect());
        self
    }

    /// The shards to take from; all of them, if not said. Some worker has to take from each.
    pub fn shards(mut self, shards: impl IntoIterator<Item = Shard>) -> Self {
        self.shards = shards.into_iter().collect();
        self
    }

    /// How many tasks it runs at once; 10, if not said.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// How long a claim holds without a renewal; the engine's default of 30 s, if not said. It is renewed at a third of it. A shorter
    /// one brings the tasks of a dead worker back sooner and costs more writes.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How long a stop waits for what runs; 30 s, if not said.
    pub fn shutdown_deadline(mut self, deadline: Duration) -> Self {
        self.shutdown_deadline = deadline;
        self
    }

    /// How long a handler that is told to stop has to return by itself before it is dropped; 5 s, if not said.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Does the tasks of a type with a function.
    pub fn handle<T: TaskInput>(self, function: impl Handler<T>) -> Self {
        self.handler(Typed::<T, _>::new(function))
    }

    /// Does the tasks of a type with an object.
    pub fn handler(mut self, handler: impl TaskHandler) -> Self {
        self.handlers.push(Arc::new(handler));
        self
    }

    /// Gives handlers a value, which they get from their context by its type. A second value of a type replaces the first.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }

    /// Has something told of every attempt.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Runs the maintenance of direct mode beside the worker, so. If not said, it runs as `QO_MONITOR_…` says, unless
    /// `QO_NO_MONITOR` is set.
    pub fn maintenance(mut self, config: MaintenanceConfig) -> Self {
        self.maintenance = Upkeep::Here(config);
        self
    }

    /// Leaves the maintenance to other processes. Some process has to run it.
    pub fn no_maintenance(mut self) -> Self {
        self.maintenance = Upkeep::Elsewhere;
        self
    }

    /// Runs handlers where the queue's runtime runs everything, not on threads of their own. A handler that blocks a thread then blocks
    /// renewals, too.
    pub fn handlers_in_runtime(mut self) -> Self {
        self.run_in = RunIn::Runtime;
        self
    }

    /// Checks the words and makes the worker.
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
            host::worker_name(host::name().as_deref(), self.queue.runtime().as_ref())
        });
        let id = WorkerId::new(&id)?;
        let maintenance = match self.maintenance {
            Upkeep::Elsewhere => None,
            Upkeep::Here(config) => Some(config),
            Upkeep::ByEnvironment => match self.queue.environment() {
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
                run_in: self.run_in,
                maintenance,
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

fn check(holds: bool, setting: &'static str, allowed: &'static str) -> Result<(), Error> {
    if holds {
        return Ok(());
    }
    Err(Error::WorkerSetting { setting, allowed })
}

/// The handlers by the types and aliases that they do.
fn by_type(
    handlers: Vec<Arc<dyn TaskHandler>>,
) -> Result<BTreeMap<TaskType, Arc<dyn TaskHandler>>, Error> {
    let mut by_type = BTreeMap::new();
    for handler in handlers {
        let names = std::iter::once(handler.task_type().to_owned()).chain(handler.aliases());
        for name in names {
            match by_type.entry(TaskType::new(&name)?) {
                Entry::Vacant(entry) => entry.insert(Arc::clone(&handler)),
                Entry::Occupied(_) => return Err(Error::TwoHandlers { task_type: name }),
            };
        }
    }
    if by_type.is_empty() {
        return Err(Error::NoHandler);
    }
    Ok(by_type)
}
