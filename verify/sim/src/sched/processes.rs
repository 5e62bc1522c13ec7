//! Processes: start, pause, doom and death, and their rooms.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::room::Room;
use super::{Process, ProcessId, ROOMS_EVERY, Scheduler};
use crate::random::Random;

impl Scheduler {
    /// Starts a process.
    pub fn start_process(
        &self,
        name: impl Into<String>,
        random: Random,
        clock_ahead_ms: i64,
    ) -> ProcessId {
        let mut state = self.state();
        let id = state.next_process;
        state.next_process += 1;
        state.processes.insert(
            id,
            Process {
                name: name.into(),
                alive: true,
                paused_until: Duration::ZERO,
                clock_ahead_ms,
                random,
                polls: 0,
                dies_at_poll: None,
                mourners: Vec::new(),
                room: None,
            },
        );
        id
    }

    /// Gives a process a tokio runtime of its own.
    pub fn give_room(&self, process: ProcessId) -> std::io::Result<()> {
        if let Some(process) = self.state().processes.get_mut(&process) {
            // The process's own random numbers do not change.
            let seed = process.random.clone().bits();
            process.room = Some(Arc::new(Room::new(seed)?));
        }
        Ok(())
    }

    /// Dooms a process to die after this many polls, at whatever await it is then.
    pub fn doom(&self, process: ProcessId, polls: u64) {
        if let Some(process) = self.state().processes.get_mut(&process) {
            process.dies_at_poll = Some(process.polls + polls.max(1));
        }
    }

    /// Cancels the doom of a process.
    pub fn spare(&self, process: ProcessId) {
        if let Some(process) = self.state().processes.get_mut(&process) {
            process.dies_at_poll = None;
        }
    }

    /// Kills a process.
    pub fn kill(&self, process: ProcessId) {
        let (futures, mourners, room) = {
            let mut state = self.state();
            let (mourners, room) = match state.processes.get_mut(&process) {
                Some(process) => {
                    process.alive = false;
                    (std::mem::take(&mut process.mourners), process.room.take())
                }
                None => (Vec::new(), None),
            };
            let numbers: Vec<u64> = state
                .slots
                .iter()
                .filter(|(_, slot)| slot.process == process)
                .map(|(number, _)| *number)
                .collect();
            let futures: Vec<_> = numbers
                .iter()
                .filter_map(|number| state.slots.remove(number)?.future)
                .collect();
            (futures, mourners, room)
        };
        // Dropped last, because destructors may use the scheduler and the runtime.
        {
            let _inside = room.as_ref().map(|room| room.enter());
            drop(futures);
        }
        drop(room);
        for mourner in mourners {
            mourner.wake();
        }
    }

    /// Whether a process is alive.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.state().lives(process)
    }

    /// Waits until a process is dead.
    pub async fn died(&self, process: ProcessId) {
        std::future::poll_fn(|context| {
            let mut state = self.state();
            match state.processes.get_mut(&process) {
                Some(process) if process.alive => {
                    process.mourners.push(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Pauses a process for a while without its noticing. Its clocks advance.
    pub fn pause(&self, process: ProcessId, duration: Duration) {
        let mut state = self.state();
        let until = state.now + duration;
        if let Some(process) = state.processes.get_mut(&process) {
            process.paused_until = until;
        }
        // Time must not jump past the end of the pause.
        let number = state.next_timer;
        state.next_timer += 1;
        state.timers.insert((until, number), Waker::noop().clone());
    }

    /// Whether a process is paused.
    pub fn is_paused(&self, process: ProcessId) -> bool {
        let state = self.state();
        let process = state.processes.get(&process);
        process.is_some_and(|process| process.paused_until > state.now)
    }

    /// Ends the pause of a process.
    pub fn unpause(&self, process: ProcessId) {
        if let Some(process) = self.state().processes.get_mut(&process) {
            process.paused_until = Duration::ZERO;
        }
    }

    /// Moves the wall clock of a process.
    pub fn jump_clock(&self, process: ProcessId, by_ms: i64) {
        if let Some(process) = self.state().processes.get_mut(&process) {
            process.clock_ahead_ms += by_ms;
        }
    }

    /// Whether the rooms run now, even if something else is ready.
    pub(super) fn is_rooms_turn(&self) -> bool {
        let mut state = self.state();
        let has_rooms = state.processes.values().any(|one| one.room.is_some());
        has_rooms && state.choices.below(ROOMS_EVERY) == 0
    }

    /// Runs everything that is ready in the rooms of processes that are not paused, until everything waits.
    pub(super) fn run_rooms(&self) {
        let rooms: Vec<Arc<Room>> = {
            let state = self.state();
            let running = state.processes.values();
            running
                .filter(|process| process.alive && process.paused_until <= state.now)
                .filter_map(|process| process.room.clone())
                .collect()
        };
        for room in rooms {
            room.run();
        }
    }
}
