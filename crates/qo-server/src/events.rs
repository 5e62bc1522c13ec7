//! Publishes the changes of tasks to listeners.
//!
//! An event is published after its operation is durable. The engine publishes all its changes in this process, including its own
//! maintenance. An engine that cannot, such as a client of another server, leaves it to this server to publish the operations of its
//! requests. Changes by other processes on the same store are not published. A slow listener misses events and is told how many; a listener that
//! must not miss any reads the tasks.
//!
//! Events are numbered, and the newest ones are kept, so that a listener whose connection broke can continue where it was. To keep them,
//! the server continues recording for a while after the last listener has left. Without listeners it records nothing, because the
//! engine would otherwise build a notification of every change for nobody.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use qo::Task;
use qo_engine::Measurement;
use qo_engine::watch::{Commit, TaskChange, Watcher};
use qo_store::runtime::Runtime;
use tokio::sync::broadcast;

use crate::app::AppState;

/// How many events a slow listener may lag behind, and how many are kept for listeners that come back.
const KEPT_MAX: usize = 1_024;
/// How long events are recorded after the last listener has left.
const RESUME_WINDOW: Duration = Duration::from_secs(30);

/// An event with its number.
#[derive(Debug, Clone)]
pub(crate) struct NumberedEvent {
    number: u64,
    pub(crate) change: Arc<TaskChange>,
}

pub(crate) struct Events {
    runtime: Arc<dyn Runtime>,
    /// Tells the events of this process from those of another one at the same address.
    process: u64,
    sender: broadcast::Sender<NumberedEvent>,
    recorded: Mutex<Recorded>,
    /// Whether the engine publishes its changes itself.
    engine_publishes: OnceLock<bool>,
}

#[derive(Default)]
struct Recorded {
    events: VecDeque<NumberedEvent>,
    /// The number of the next event.
    next: u64,
    /// When the last listener left.
    left_at: Option<Duration>,
}

/// The events for one listener: those that it has missed while it was away, and those to come.
pub(crate) struct Subscription {
    /// Whether events may be missing before the first one.
    pub(crate) has_gap: bool,
    pub(crate) missed: VecDeque<NumberedEvent>,
    pub(crate) receiver: broadcast::Receiver<NumberedEvent>,
    _departure: Departure,
}

/// Notes the time when the listener leaves.
struct Departure(std::sync::Weak<AppState>);

impl Drop for Departure {
    fn drop(&mut self) {
        if let Some(app) = self.0.upgrade() {
            let now = app.events.runtime.monotonic();
            app.events.lock().left_at = Some(now);
        }
    }
}

impl Events {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self {
            process: runtime.random(),
            runtime,
            sender: broadcast::Sender::new(KEPT_MAX),
            recorded: Mutex::default(),
            engine_publishes: OnceLock::new(),
        }
    }

    /// Sets whether the engine publishes its changes itself.
    pub(crate) fn set_engine_publishes(&self, engine_publishes: bool) {
        self.engine_publishes.get_or_init(|| engine_publishes);
    }

    /// Publishes an operation of this server, unless the engine does.
    pub(crate) fn publish(&self, operation: &'static str, task: &Task) {
        if !self.engine_publishes() && self.is_recording() {
            self.send(Arc::new(TaskChange::new(operation, task)));
        }
    }

    /// Whether the engine publishes its changes itself.
    pub(crate) fn engine_publishes(&self) -> bool {
        self.engine_publishes.get().copied().unwrap_or(false)
    }

    /// The id of an event, with which a listener can continue after it.
    pub(crate) fn id_of(&self, event: &NumberedEvent) -> String {
        format!("{:016x}-{}", self.process, event.number)
    }

    /// Subscribes to all events from now on, or, if the listener names the last event it has seen, to all after that.
    pub(crate) fn listen(&self, app: &Arc<AppState>, last_id: Option<&str>) -> Subscription {
        // Under the lock that `send` takes, so that each event is either kept or received.
        let mut recorded = self.lock();
        if !self.records_with(&recorded) {
            recorded.restart();
        }
        recorded.left_at = None;
        let receiver = self.sender.subscribe();
        let (has_gap, missed) = match last_id {
            None => (false, VecDeque::new()),
            Some(id) => match self.number_in(id) {
                Some(last) if recorded.continues_after(last) => {
                    let events = recorded.events.iter();
                    let missed = events.filter(|event| event.number > last).cloned();
                    (false, missed.collect())
                }
                _ => (true, VecDeque::new()),
            },
        };
        Subscription {
            has_gap,
            missed,
            receiver,
            _departure: Departure(Arc::downgrade(app)),
        }
    }

    fn number_in(&self, id: &str) -> Option<u64> {
        let (process, number) = id.split_once('-')?;
        let is_own = u64::from_str_radix(process, 16) == Ok(self.process);
        number.parse().ok().filter(|_| is_own)
    }

    fn is_recording(&self) -> bool {
        self.records_with(&self.lock())
    }

    fn records_with(&self, recorded: &Recorded) -> bool {
        let recently = |left_at| self.runtime.monotonic().saturating_sub(left_at) < RESUME_WINDOW;
        self.sender.receiver_count() > 0 || recorded.left_at.is_some_and(recently)
    }

    fn send(&self, change: Arc<TaskChange>) {
        let mut recorded = self.lock();
        let event = NumberedEvent {
            number: recorded.next,
            change,
        };
        recorded.next += 1;
        if recorded.events.len() == KEPT_MAX {
            recorded.events.pop_front();
        }
        recorded.events.push_back(event.clone());
        // The listeners may have gone meanwhile.
        let _ = self.sender.send(event);
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded {
    /// Starts again after a time without recording. The skipped number makes the gap visible.
    fn restart(&mut self) {
        self.events.clear();
        self.next += 1;
    }

    /// Whether all events after the one with this number are kept.
    fn continues_after(&self, last: u64) -> bool {
        let oldest = self.events.front().map_or(self.next, |event| event.number);
        last < self.next && oldest <= last + 1
    }
}

impl Watcher for AppState {
    fn committed(&self, commit: &Commit) {
        self.metrics.committed(commit);
    }

    fn listens(&self) -> bool {
        self.events.is_recording()
    }

    fn changed(&self, change: &Arc<TaskChange>) {
        self.events.send(Arc::clone(change));
    }

    fn measures(&self) -> bool {
        true
    }

    fn measured(&self, measurement: &Measurement) {
        self.activity.record(measurement);
    }
}
