//! The scheduler: one thread, virtual time, and processes that die, pause and restart.
//!
//! Futures run one at a time. A random one of those that are ready is polled next, so a seed is also one of the many orders in which a
//! real scheduler might run them. Time stands still while anything is ready, and then jumps to the next timer. There are no threads, real
//! clocks or hash maps, so the seed decides everything.
//!
//! A process may have a [room](Room): a tokio runtime of its own, for libraries that spawn on one. Its tasks run until they wait, each time
//! that nothing else is ready, and now and then before.
//!
//! Process 0 is the harness and the network: it outlives all other processes.

pub(crate) mod panics;
mod processes;
mod room;
mod runtime;
mod sleep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use qo_core::Timestamp;
use qo_store::runtime::BoxFuture;

pub use self::runtime::SimRuntime;
pub use self::sleep::Sleep;

use self::room::{Room, with_seeded_draws};
use crate::random::Random;
use crate::trace::Trace;

/// The store's time when a run begins: five seconds into a minute.
pub const BEGIN_MS: i64 = 1_763_238_845_000;
/// More polls than this without time passing are an endless loop.
const POLLS_AT_ONCE_MAX: u64 = 50_000;
/// More polls than this in one run are an endless loop.
const POLLS_MAX: u64 = 20_000_000;

/// The rooms run once in this many steps even if something else is ready.
const ROOMS_EVERY: u64 = 4;

/// Identifies one life of a process.
pub type ProcessId = u32;

/// The harness and the network.
pub const HARNESS: ProcessId = 0;

/// Why a run cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    /// Everything waits, and there is no timer.
    Deadlock,
    /// Something runs without a pause.
    Livelock,
    /// The operating system refused a tokio runtime.
    NoRuntime,
}

/// Runs futures in virtual time. Clones share everything.
#[derive(Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    woken: Arc<Woken>,
}

type Woken = Mutex<BTreeSet<u64>>;

struct State {
    now: Duration,
    slots: BTreeMap<u64, Slot>,
    next_slot: u64,
    timers: BTreeMap<(Duration, u64), Waker>,
    next_timer: u64,
    processes: BTreeMap<ProcessId, Process>,
    next_process: ProcessId,
    /// Counts events, to order those that happen at the same time.
    ticks: u64,
    choices: Random,
    trace: Trace,
    polls: u64,
    polls_at_once: u64,
}

struct Slot {
    process: ProcessId,
    /// None while it is polled.
    future: Option<BoxFuture<()>>,
    waker: Waker,
}

struct Process {
    name: String,
    alive: bool,
    paused_until: Duration,
    /// How far its wall clock is ahead.
    clock_ahead_ms: i64,
    random: Random,
    polls: u64,
    dies_at_poll: Option<u64>,
    mourners: Vec<Waker>,
    room: Option<Arc<Room>>,
}

struct SlotWaker {
    slot: u64,
    woken: Arc<Woken>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.woken).insert(self.slot);
    }
}

