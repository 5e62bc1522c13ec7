//! Kills, stops and restarts workers and brokers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use qo_check::Excuse;
use qo_core::Timestamp;
use qo_sim::random::Random;
use qo_store::runtime::{Runtime, TokioRuntime};
use rustix::process::Signal;

use crate::faults::{FaultKind, Faults};
use crate::process::Process;
use crate::site::Site;

/// The number of workers.
const WORKERS: usize = 3;
/// How long a process may take to stop. Its own limit is four seconds, and the machine may be busy.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// What happened to the processes.
#[derive(Debug)]
pub(crate) struct MonkeyReport {
    /// The disturbances of workers. That of a broker disturbs every worker.
    pub(crate) disturbances: Vec<Excuse>,
    pub(crate) injected: BTreeMap<FaultKind, u64>,
    /// The number of workers and brokers that were started.
    pub(crate) processes: u64,
    /// The number of processes that exited by themselves.
    pub(crate) exits: u64,
    /// Processes that did not stop on SIGTERM.
    pub(crate) unresponsive: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Worker,
    Broker,
}

/// The next step of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Nothing,
    /// SIGCONT at this time.
    Continue(Duration),
    /// A new process at this time.
    Start(Duration),
    /// SIGTERM was sent, and the process must have stopped by this time.
    Stopped(Duration),
}

/// A worker or a broker, one process after the other.
#[derive(Debug)]
struct Slot {
    role: Role,
    number: usize,
    name: String,
    lives: u32,
    process: Option<Process>,
    next: Next,
    /// The start of the current disturbance.
    disturbed: Option<Timestamp>,
}

/// All workers and brokers, and their faults.
pub(crate) struct Monkey<'a> {
    site: &'a Site,
    runtime: Arc<dyn Runtime>,
    random: Random,
    faults: Faults,
    slots: Vec<Slot>,
    next_fault: Duration,
    disturbances: Vec<Excuse>,
    injected: BTreeMap<FaultKind, u64>,
    exits: u64,
    unresponsive: Vec<String>,
    log: String,
}

