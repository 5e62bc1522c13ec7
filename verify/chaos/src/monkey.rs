//! Who kills, stops and starts again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use qo_core::Timestamp;
use qo_sim::random::Random;
use qo_store::runtime::{Runtime, TokioRuntime};
use rustix::process::Signal;

use crate::faults::{Blow, Faults};
use crate::place::Place;
use crate::process::Process;

/// How many workers there are.
const WORKERS: usize = 3;
/// How long a process that was told to stop may take. Its own limit is four seconds, and the machine may be busy.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Something that happened to a process.
#[derive(Debug, Clone)]
pub(crate) struct Disturbance {
    /// Whose name; a broker's, if there is none.
    pub(crate) worker: Option<String>,
    pub(crate) from: Timestamp,
    /// When it was there again.
    pub(crate) until: Timestamp,
}

/// What was done to the processes.
#[derive(Debug)]
pub(crate) struct Deeds {
    pub(crate) disturbances: Vec<Disturbance>,
    pub(crate) blows: BTreeMap<Blow, u64>,
    /// How many workers and brokers were started.
    pub(crate) processes: u64,
    /// Processes that have ended although nobody asked them to.
    pub(crate) quitters: u64,
    /// Processes that did not stop when they were told to.
    pub(crate) stubborn: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Worker,
    Broker,
}

/// What becomes of a seat next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Nothing,
    /// It goes on at this time.
    Continue(Duration),
    /// A new process starts at this time.
    Start(Duration),
    /// It was told to stop, and must have by this time.
    Stopped(Duration),
}

/// A worker or a broker, one process after the other.
#[derive(Debug)]
struct Seat {
    role: Role,
    number: usize,
    name: String,
    lives: u32,
    process: Option<Process>,
    next: Next,
    /// Since when it is disturbed.
    disturbed: Option<Timestamp>,
}

/// All workers and brokers, and what is done to them.
pub(crate) struct Monkey<'a> {
    place: &'a Place,
    runtime: Arc<dyn Runtime>,
    random: Random,
    faults: Faults,
    seats: Vec<Seat>,
    next_blow: Duration,
    disturbances: Vec<Disturbance>,
    blows: BTreeMap<Blow, u64>,
    quitters: u64,
    stubborn: Vec<String>,
    log: String,
}

impl<'a> Monkey<'a> {
    pub(crate) fn new(place: &'a Place, seed: u64, faults: Faults) -> Self {
        let seat = |role, number, name| Seat {
            role,
            number,
            name,
            lives: 0,
            process: None,
            next: Next::Nothing,
            disturbed: None,
        };
        let brokers = (0..place.brokers()).map(|n| seat(Role::Broker, n, format!("broker-{n}")));
        let workers = (0..WORKERS).map(|n| seat(Role::Worker, n, format!("worker-{n}")));
        Self {
            place,
            runtime: TokioRuntime::shared(),
            random: Random::of(&[seed, 5]),
            seats: brokers.chain(workers).collect(),
            next_blow: Duration::ZERO,
            faults,
            disturbances: Vec::new(),
            blows: BTreeMap::new(),
            quitters: 0,
            stubborn: Vec::new(),
            log: String::new(),
        }
    }

    /// Starts the brokers, or the workers.
    pub(crate) fn start_brokers(&mut self) -> Result<()> {
        self.start_all(Role::Broker)
    }

    pub(crate) fn start_workers(&mut self) -> Result<()> {
        self.start_all(Role::Worker)
    }

