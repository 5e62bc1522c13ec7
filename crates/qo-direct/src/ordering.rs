//! Ordering keys: tasks of one queue with the same key run one at a time, in submit order.
//!
//! Each key has one record, its **line**: the waiting tasks in their order, changed by compare-and-swap. Only the head of a line has an entry in
//! the ready index. A task joins the line at its end and leaves it when it is settled ([`Task::is_settled`]), so a retry, a release or a snooze
//! changes nothing in the line. The head changes only when the previous head has left.
//!
//! # Why at most one task of a key runs
//!
//! A claim reads the line and claims only the head. From then on nobody else can become the head: only a settled task is removed from a line,
//! and a settled task cannot be claimed. If the task was settled between the read and the claim, the swap of the claim fails. A replay gives the
//! task a new *turn*, and the line names task and turn, so a removal that arrives late concerns only the turn that has ended.
//!
//! # Steps of a submit
//!
//! | step | what | a crash right after it leaves | repaired by |
//! | --- | --- | --- | --- |
//! | 1 | read the line, and refuse the task if the line is full | nothing | |
//! | 2 | create the task | a pending task that is not in its line | the sweeper, which lets it join |
//! | 3 | add the task to the line: **its place is decided**, and the submit can be acknowledged | a head without a ready entry, if it is the head | the sweeper |
//! | 4 | if it is the head: write its ready entry | nothing | |
//!
//! # Steps of the end of a task
//!
//! | step | what | a crash right after it leaves | repaired by |
//! | --- | --- | --- | --- |
//! | 1 | swap the task: it is settled | a line whose head is settled | the lease reaper, through the task's lease entry; a claim, through its ready entry; the sweeper, which looks at every changed task |
//! | 2 | read the line and the next task in it, and remove this one | a head without a ready entry | the same: whoever finds the settled task also looks after the head |
//! | 3 | write the ready entry of the next task | the old entries | the same |
//! | 4 | delete the old entries | nothing | |
//!
//! The old entries are deleted only if steps 2 and 3 succeeded. A replay joins the line between the swap of the task and its ready entry, and
//! its marker ([`super::change`]) leads the lease reaper to what a crash left. If the task is replayed before anybody has repaired the line,
//! joining replaces its earlier turn, and whoever lets it join also looks after the head. A purge removes the task from its line before it deletes the
//! record. Once an hour the sweeper looks at the heads of all lines, or of a part of them if there are many, in case a write
//! arrived late. After it has quarantined a damaged record, it looks at all of them ([`super::sweeper`]).
//!
//! A line that is empty is kept: a delete is unconditional and could take a task that has just joined.
//!
//! # Requests
//!
//! | operation | more than without a key |
//! | --- | --- |
//! | submit | 1 GET and 1 PUT of the line; no ready entry unless the task is the head |
//! | claim | 1 GET of the line |
//! | retry, release, snooze, renewal | nothing |
//! | the end of a task | 1 GET and 1 PUT of the line; 1 GET of the next task and 1 PUT of its ready entry, if there is one |
//!
//! In all 2 PUT and 3 or 4 GET per task. The sweeper reads the line once more for each task with a key that has finished. Submits and ends of
//! one key contend for its line, so their rate depends on the round trip. Many tasks in one call share one write.

mod record;
mod submit;

use std::time::Duration;

use bytes::Bytes;
use qo_core::keys::{IndexEntry, Key};
use qo_core::task::OrderingLine;
use qo_core::{OpId, Sha256, Status, Task, TaskId};
use qo_engine::EngineError;
use qo_engine::api::WaitReason;
use qo_store::StoreError;
use qo_store::client::{Object, Tag};
use qo_store::runtime::RuntimeExt;
use tokio::sync::{Mutex, MutexGuard};

use self::record::{LinePlace, LineRecord};
use super::DirectEngine;
use super::change::in_doubt;
use super::index;

/// The most tasks in a line. The record is written with every change, so it must stay small. Submits that race each other may exceed it by
/// their number.
pub const LINE_MAX_TASKS: usize = 1_000;
/// How often a change of a line is tried while other writers keep changing it.
const TRIES_MAX: u32 = 32;
/// The number of locks that all lines share.
const LOCKS: usize = 64;