/// Locks a mutex. There is only one thread, so it never waits.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scheduler {
    /// A scheduler whose choices the seed decides.
    pub fn new(seed: u64, trace: Trace) -> Self {
        let scheduler = Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    now: Duration::ZERO,
                    slots: BTreeMap::new(),
                    next_slot: 0,
                    timers: BTreeMap::new(),
                    next_timer: 0,
                    processes: BTreeMap::new(),
                    next_process: HARNESS,
                    ticks: 0,
                    choices: Random::of(&[seed, 0x5c4e]),
                    trace,
                    polls: 0,
                    polls_at_once: 0,
                }),
                woken: Arc::default(),
            }),
        };
        scheduler.start_process("harness", Random::of(&[seed, 0]), 0);
        scheduler
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }

    /// The time since the start of the run.
    pub fn elapsed(&self) -> Duration {
        self.state().now
    }

    /// The number of polls.
    pub fn polls(&self) -> u64 {
        self.state().polls
    }

    /// The true time, which is the store's.
    pub fn true_now(&self) -> Timestamp {
        true_time(self.elapsed())
    }

    /// The number of the next event.
    pub fn tick(&self) -> u64 {
        let mut state = self.state();
        state.ticks += 1;
        state.ticks
    }

    /// Adds a line to the trace.
    pub fn note(&self, process: ProcessId, line: impl FnOnce() -> String) {
        let mut state = self.state();
        let State {
            now,
            trace,
            processes,
            ..
        } = &mut *state;
        let name = processes.get(&process).map_or("", |process| &process.name);
        trace.note(*now, || format!("{name:<12} {}", line()));
    }

    /// The lines of the trace.
    pub fn take_trace(&self) -> Vec<String> {
        self.state().trace.take()
    }

    /// Spawns a future in a process. It ends with the process.
    pub fn spawn(&self, process: ProcessId, future: BoxFuture<()>) -> u64 {
        let mut state = self.state();
        if !state.lives(process) {
            return u64::MAX;
        }
        let slot = state.next_slot;
        state.next_slot += 1;
        let waker = Waker::from(Arc::new(SlotWaker {
            slot,
            woken: Arc::clone(&self.shared.woken),
        }));
        state.slots.insert(
            slot,
            Slot {
                process,
                future: Some(future),
                waker,
            },
        );
        lock(&self.shared.woken).insert(slot);
        slot
    }

    /// Waits.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::new(self.clone(), self.elapsed() + duration)
    }

    /// Runs until `main` is finished, which belongs to the harness.
    pub fn run(&self, main: BoxFuture<()>) -> Result<(), Stuck> {
        let seed = self.state().choices.clone().bits();
        with_seeded_draws(seed, || self.run_through(main)).unwrap_or(Err(Stuck::NoRuntime))
    }

    fn run_through(&self, main: BoxFuture<()>) -> Result<(), Stuck> {
        let main = self.spawn(HARNESS, main);
        while self.state().slots.contains_key(&main) {
            if self.is_rooms_turn() {
                self.run_rooms();
            }
            if let Some(slot) = self.choose() {
                self.poll(slot)?;
                continue;
            }
            self.run_rooms();
            if !self.is_anything_ready() {
                self.advance()?;
            }
        }
        Ok(())
    }

    fn is_anything_ready(&self) -> bool {
        let state = self.state();
        let mut woken = lock(&self.shared.woken);
        !ready(&state, &mut woken).is_empty()
    }

    /// Runs everything that is ready, in a fixed order, until everything waits. Time does not pass.
    pub fn settle(&self) -> Result<(), Stuck> {
        while let Some(slot) = self.first_ready() {
            self.poll(slot)?;
        }
        Ok(())
    }

    /// Advances time to the next timer.
    pub fn advance(&self) -> Result<(), Stuck> {
        let due = {
            let mut state = self.state();
            let Some((at, _)) = state.timers.keys().next().copied() else {
                return Err(Stuck::Deadlock);
            };
            state.now = state.now.max(at);
            state.polls_at_once = 0;
            let later = state.timers.split_off(&(at + Duration::from_nanos(1), 0));
            std::mem::replace(&mut state.timers, later)
        };
        for waker in due.into_values() {
            waker.wake();
        }
        Ok(())
    }

    /// Advances time at once, and fires all timers until then.
    pub fn leap(&self, duration: Duration) {
        let due = {
            let mut state = self.state();
            state.now += duration;
            let after = (state.now + Duration::from_nanos(1), 0);
            let later = state.timers.split_off(&after);
            std::mem::replace(&mut state.timers, later)
        };
        for waker in due.into_values() {
            waker.wake();
        }
    }

    /// Drops everything, to break reference cycles.
    pub fn finish(&self) {
        let processes: Vec<ProcessId> = self.state().processes.keys().copied().collect();
        for process in processes {
            self.kill(process);
        }
        let timers = std::mem::take(&mut self.state().timers);
        drop(timers);
    }

    /// Picks one of the futures that are ready and may run.
    fn choose(&self) -> Option<u64> {
        let mut state = self.state();
        let mut woken = lock(&self.shared.woken);
        let ready = ready(&state, &mut woken);
        let place = state.choices.below(ready.len() as u64);
        let slot = *ready.get(usize::try_from(place).unwrap_or_default())?;
        woken.remove(&slot);
        Some(slot)
    }

    fn first_ready(&self) -> Option<u64> {
        let state = self.state();
        let mut woken = lock(&self.shared.woken);
        let slot = *ready(&state, &mut woken).first()?;
        woken.remove(&slot);
        Some(slot)
    }

    fn poll(&self, number: u64) -> Result<(), Stuck> {
        let (mut future, waker, process, room) = {
            let mut state = self.state();
            state.polls += 1;
            state.polls_at_once += 1;
            if state.polls > POLLS_MAX || state.polls_at_once > POLLS_AT_ONCE_MAX {
                return Err(Stuck::Livelock);
            }
            let Some(slot) = state.slots.get_mut(&number) else {
                return Ok(());
            };
            let Some(future) = slot.future.take() else {
                return Ok(());
            };
            let (waker, process) = (slot.waker.clone(), slot.process);
            let room = state.processes.get(&process);
            let room = room.and_then(|process| process.room.clone());
            (future, waker, process, room)
        };
        let _inside = room.as_ref().map(|room| room.enter());
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let dies = {
            let mut state = self.state();
            let slot = state.slots.get_mut(&number);
            match (polled, slot) {
                (Poll::Pending, Some(slot)) => {
                    slot.future = Some(future);
                }
                (Poll::Ready(()), Some(_)) => {
                    state.slots.remove(&number);
                    drop(state);
                    drop(future);
                    state = self.state();
                }
                (_, None) => {
                    // Its process died while it ran.
                    drop(state);
                    drop(future);
                    state = self.state();
                }
            }
            match state.processes.get_mut(&process) {
                Some(process) if process.alive => {
                    process.polls += 1;
                    process.dies_at_poll == Some(process.polls)
                }
                _ => false,
            }
        };
        if dies {
            self.note(process, || "DIES here".to_owned());
            self.kill(process);
        }
        Ok(())
    }
}

/// The ready slots whose process is not paused. Removes slots that no longer exist.
fn ready(state: &State, woken: &mut BTreeSet<u64>) -> Vec<u64> {
    woken.retain(|slot| state.slots.contains_key(slot));
    woken
        .iter()
        .copied()
        .filter(|slot| {
            let process = state.slots.get(slot).map(|slot| slot.process);
            let process = process.and_then(|process| state.processes.get(&process));
            process.is_some_and(|process| process.paused_until <= state.now)
        })
        .collect()
}

impl State {
    fn lives(&self, process: ProcessId) -> bool {
        self.processes
            .get(&process)
            .is_some_and(|process| process.alive)
    }
}

/// The store's time at a time of the run.
pub fn true_time(elapsed: Duration) -> Timestamp {
    Timestamp::from_millis(BEGIN_MS)
        .plus_millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scheduler")
    }
}

#[cfg(test)]
mod tests;
