//! The end of a run: without faults, everything is finished, and all nodes agree.

use std::sync::Arc;
use std::time::Duration;

use qo_check::Promise;
use qo_core::TaskId;

use super::client::Answer;
use super::run::Stage;
use crate::random::Random;
use crate::sched::lock;

/// How long recovery may take.
const RECOVERY_MAX: Duration = Duration::from_mins(5);

impl Stage {
    /// Waits until every acknowledged task is finished and all nodes agree.
    pub(super) async fn recover(self: &Arc<Self>) {
        let began = self.scheduler.elapsed();
        let mut dice = Random::of(&[self.seed, 0x4ec]);
        let mut last = String::new();
        while self.scheduler.elapsed().saturating_sub(began) < RECOVERY_MAX {
            self.scheduler.sleep(Duration::from_secs(5)).await;
            match self.unfinished(&mut dice).await {
                None => {
                    lock(&self.state).over = true;
                    // What clients have begun ends.
                    self.scheduler.sleep(Duration::from_secs(30)).await;
                    return self.compare().await;
                }
                Some(what) => last = what,
            }
        }
        lock(&self.state).over = true;
        let states = self.states();
        let what = format!("without faults, after {RECOVERY_MAX:?}: {last}: {states:?}");
        self.breach(Promise::Ends, what);
    }

    async fn unfinished(&self, dice: &mut Random) -> Option<String> {
        if !lock(&self.state).operator_done {
            return Some("the members are still being changed".to_owned());
        }
        if let Some(rules) = &self.rules {
            if lock(&self.state).submitters > 0 {
                return Some("tasks are still being submitted".to_owned());
            }
            self.restart_lines(dice, rules.versions.ids()).await;
        }
        for id in self.known() {
            let began = self.scheduler.elapsed();
            let answer = self.insist(dice, |engine| Box::pin(async move { engine.get(id).await }));
            match answer.await {
                Answer::Done(task) => {
                    lock(&self.ledger).read(began, id, Some(&task));
                    if !task.status.is_terminal() {
                        return Some(format!("{id} is {}", task.status));
                    }
                }
                Answer::Rejected(error) => {
                    lock(&self.ledger).read(began, id, None);
                    if !error.is_not_found() {
                        return Some(format!("{id}: {error}"));
                    }
                }
                Answer::Unknown => return Some("no node serves".to_owned()),
            }
        }
        None
    }

    /// The tasks that must finish: those that were acknowledged and, where that is known, all that are stored.
    fn known(&self) -> Vec<TaskId> {
        match &self.rules {
            Some(rules) => rules.versions.ids(),
            None => lock(&self.ledger).submitted.keys().copied().collect(),
        }
    }

    /// Cancels the failed tasks that stop their ordering keys, as an operator does.
    async fn restart_lines(&self, dice: &mut Random, ids: Vec<TaskId>) {
        for id in ids {
            let read = self.insist(dice, |engine| Box::pin(async move { engine.get(id).await }));
            if let Answer::Done(task) = read.await
                && task.stops_line()
            {
                let cancel = self.insist(dice, |engine| {
                    Box::pin(async move { engine.cancel(id, None).await })
                });
                cancel.await;
            }
        }
    }
}