/// Lets the tasks of this process that change the same line take turns, because each lost race costs two requests.
pub(super) struct LineLocks([Mutex<()>; LOCKS]);

impl Default for LineLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl LineLocks {
    async fn lock(&self, digest: &Sha256) -> MutexGuard<'_, ()> {
        let number = digest.as_bytes().first().copied().unwrap_or_default();
        self.0[usize::from(number) % LOCKS].lock().await
    }
}

/// A line as it was read, and the tag of its object; no tag if there is no object yet.
struct StoredLine {
    digest: Sha256,
    record: LineRecord,
    tag: Option<Tag>,
}

/// The place of a task in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinePosition {
    Head,
    /// Behind this task; `ahead` tasks are before it.
    Behind {
        head: TaskId,
        ahead: usize,
    },
    /// Not in the line, because whoever submitted or replayed it has died, or is about to add it.
    Absent,
}

impl StoredLine {
    fn position_of(&self, task: &Task) -> LinePosition {
        let position = (self.record.tasks.iter()).position(|place| *place == LinePlace::of(task));
        match (position, self.record.tasks.first()) {
            (Some(0), _) => LinePosition::Head,
            (Some(ahead), Some(head)) => LinePosition::Behind {
                head: head.id,
                ahead,
            },
            _ => LinePosition::Absent,
        }
    }
}

/// The digest that names the object of a line.
fn digest_of(line: &OrderingLine) -> Sha256 {
    qo_engine::payload::digest(line.canonical().as_bytes())
}

impl DirectEngine {
    /// Adds tasks to a line that was read before they were created or read. Returns the head if it is one of them: it needs a ready entry.
    ///
    /// Whatever happened to a task since then involved a write of the line. So a swap with the tag of that read adds no task that has finished
    /// meanwhile. After a lost race the line is read again, and then the tasks.
    async fn join_line(
        &self,
        line: &OrderingLine,
        stored: StoredLine,
        tasks: Vec<Task>,
    ) -> Result<Option<Task>, EngineError> {
        let op = self.runtime().new_op_id();
        let (mut stored, mut tasks) = (stored, tasks);
        for round in 0..TRIES_MAX {
            if round > 0 {
                stored = self.read_line(line).await.map_err(in_doubt)?;
                tasks = self.still_waiting(&stored, tasks).await?;
            }
            let mut record = stored.record.clone();
            for task in &tasks {
                if !record.contains(task) {
                    record.join(task);
                }
            }
            let is_joined =
                record == stored.record || self.write_line(&stored, &mut record, op).await?;
            if is_joined {
                let head = record.tasks.first();
                let is_head = |task: &Task| head == Some(&LinePlace::of(task));
                return Ok(tasks.into_iter().find(is_head));
            }
            self.pause_before_retry(round).await;
        }
        Err(contended(&stored.digest))
    }

    /// The tasks that are in a line, or still have to join it.
    async fn still_waiting(
        &self,
        stored: &StoredLine,
        tasks: Vec<Task>,
    ) -> Result<Vec<Task>, EngineError> {
        let mut waiting = Vec::with_capacity(tasks.len());
        for task in tasks {
            if stored.record.contains(&task) {
                waiting.push(task);
                continue;
            }
            match self.read(task.id).await {
                Ok(found) if LinePlace::of(&task).is_held_by(&found.task) => {
                    waiting.push(found.task);
                }
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(in_doubt(error)),
            }
        }
        Ok(waiting)
    }

    /// Does what the change of a task with an ordering key requires in its line. Returns false if that failed, so that the old index entries
    /// must be kept: they lead the lease reaper or a claim to the task.
    pub(super) async fn follow_in_line(&self, before: &Task, after: &Task) -> bool {
        let was_head = before.status == Status::Running;
        let result = match after.status {
            // Only the head runs, and it stays the head.
            Status::Pending if was_head => {
                self.publish_entry(after).await;
                return true;
            }
            Status::Pending => self.restore_place(after).await,
            _ if after.is_settled() && !before.is_settled() => self.restore_place(after).await,
            _ => return true,
        };
        if let Err(error) = &result {
            tracing::warn!(task = %after.id, %error, "the task is stored, but the line of its ordering key is not; the lease reaper or the sweeper will repair it");
        }
        result.is_ok()
    }

