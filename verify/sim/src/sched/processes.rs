//! The lives of processes: how they begin, stall, are doomed and end, and the rooms that some have.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::room::Room;
use super::{Process, ProcessId, ROOMS_EVERY, Scheduler};
use crate::random::Random;

impl Scheduler {
    /// Begins the life of a process.
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
            // The process's own numbers stay as they are.
            let seed = process.random.clone().bits();
            process.room = Some(Arc::new(Room::new(seed)?));
        }
        Ok(())
    }

    /// Has a process die when it has been polled so often from now on: at whatever await it has come to by then.
    pub fn doom(&self, process: ProcessId, polls: u64) {
        if let Some(process) = self.state().processes.get_mut(&process) {
            process.dies_at_poll = Some(process.polls + polls.max(1));
        }
    }

    /// Lets a process that is doomed live.
    pub fn spare(&self, process: ProcessId) {
        if let Some(process) = self.state().processes.get_mut(&process) {
            process.dies_at_poll = None;
        }
    }

    /// Ends a process: nothing of it goes on.
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
        // Only now: what is dropped may look at the scheduler, and may look for its runtime.
        {
            let _inside = room.as_ref().map(|room| room.enter());
            drop(futures);
        }
        drop(room);
        for mourner in mourners {
            mourner.wake();
        }
    }

    /// Whether a process lives.
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

    /// Stops a process for a while. Its clocks go on, and it does not notice.
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

    /// Lets a stopped process go on.
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

    /// Whether the rooms run now, although something else is ready.
    pub(super) fn is_rooms_turn(&self) -> bool {
        let mut state = self.state();
        let has_rooms = state.processes.values().any(|one| one.room.is_some());
        has_rooms && state.choices.below(ROOMS_EVERY) == 0
    }

    /// Runs what is ready in the rooms of processes that are not stopped, until all of it waits.
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