impl<'a> Monkey<'a> {
    pub(crate) fn new(site: &'a Site, seed: u64, faults: Faults) -> Self {
        let slot = |role, number, name| Slot {
            role,
            number,
            name,
            lives: 0,
            process: None,
            next: Next::Nothing,
            disturbed: None,
        };
        let brokers = (0..site.brokers()).map(|n| slot(Role::Broker, n, format!("broker-{n}")));
        let workers = (0..WORKERS).map(|n| slot(Role::Worker, n, format!("worker-{n}")));
        Self {
            site,
            runtime: TokioRuntime::shared(),
            random: Random::of(&[seed, 5]),
            slots: brokers.chain(workers).collect(),
            next_fault: Duration::ZERO,
            faults,
            disturbances: Vec::new(),
            injected: BTreeMap::new(),
            exits: 0,
            unresponsive: Vec::new(),
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
        for index in 0..self.slots.len() {
            if self.slots[index].role == role {
                self.start(index)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let slot = &mut self.slots[index];
        slot.lives += 1;
        let command = match slot.role {
            Role::Worker => Some(self.site.worker(&slot.name, slot.number)),
            Role::Broker => self.site.broker(slot.number),
        };
        if let Some(command) = command {
            let log = format!("{}-{}.log", role_name(slot.role), slot.number);
            let log = self.site.folder.join(log);
            slot.process = Some(Process::start(command, &log)?);
        }
        slot.next = Next::Nothing;
        self.recover(index);
        Ok(())
    }

    /// Ends the disturbance of a slot.
    fn recover(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if let Some(from) = slot.disturbed.take() {
            self.disturbances.push(Excuse {
                worker: (slot.role == Role::Worker).then(|| slot.name.clone()),
                from,
                until: self.runtime.now(),
            });
        }
    }

    /// Does what is due. Injects faults only while there is trouble.
    pub(crate) fn tick(&mut self, troubled: bool) -> Result<()> {
        let now = self.runtime.monotonic();
        for index in 0..self.slots.len() {
            self.advance(index, now)?;
        }
        if troubled && now >= self.next_fault {
            if self.next_fault > Duration::ZERO {
                self.strike(now);
            }
            let part = 0.4 + 1.2 * self.random.unit();
            self.next_fault = now + self.faults.process_fault_every.mul_f64(part);
        }
        Ok(())
    }

    fn advance(&mut self, index: usize, now: Duration) -> Result<()> {
        let ended = self.slots[index]
            .process
            .as_mut()
            .is_none_or(|process| process.ended().is_some());
        match self.slots[index].next {
            Next::Continue(at) if now >= at => {
                if let Some(process) = &self.slots[index].process {
                    process.signal(Signal::CONT);
                }
                self.slots[index].next = Next::Nothing;
                self.recover(index);
            }
            Next::Start(at) if now >= at => self.start(index)?,
            Next::Stopped(_) if ended => self.restart_later(index, now),
            Next::Stopped(at) if now >= at => {
                let slot = &mut self.slots[index];
                self.unresponsive.push(slot.name.clone());
                slot.process = None;
                self.restart_later(index, now);
            }
            Next::Nothing if ended => {
                // It may have met too many faults to start, or another broker has taken over.
                self.exits += 1;
                self.disturb(index, "exited by itself");
                self.restart_later(index, now);
            }
            _ => {}
        }
        Ok(())
    }

    fn disturb(&mut self, index: usize, what: &str) {
        let now = self.runtime.now();
        let slot = &mut self.slots[index];
        slot.disturbed.get_or_insert(now);
        let line = format!("{now} {} {what}\n", slot.name);
        self.log.push_str(&line);
    }

    /// Schedules a new process. Half of the workers get a new name.
    fn restart_later(&mut self, index: usize, now: Duration) {
        let wait = self.random.millis(100, 2_500);
        let renamed = self.random.chance(0.5);
        let slot = &mut self.slots[index];
        slot.process = None;
        slot.next = Next::Start(now + wait);
        if renamed && slot.role == Role::Worker {
            // The disturbance of the old name is over.
            let from = slot.disturbed.take();
            if let Some(from) = from {
                self.disturbances.push(Excuse {
                    worker: Some(slot.name.clone()),
                    from,
                    until: self.runtime.now(),
                });
            }
            slot.name = format!("worker-{}-{}", slot.number, slot.lives);
        }
    }

    fn strike(&mut self, now: Duration) {
        let index = usize::try_from(self.random.below(self.slots.len() as u64)).unwrap_or(0);
        let kind = usize::try_from(self.random.below(self.faults.process_faults.len() as u64))
            .unwrap_or(0);
        if self.slots[index].next != Next::Nothing {
            return;
        }
        let fault = self.faults.process_faults[kind];
        *self.injected.entry(fault).or_default() += 1;
        self.disturb(index, fault.name());
        let pause = self.random.millis(300, 9_000);
        let slot = &mut self.slots[index];
        let Some(process) = &mut slot.process else {
            return;
        };
        match fault {
            FaultKind::Crash => {
                process.kill();
                self.restart_later(index, now);
            }
            FaultKind::Pause => {
                process.signal(Signal::STOP);
                slot.next = Next::Continue(now + pause);
            }
            _ => {
                process.signal(Signal::TERM);
                slot.next = Next::Stopped(now + STOP_LIMIT);
            }
        }
    }

    /// Ends the trouble: stopped processes continue, and ended ones restart.
    pub(crate) fn calm(&mut self) -> Result<()> {
        for index in 0..self.slots.len() {
            if let Next::Continue(_) = self.slots[index].next {
                self.slots[index].next = Next::Continue(Duration::ZERO);
            }
            if let Next::Start(_) = self.slots[index].next {
                self.slots[index].next = Next::Start(Duration::ZERO);
            }
        }
        self.tick(false)
    }

    /// Stops all processes, workers before brokers, and writes a log of all faults.
    pub(crate) fn stop(&mut self) {
        // The log only helps to understand a breach.
        let _ = std::fs::write(self.site.folder.join("monkey.log"), &self.log);
        for role in [Role::Worker, Role::Broker] {
            for slot in self.slots.iter_mut().filter(|slot| slot.role == role) {
                if let Some(process) = &mut slot.process
                    && !process.stop(STOP_LIMIT)
                {
                    self.unresponsive.push(slot.name.clone());
                }
            }
        }
    }

    /// The number of injected faults.
    pub(crate) fn injected(&self) -> u64 {
        self.injected.values().sum()
    }

    /// What happened so far, including disturbances that are not over.
    pub(crate) fn report(&self) -> MonkeyReport {
        let mut all = self.disturbances.clone();
        for slot in &self.slots {
            if let Some(from) = slot.disturbed {
                all.push(Excuse {
                    worker: (slot.role == Role::Worker).then(|| slot.name.clone()),
                    from,
                    until: Timestamp::MAX,
                });
            }
        }
        MonkeyReport {
            disturbances: all,
            injected: self.injected.clone(),
            processes: self.slots.iter().map(|slot| u64::from(slot.lives)).sum(),
            exits: self.exits,
            unresponsive: self.unresponsive.clone(),
        }
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Worker => "worker",
        Role::Broker => "broker",
    }
}