    /// Brings the line of a task's ordering key up to date: a pending task joins it, and a settled one leaves it. Writes the ready entry of
    /// the head, if that is this task or may lack one.
    pub(super) async fn restore_place(&self, task: &Task) -> Result<(), EngineError> {
        let Some(line) = task.ordering_line() else {
            return Ok(());
        };
        if task.is_settled() {
            let left = Some(LinePlace::of(task));
            return self
                .advance_line(&digest_of(&line), left, false)
                .await
                .map(drop);
        }
        if task.status != Status::Pending {
            return Ok(());
        }
        let joined = {
            let _turn = self.shared.line_locks.lock(&digest_of(&line)).await;
            let stored = self.read_line(&line).await?;
            // The line was read after the task, so the task may have left it in the meantime.
            let waiting = self.still_waiting(&stored, vec![task.clone()]).await?;
            self.join_line(&line, stored, waiting).await?
        };
        match joined {
            Some(head) => self.write_entry(&head).await,
            // Its earlier turn may have been the head, and may have ended in a process that died. What leads to the next task then are the
            // entries of this one, so it must be looked after before they are deleted.
            None if task.ordering_turn > 0 => {
                self.advance_line(&digest_of(&line), None, true).await?;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Writes the ready or later entry of a pending task.
    async fn write_entry(&self, task: &Task) -> Result<(), EngineError> {
        if let Some(key) = index::pending_key(task, self.client().now()) {
            self.put_entry(&key).await?;
            self.announce_entry(&key);
        }
        Ok(())
    }

    /// Removes a task that has left a line, and all heads that have, and writes the ready entry of the next one. With `checks_entry` the
    /// entry is written only if it is missing. Returns whether there was anything to do.
    async fn advance_line(
        &self,
        digest: &Sha256,
        left: Option<LinePlace>,
        checks_entry: bool,
    ) -> Result<bool, EngineError> {
        let _turn = self.shared.line_locks.lock(digest).await;
        let op = self.runtime().new_op_id();
        for round in 0..TRIES_MAX {
            let Some(stored) = self.get_line(digest).await? else {
                return Ok(false);
            };
            let mut record = stored.record.clone();
            if let Some(left) = left {
                record.leave(left);
            }
            let head = self.find_head(&mut record).await?;
            let is_changed = record != stored.record;
            if is_changed && !self.write_line(&stored, &mut record, op).await? {
                self.pause_before_retry(round).await;
                continue;
            }
            let Some(head) = head.filter(|head| head.status == Status::Pending) else {
                return Ok(is_changed);
            };
            if checks_entry && !is_changed && self.has_entry(&head).await? {
                return Ok(false);
            }
            self.write_entry(&head).await?;
            return Ok(true);
        }
        Err(contended(digest))
    }

    /// The head of a line. Removes the tasks before it that have left the line without being removed.
    async fn find_head(&self, record: &mut LineRecord) -> Result<Option<Task>, EngineError> {
        while let Some(first) = record.tasks.first().copied() {
            match self.read(first.id).await {
                Ok(stored) if first.is_held_by(&stored.task) => return Ok(Some(stored.task)),
                Ok(_) => {}
                // It was created before it joined, so it has been purged.
                Err(error) if error.is_not_found() => {}
                // The sweeper quarantines a damaged record. One of a later version is for other processes.
                Err(EngineError::Unreadable { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
            record.leave(first);
        }
        Ok(None)
    }

    /// Whether a pending task has its ready or later entry.
    async fn has_entry(&self, task: &Task) -> Result<bool, EngineError> {
        let entry = IndexEntry::of(task);
        Ok(self.entry_exists(&Key::Ready(entry.clone())).await?
            || self.entry_exists(&Key::Later(entry)).await?)
    }

    /// The place of a task in its line.
    pub(super) async fn position_in_line(&self, task: &Task) -> Result<LinePosition, EngineError> {
        match task.ordering_line() {
            None => Ok(LinePosition::Head),
            Some(line) => Ok(self.read_line(&line).await?.position_of(task)),
        }
    }

    /// Looks after a settled task whose process may have died, and the head of its line. Returns whether there was anything to repair.
    pub(super) async fn check_left(&self, task: &Task) -> Result<bool, EngineError> {
        match task.ordering_line() {
            None => Ok(false),
            Some(line) => {
                let left = Some(LinePlace::of(task));
                self.advance_line(&digest_of(&line), left, true).await
            }
        }
    }

    /// Looks after the head of a line. Returns whether there was anything to repair.
    pub(super) async fn check_line(&self, digest: &Sha256) -> Result<bool, EngineError> {
        self.advance_line(digest, None, true).await
    }

    /// What a pending task waits for.
    pub(super) async fn find_wait_reason(
        &self,
        task: &Task,
    ) -> Result<Option<WaitReason>, EngineError> {
        if task.status != Status::Pending {
            return Ok(None);
        }
        let pauses = self.pauses_now().await?;
        if let Some(paused) = WaitReason::of_pause(task, &pauses) {
            return Ok(Some(paused));
        }
        let LinePosition::Behind { head, ahead } = self.position_in_line(task).await? else {
            let wait = self.find_limit_wait(task).await?;
            return Ok(wait.map(WaitReason::Limit));
        };
        let stopped = match self.read(head).await {
            Ok(stored) => stored.task.stops_line(),
            Err(_) => false,
        };
        Ok(Some(WaitReason::OrderingKey {
            behind: head,
            ahead: ahead as u64,
            stopped,
        }))
    }

    async fn read_line(&self, line: &OrderingLine) -> Result<StoredLine, EngineError> {
        let digest = digest_of(line);
        let stored = self.get_line(&digest).await?;
        Ok(stored.unwrap_or_else(|| StoredLine {
            digest,
            record: LineRecord::new(line),
            tag: None,
        }))
    }

    async fn get_line(&self, digest: &Sha256) -> Result<Option<StoredLine>, EngineError> {
        let key = Key::Line(*digest).to_string();
        match self.client().get(&key).await {
            Ok(Object { body, tag, .. }) => {
                let record =
                    serde_json::from_slice(&body).map_err(|error| corrupt(&key, &error))?;
                Ok(Some(StoredLine {
                    digest: *digest,
                    record,
                    tag: Some(tag),
                }))
            }
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a line, if it has not changed since it was read. Returns false if it has, or may have.
    async fn write_line(
        &self,
        stored: &StoredLine,
        record: &mut LineRecord,
        op: OpId,
    ) -> Result<bool, EngineError> {
        record.head.set_operation(op);
        let key = Key::Line(stored.digest).to_string();
        let body = serde_json::to_vec(record).map_err(|error| corrupt(&key, &error))?;
        let body = Bytes::from(body);
        let written = match &stored.tag {
            Some(tag) => self.client().swap(&key, body, tag, &op).await,
            None => self.client().create(&key, body, &op).await,
        };
        match written {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(in_doubt(error.into())),
        }
    }

    async fn pause_before_retry(&self, round: u32) {
        let pause_ms = self.runtime().random_below(u64::from(round) * 10);
        self.runtime().sleep(Duration::from_millis(pause_ms)).await;
    }
}

/// The error for a line that other writers keep changing. The task itself has been changed.
fn contended(digest: &Sha256) -> EngineError {
    in_doubt(EngineError::Store(StoreError::Unavailable {
        key: Key::Line(*digest).to_string(),
        detail: "other writers keep changing the line of this ordering key".to_owned(),
        attempts: TRIES_MAX,
        elapsed: Duration::ZERO,
        in_doubt: true,
    }))
}

fn corrupt(key: &str, error: &serde_json::Error) -> EngineError {
    EngineError::Store(StoreError::Corrupt {
        key: key.to_owned(),
        detail: error.to_string(),
    })
}
