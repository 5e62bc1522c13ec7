//! What follows the faults: recovery, until every task is finished, and the cleanup.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use qo_check::{Promise, Recorder};
use qo_core::task::decode;
use qo_core::{QueueName, TaskId};
use qo_engine::Engine;

use super::{Stage, brokers, lock};
use crate::faults::LATE_MAX;
use crate::sched::{HARNESS, ProcessId};

/// How long recovery may take: two passes of the sweeper, a lease, and some retries.
const RECOVERY_MAX: Duration = Duration::from_mins(20);
/// The same without faults, where nothing has to be repaired: an attempt that renews its lease once and then stalls, so two leases, the
/// monitor's interval, and a retry.
const CALM_RECOVERY_MAX: Duration = Duration::from_secs(150);
/// How long a call that began before the end of a run without faults may still change something.
const CALM_SETTLES: Duration = Duration::from_secs(10);
/// How often the run checks whether all tasks are finished.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How long to retry a resume after the faults and with a leader: a request of SlateDB that gets no response takes half a minute to fail,
/// and then another broker takes over.
const RESUME_MAX: Duration = Duration::from_mins(1);

impl Stage {
    /// Ends all faults.
    pub(super) fn calm_down(&self) {
        self.trouble.end();
        for lived in &lock(&self.state).lives {
            self.scheduler.unpause(lived.process);
            self.scheduler.spare(lived.process);
        }
        let leaving: Vec<ProcessId> = {
            let leaves = |number: u64| self.plan.leaves(number).then(|| format!("w{number}"));
            let names: Vec<_> = (1..=self.plan.workers).filter_map(leaves).collect();
            let state = lock(&self.state);
            let lives = state.lives.iter();
            lives
                .filter(|lived| lived.died.is_none() && names.contains(&lived.worker))
                .map(|lived| lived.process)
                .collect()
        };
        for process in leaving {
            self.scheduler.kill(process);
        }
        self.scheduler.note(HARNESS, || "faults end".to_owned());
    }

    /// Waits until every task is finished, and kills all processes.
    pub(super) async fn recover(&self) {
        if self.subject.brokers() > 0 && !self.await_leader().await {
            self.breach(
                Promise::Ends,
                format!(
                    "without faults, no broker serves after {:?}",
                    brokers::VACANT_MAX
                ),
            );
        }
        self.resume("operator").await;
        let began = self.scheduler.elapsed();
        let bound = if self.plan.is_calm() {
            CALM_RECOVERY_MAX
        } else {
            RECOVERY_MAX
        };
        let mut looked_at = None;
        let mut unfinished = Vec::new();
        let mut is_resumed = false;
        let mut operators = 0;
        loop {
            let changes = self.bucket.changes();
            if looked_at != Some(changes) {
                looked_at = Some(changes);
                unfinished = self.unfinished();
            }
            let took = self.scheduler.elapsed().saturating_sub(began);
            // A late request, or a call in progress, may still replay a finished task.
            let settles = if self.plan.is_calm() {
                CALM_SETTLES
            } else {
                LATE_MAX
            };
            let is_settled = took > settles;
            if unfinished.is_empty() && is_settled {
                break;
            }
            if is_settled && !is_resumed {
                // A pause that was on its way came after the first resume.
                is_resumed = true;
                self.resume("operator2").await;
            }
            if took > bound {
                let text = format!("not finished after {bound:?}: {}", unfinished.join(", "));
                self.breach(Promise::Ends, text);
                break;
            }
            if !unfinished.is_empty() {
                lock(&self.state).recovery = took;
            }
            self.cancel_stopping(&mut operators).await;
            self.scheduler.sleep(LOOK_INTERVAL).await;
        }
        let lives = {
            let mut state = lock(&self.state);
            state.over = true;
            state.over_at = self.scheduler.elapsed();
            state.requests = self.bucket.counts();
            state.lives.clone()
        };
        for lived in lives {
            self.scheduler.kill(lived.process);
        }
    }