    fn start_all(&mut self, role: Role) -> Result<()> {
        for index in 0..self.seats.len() {
            if self.seats[index].role == role {
                self.start(index)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let seat = &mut self.seats[index];
        seat.lives += 1;
        let command = match seat.role {
            Role::Worker => Some(self.place.worker(&seat.name, seat.number)),
            Role::Broker => self.place.broker(seat.number),
        };
        if let Some(command) = command {
            let log = format!("{}-{}.log", role_name(seat.role), seat.number);
            let log = self.place.folder.join(log);
            seat.process = Some(Process::start(command, &log)?);
        }
        seat.next = Next::Nothing;
        self.recover(index);
        Ok(())
    }

    /// Notes that a seat is as it should be again.
    fn recover(&mut self, index: usize) {
        let seat = &mut self.seats[index];
        if let Some(from) = seat.disturbed.take() {
            self.disturbances.push(Disturbance {
                worker: (seat.role == Role::Worker).then(|| seat.name.clone()),
                from,
                until: self.runtime.now(),
            });
        }
    }

    /// Does what is due. Blows are dealt only while there is trouble.
    pub(crate) fn tick(&mut self, troubled: bool) -> Result<()> {
        let now = self.runtime.monotonic();
        for index in 0..self.seats.len() {
            self.look_after(index, now)?;
        }
        if troubled && now >= self.next_blow {
            if self.next_blow > Duration::ZERO {
                self.strike(now);
            }
            let part = 0.4 + 1.2 * self.random.unit();
            self.next_blow = now + self.faults.blow_every.mul_f64(part);
        }
        Ok(())
    }

    fn look_after(&mut self, index: usize, now: Duration) -> Result<()> {
        let ended = self.seats[index]
            .process
            .as_mut()
            .is_none_or(|process| process.ended().is_some());
        match self.seats[index].next {
            Next::Continue(at) if now >= at => {
                if let Some(process) = &self.seats[index].process {
                    process.signal(Signal::CONT);
                }
                self.seats[index].next = Next::Nothing;
                self.recover(index);
            }
            Next::Start(at) if now >= at => self.start(index)?,
            Next::Stopped(_) if ended => self.restart_later(index, now),
            Next::Stopped(at) if now >= at => {
                let seat = &mut self.seats[index];
                self.stubborn.push(seat.name.clone());
                seat.process = None;
                self.restart_later(index, now);
            }
            Next::Nothing if ended => {
                // It may have met too many faults to start at all, or another broker has taken over.
                self.quitters += 1;
                self.disturb(index, "has ended by itself");
                self.restart_later(index, now);
            }
            _ => {}
        }
        Ok(())
    }

    fn disturb(&mut self, index: usize, what: &str) {
        let now = self.runtime.now();
        let seat = &mut self.seats[index];
        seat.disturbed.get_or_insert(now);
        let line = format!("{now} {} {what}\n", seat.name);
        self.log.push_str(&line);
    }

    /// A new process comes soon: half of the workers under a new name.
    fn restart_later(&mut self, index: usize, now: Duration) {
        let wait = self.random.millis(100, 2_500);
        let renamed = self.random.chance(0.5);
        let seat = &mut self.seats[index];
        seat.process = None;
        seat.next = Next::Start(now + wait);
        if renamed && seat.role == Role::Worker {
            // What happened to the old name is over.
            let from = seat.disturbed.take();
            if let Some(from) = from {
                self.disturbances.push(Disturbance {
                    worker: Some(seat.name.clone()),
                    from,
                    until: self.runtime.now(),
                });
            }
            seat.name = format!("worker-{}-{}", seat.number, seat.lives);
        }
    }

    fn strike(&mut self, now: Duration) {
        let index = usize::try_from(self.random.below(self.seats.len() as u64)).unwrap_or(0);
        let kind = usize::try_from(self.random.below(self.faults.blows.len() as u64)).unwrap_or(0);
        if self.seats[index].next != Next::Nothing {
            return;
        }
        let blow = self.faults.blows[kind];
        *self.blows.entry(blow).or_default() += 1;
        self.disturb(index, blow.name());
        let pause = self.random.millis(300, 9_000);
        let seat = &mut self.seats[index];
        let Some(process) = &mut seat.process else {
            return;
        };
        match blow {
            Blow::Kill => {
                process.kill();
                self.restart_later(index, now);
            }
            Blow::Stop => {
                process.signal(Signal::STOP);
                seat.next = Next::Continue(now + pause);
            }
            Blow::Terminate => {
                process.signal(Signal::TERM);
                seat.next = Next::Stopped(now + STOP_LIMIT);
            }
        }
    }

    /// Ends the trouble: everything that was stopped goes on, everything that has ended starts again.
    pub(crate) fn calm(&mut self) -> Result<()> {
        for index in 0..self.seats.len() {
            if let Next::Continue(_) = self.seats[index].next {
                self.seats[index].next = Next::Continue(Duration::ZERO);
            }
            if let Next::Start(_) = self.seats[index].next {
                self.seats[index].next = Next::Start(Duration::ZERO);
            }
        }
        self.tick(false)
    }

    /// Stops everything in order, workers before brokers, and leaves a log of what was done to whom.
    pub(crate) fn stop(&mut self) {
        // Without it a finding is harder to understand, and no less a finding.
        let _ = std::fs::write(self.place.folder.join("monkey.log"), &self.log);
        for role in [Role::Worker, Role::Broker] {
            for seat in self.seats.iter_mut().filter(|seat| seat.role == role) {
                if let Some(process) = &mut seat.process
                    && !process.stop(STOP_LIMIT)
                {
                    self.stubborn.push(seat.name.clone());
                }
            }
        }
    }

    /// How many blows there were.
    pub(crate) fn blows(&self) -> u64 {
        self.blows.values().sum()
    }

    /// What it has done, and what has happened to whom, what is not over yet included.
    pub(crate) fn deeds(&self) -> Deeds {
        let mut all = self.disturbances.clone();
        for seat in &self.seats {
            if let Some(from) = seat.disturbed {
                all.push(Disturbance {
                    worker: (seat.role == Role::Worker).then(|| seat.name.clone()),
                    from,
                    until: Timestamp::MAX,
                });
            }
        }
        Deeds {
            disturbances: all,
            blows: self.blows.clone(),
            processes: self.seats.iter().map(|seat| u64::from(seat.lives)).sum(),
            quitters: self.quitters,
            stubborn: self.stubborn.clone(),
        }
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Worker => "worker",
        Role::Broker => "broker",
    }
}
