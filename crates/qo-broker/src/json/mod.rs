//! The queue as one readable JSON object, changed by compare-and-swap. It is safe with concurrent writers.
//!
//! | step | action | effect of a crash or a lost response right after it |
//! | --- | --- | --- |
//! | 1 | a large payload is stored as its own object | an orphan, which no task refers to |
//! | 2 | the group is applied to the state in memory | none |
//! | 3 | the whole object is swapped, or created if it does not exist: **the group is durable** | the object itself names the author of the write, so the write counts exactly once |
//! | 4 | the payloads of dropped tasks are deleted ([`super::payload_removal`]) | orphans, which no task refers to |
//!
//! If another process writes first, the swap fails. The object is then read, only the lines that differ are parsed, and the group
//! is applied again. Processes take turns ([`turns`]). A group that changes nothing is confirmed with a conditional GET, so every
//! response reflects the newest state.
//!
//! Finished tasks are kept up to a configured age and number and are then dropped. Every commit writes the whole object, so this
//! engine suits queues of up to thousands of tasks.

mod document;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use object_store::ObjectStore;
use qo_core::task::{Outline, decode, encode};
use qo_core::{DocumentId, OpId, Pauses, QueueState, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::client::{ClientConfig, Object, Tag};
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::{StoreClient, StoreError};

use self::document::{Head, KEY, LINE_OVERHEAD, OpIdCounter};
use self::turns::Turns;
use super::BrokerEngine;
use super::config::JsonConfig;
use super::documents::read_documents;
use super::journal::{CommitOutcome, GroupChanges, Journal, PollIntervals};
use super::retention::Retention;

/// The largest object that is read. A larger one was not written by qo.
const READ_MAX_BYTES: u64 = 256 * 1024 * 1024;

impl BrokerEngine {
    /// The engine that stores the queue in one JSON object. Any number of processes may share it.
    pub fn json(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<StoreClock>,
        runtime: Arc<dyn Runtime>,
        mut client: ClientConfig,
        config: JsonConfig,
    ) -> Self {
        client.recognise = document::recognise;
        client.object_bytes_max = client.object_bytes_max.max(READ_MAX_BYTES);
        let client = StoreClient::new(objects, clock, Arc::clone(&runtime), client);
        let broker_config = config.state.clone();
        let journal = JsonJournal::new(client.clone(), Arc::clone(&runtime), config);
        let queue = QueueState::new();
        Self::start(queue, journal, client, runtime, broker_config, None)
    }
}

struct JsonJournal {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: JsonConfig,
    op_ids: OpIdCounter,
    /// The tag of the object as last read or written. `None` if it did not exist.
    tag: Option<Tag>,
    /// Whether the state may differ from the object that `tag` identifies.
    must_load: bool,
    /// A changed object that was read already.
    read: Option<Object>,
    head: Head,
    /// Each task's line in the object that `tag` identifies.
    lines: BTreeMap<TaskId, Bytes>,
    /// Lines that this version cannot read as tasks. They are preserved.
    unknown_lines: Vec<Bytes>,
    lines_bytes: usize,
    /// The buffer of the last write, for reuse.
    spare: BytesMut,
    turns: Turns,
}

impl JsonJournal {
    fn new(client: StoreClient, runtime: Arc<dyn Runtime>, config: JsonConfig) -> Self {
        Self {
            client,
            op_ids: OpIdCounter::new(runtime.random()),
            runtime,
            config,
            tag: None,
            must_load: true,
            read: None,
            head: Head::default(),
            lines: BTreeMap::new(),
            unknown_lines: Vec::new(),
            lines_bytes: 0,
            spare: BytesMut::new(),
            turns: Turns::default(),
        }
    }

    /// Loads an object. Only lines that differ from the known ones are parsed.
    fn load_body(&mut self, body: &[u8], state: &mut QueueState) -> Result<(), StoreError> {
        let (head, lines) = document::read(body)?;
        let mut gone: BTreeSet<TaskId> = self.lines.keys().copied().collect();
        let mut unknown_lines = Vec::new();
        for line in lines {
            let Some(id) = document::id_of(line) else {
                tracing::warn!(
                    "this version cannot read a line of {KEY} as a task; leaving it unchanged"
                );
                unknown_lines.push(Bytes::copy_from_slice(line.as_bytes()));
                continue;
            };
            gone.remove(&id);
            if self.lines.get(&id).is_some_and(|known| known == line) {
                continue;
            }
            let known = state.unload(id);
            match decode(line.as_bytes()) {
                Ok(task) => {
                    let is_claimed = known.is_some_and(|known| known.attempt < task.attempt);
                    state.load(task);
                    if is_claimed {
                        state.count_turn(id);
                    }
                }
                Err(error) => {
                    // The id and the key stay taken, so that no submit replaces this line.
                    tracing::warn!(task = %id, %error, "cannot read a task; leaving it unchanged");
                    let outline = Outline::of(line.as_bytes());
                    let key = outline.and_then(|outline| outline.key);
                    state.reserve(Outline { id, key }, error.to_string());
                }
            }
            self.set_line(id, Some(Bytes::copy_from_slice(line.as_bytes())));
        }
        for id in gone {
            state.unload(id);
            self.set_line(id, None);
        }
        self.lines_bytes -= bytes_of(&self.unknown_lines);
        self.lines_bytes += bytes_of(&unknown_lines);
        self.unknown_lines = unknown_lines;
        state.restore(head.pauses.clone(), head.last_sequence);
        let settings = head.settings.iter();
        state.restore_documents(read_documents(
            settings.map(|(name, value)| (name.as_str(), value.get().as_bytes())),
        ));
        self.head = head;
        Ok(())
    }

    fn set_line(&mut self, id: TaskId, line: Option<Bytes>) {
        let added = line.as_ref().map_or(0, |line| line.len() + LINE_OVERHEAD);
        let known = match line {
            Some(line) => self.lines.insert(id, line),
            None => self.lines.remove(&id),
        };
        self.lines_bytes += added;
        self.lines_bytes -= known.map_or(0, |line| line.len() + LINE_OVERHEAD);
    }

    /// Discards the tasks of a write that did not succeed, so that the next load reads them.
    fn undo(&mut self, state: &mut QueueState, staged: &BTreeMap<TaskId, Option<Bytes>>) {
        self.must_load = true;
        for id in staged.keys() {
            state.unload(*id);
            self.set_line(*id, None);
        }
    }

    /// Checks that the object has not changed since it was last read or written.
    async fn confirm(&mut self) -> CommitOutcome {
        let changed = match &self.tag {
            Some(tag) => self.client.get_if_changed(KEY, tag).await,
            None => self.client.get(KEY).await.map(Some),
        };
        match changed {
            Ok(None) => CommitOutcome::Durable,
            Err(StoreError::NotFound { .. }) if self.tag.is_none() => CommitOutcome::Durable,
            Ok(read) => {
                self.turns.others_wrote(self.runtime.monotonic());
                self.read = read;
                self.must_load = true;
                CommitOutcome::Conflict
            }
            Err(StoreError::NotFound { .. }) => {
                self.must_load = true;
                CommitOutcome::Conflict
            }
            Err(error) => {
                self.must_load = true;
                CommitOutcome::Failed(error.into())
            }
        }
    }

    /// Whether the object contains a write that the store refused. A proxy may have sent the write twice and returned the response
    /// to the second copy. The next load uses the object that is read here. If it cannot be read, the outcome is unknown.
    async fn was_written(&mut self, op: &OpId) -> Result<bool, StoreError> {
        match self.client.get(KEY).await {
            Ok(object) => {
                let was_written = document::recognise(&object.body, op).is_some();
                self.read = Some(object);
                Ok(was_written)
            }
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(StoreError::Unavailable {
                key: KEY.to_owned(),
                detail: error.to_string(),
                attempts: 1,
                elapsed: Duration::ZERO,
                in_doubt: true,
            }),
        }
    }

    /// The object with the changes of a group.
    fn compose(
        &mut self,
        head: &Head,
        staged: &BTreeMap<TaskId, Option<Bytes>>,
        op: &OpId,
        now: Timestamp,
    ) -> Result<Bytes, EngineError> {
        let staged_bytes: usize = staged
            .values()
            .flatten()
            .map(|line| line.len() + LINE_OVERHEAD)
            .sum();
        let kept = self
            .lines
            .iter()
            .filter(|(id, _)| !staged.contains_key(id))
            .map(|(_, line)| line);
        let lines = kept
            .chain(staged.values().flatten())
            .chain(&self.unknown_lines);
        let bytes = self.lines_bytes + staged_bytes;
        let spare = std::mem::take(&mut self.spare);
        document::write(spare, head, op, now, lines, bytes)
            .map_err(|error| EngineError::BadRequest(error.to_string()))
    }
}

/// Puts the changed documents into the head of the object.
fn set_documents(
    head: &mut Head,
    state: &QueueState,
    changed: &[DocumentId],
) -> Result<(), EngineError> {
    for id in changed {
        let settings = Arc::make_mut(&mut head.settings);
        match state.document(id) {
            None => {
                settings.remove(&id.to_string());
            }
            Some(document) => {
                let text = serde_json::value::to_raw_value(document)
                    .map_err(|error| EngineError::BadRequest(error.to_string()))?;
                settings.insert(id.to_string(), text);
            }
        }
    }
    Ok(())
}

fn bytes_of(lines: &[Bytes]) -> usize {
    lines.iter().map(|line| line.len() + LINE_OVERHEAD).sum()
}

#[async_trait]
impl Journal for JsonJournal {
    fn must_load(&self) -> bool {
        self.must_load || self.turns.has_rested()
    }

    async fn load(&mut self, state: &mut QueueState) -> Result<(), EngineError> {
        let has_rested = self.turns.take_rested();
        let object = match (self.read.take(), &self.tag) {
            (Some(object), _) => Some(object),
            // Another process has probably written meanwhile. Reading first costs less than a lost race.
            (None, Some(tag)) if has_rested && !self.must_load => {
                match self.client.get_if_changed(KEY, tag).await {
                    Ok(None) => return Ok(()),
                    Ok(changed) => {
                        self.turns.others_wrote(self.runtime.monotonic());
                        changed
                    }
                    Err(StoreError::NotFound { .. }) => None,
                    Err(error) => return Err(error.into()),
                }
            }
            (None, _) => match self.client.get(KEY).await {
                Ok(object) => Some(object),
                Err(StoreError::NotFound { .. }) => None,
                Err(error) => return Err(error.into()),
            },
        };
        if let Some(object) = object {
            self.load_body(&object.body, state)?;
            self.tag = Some(object.tag);
        } else {
            for id in self.lines.keys() {
                state.unload(*id);
            }
            self.lines.clear();
            self.unknown_lines.clear();
            self.lines_bytes = 0;
            self.head = Head::default();
            state.restore(Pauses::default(), 0);
            state.restore_documents(BTreeMap::new());
            self.tag = None;
        }
        self.must_load = false;
        Ok(())
    }

    async fn commit(
        &mut self,
        state: &mut QueueState,
        changes: &GroupChanges,
        now: Timestamp,
    ) -> CommitOutcome {
        if changes.is_empty() {
            return self.confirm().await;
        }
        let mut staged = BTreeMap::new();
        let removed = changes.removed.iter().map(|task| &task.id);
        for id in changes.tasks.iter().chain(removed) {
            if staged.contains_key(id) {
                continue;
            }
            let line = match state.task(*id).map(encode) {
                None => None,
                Some(Ok(line)) => Some(Bytes::from(line)),
                Some(Err(error)) => {
                    self.undo(state, &staged);
                    return CommitOutcome::Failed(EngineError::BadRequest(error.to_string()));
                }
            };
            staged.insert(*id, line);
        }
        let op = self.op_ids.next_op();
        let mut head = self.head.clone();
        head.mark(&op, now);
        head.last_sequence = state.last_sequence();
        head.pauses.clone_from(state.pauses());
        if let Err(error) = set_documents(&mut head, state, &changes.documents) {
            self.undo(state, &staged);
            return CommitOutcome::Failed(error);
        }
        let body = match self.compose(&head, &staged, &op, now) {
            Ok(body) => body,
            Err(error) => {
                self.undo(state, &staged);
                return CommitOutcome::Failed(error);
            }
        };
        let began = self.runtime.monotonic();
        let written = match &self.tag {
            Some(tag) => self.client.swap(KEY, body.clone(), tag, &op).await,
            None => self.client.create(KEY, body.clone(), &op).await,
        };
        // The store may still hold the buffer.
        self.spare = body.try_into_mut().unwrap_or_default();
        let was_written = match written {
            Ok(written) => {
                // Without a tag, another process has written since. This group's write still counts.
                self.must_load = written.tag().is_none();
                self.tag = written.tag().cloned().or_else(|| self.tag.take());
                Ok(true)
            }
            Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => {
                self.must_load = true;
                self.was_written(&op).await
            }
            Err(error) => Err(error),
        };
        match was_written {
            Ok(true) => {
                self.turns.won(began, self.runtime.monotonic());
                for (id, line) in staged {
                    self.set_line(id, line);
                }
                self.head = head;
                CommitOutcome::Durable
            }
            Ok(false) => {
                self.turns.lost(self.runtime.monotonic());
                self.undo(state, &staged);
                CommitOutcome::Conflict
            }
            Err(error) => {
                self.undo(state, &staged);
                CommitOutcome::Failed(error.into())
            }
        }
    }

    fn poll_intervals(&self) -> Option<PollIntervals> {
        Some(PollIntervals {
            waiting: self.config.poll_interval,
            idle: self.config.fallback_interval,
        })
    }

    fn rest(&mut self, at: Duration) -> Duration {
        self.turns.rest(at)
    }

    fn pause_after_losses(&self, lost: u32) -> Duration {
        self.turns.pause(lost, self.runtime.random_unit())
    }

    fn admit(&self, group_bytes: u64, bytes: u64) -> Result<(), EngineError> {
        let settings = self.head.settings.values();
        let settings_bytes: usize = settings.map(|value| value.get().len()).sum();
        let size = (self.lines_bytes as u64)
            .saturating_add(settings_bytes as u64)
            .saturating_add(group_bytes)
            .saturating_add(bytes);
        let limit = self.config.object_max_bytes;
        if size > limit {
            return Err(EngineError::ObjectFull { size, limit });
        }
        Ok(())
    }

    fn retire(&mut self, state: &mut QueueState, changes: &mut GroupChanges, now: Timestamp) {
        let retention = Retention::new(self.config.finished_keep);
        let may_drop_before = now.minus_millis(retention.shortest_ms(state));
        let is_over = |at: Timestamp, id: TaskId| {
            let queue = state.task(id).map(|task| &task.queue);
            queue.is_some_and(|queue| at < now.minus_millis(retention.of_ms(state, queue)))
        };
        let excess = state.ended().len().saturating_sub(self.config.finished_max);
        let dropped: Vec<_> = state
            .ended()
            .enumerate()
            .take_while(|(index, (at, _))| *index < excess || *at < may_drop_before)
            .filter(|(index, (at, id))| *index < excess || is_over(*at, *id))
            .map(|(_, (_, id))| id)
            .collect();
        let dropped = dropped
            .into_iter()
            .filter_map(|id| state.forget(id).map(Arc::unwrap_or_clone));
        changes.removed.extend(dropped);
    }

    async fn close(&mut self) {}
}