    /// Cancels the failed tasks that stop their ordering keys: only an operator lets the others run.
    async fn cancel_stopping(&self, operators: &mut u64) {
        let newest = self.subject.newest(&self.bucket).into_iter();
        let tasks = newest.filter_map(|(_, written)| decode(&written.body?).ok());
        let stopping: Vec<TaskId> = tasks
            .filter(qo_core::Task::stops_line)
            .map(|task| task.id)
            .collect();
        if stopping.is_empty() {
            return;
        }
        *operators += 1;
        let name = format!("lines{operators}");
        let (process, _, running) = self.start_process(&name, "operator", 0);
        let engine = Recorder::new(process, running.engine, self.journal.log());
        for id in stopping {
            // The journal records the reply. The next look finds out whether it helped.
            let _ = engine
                .cancel(id, Some("let the others run".to_owned()))
                .await;
        }
        self.scheduler.kill(process);
    }

    /// Resumes the queue: only an operator ends a pause.
    async fn resume(&self, name: &str) {
        let (process, _, running) = self.start_process(name, "operator", 0);
        let began = self.scheduler.elapsed();
        while let Err(error) = running.engine.resume(&QueueName::default()).await {
            let took = self.scheduler.elapsed().saturating_sub(began);
            if self.subject.brokers() == 0 || took > RESUME_MAX {
                self.breach(
                    Promise::Run,
                    format!("without faults, a resume failed: {error}"),
                );
                break;
            }
            self.scheduler.sleep(LOOK_INTERVAL).await;
        }
        self.scheduler.kill(process);
    }

    /// Cleans up much later, when all requests have arrived and unneeded objects are old enough to be deleted. The first round may repair
    /// something that arrived late. Its own writes are cleaned up by the second.
    pub(super) async fn tidy(self: &Arc<Self>) {
        if self.subject.brokers() > 0 {
            self.start_broker("b0", "b0", 0);
            self.await_leader().await;
        }
        let (_, _, running) = self.start_process("tidy", "tidy", 0);
        for _ in 0..2 {
            self.scheduler.sleep(self.subject.tidy_after()).await;
            if let Err(error) = (running.tidy)().await {
                self.breach(
                    Promise::Run,
                    format!("without faults, the cleanup failed: {error}"),
                );
            }
        }
        running.engine.close().await;
        for (id, written) in self.subject.newest(&self.bucket) {
            let Some(task) = written.body.and_then(|body| decode(&body).ok()) else {
                continue;
            };
            let mut unreadable = Vec::new();
            if let Err(error) = running.engine.input(&task).await {
                unreadable.push((id, format!("its input is lost: {error}")));
            }
            if let Err(error) = running.engine.output(&task).await {
                unreadable.push((id, format!("its output is lost: {error}")));
            }
            lock(&self.state).unreadable.extend(unreadable);
        }
    }

    /// The ends of tasks of which no webhook is notified yet.
    fn undelivered(&self) -> Vec<String> {
        let rules = self.plan.webhook_rules();
        if rules.is_empty() {
            return Vec::new();
        }
        let records = self.subject.records(&self.bucket);
        let newest = self.subject.newest(&self.bucket).into_values();
        let tasks = newest.filter_map(|written| decode(&written.body?).ok());
        let due = tasks.flat_map(|task| {
            let deliveries = rules.deliveries(&task).into_iter();
            deliveries.map(move |delivery| (task.id, delivery.id))
        });
        due.filter(|(_, delivery)| !records.contains_key(delivery))
            .map(|(task, _)| format!("the end of {task} is not delivered"))
            .collect()
    }

    /// The unfinished tasks, except those that cannot finish.
    fn unfinished(&self) -> Vec<String> {
        let full: BTreeSet<TaskId> = self
            .bucket
            .full_keys()
            .iter()
            .flat_map(|key| self.subject.tasks_of(key))
            .collect();
        let mut unfinished = Vec::new();
        for (id, written) in self.subject.newest(&self.bucket) {
            if let Some(task) = written.body.and_then(|body| decode(&body).ok())
                && !task.status.is_terminal()
                && !full.contains(&id)
            {
                unfinished.push(format!("{id} is {}", task.status));
            }
        }
        unfinished.extend(self.undelivered());
        unfinished
    }
}
