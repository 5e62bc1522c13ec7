//! The queue as one readable JSON object, changed by compare-and-swap: safe with many writers at once.
//!
//! | step | what | a crash, or a lost answer, right after it leaves |
//! | --- | --- | --- |
//! | 1 | a large payload is stored beside the object | an orphan, which no task names |
//! | 2 | the group is applied to the state in memory | nothing |
//! | 3 | the whole object is swapped, or created where there is none: **the group is durable** | a write whose author is found in the object itself, so that it counts exactly once |
//! | 4 | the payloads of tasks that were dropped are deleted | orphans, which no task names |
//!
//! A lost race shows as a refused swap. The object is read, only the lines that differ are parsed, and the group is applied
//! again. A group that changes nothing is confirmed by asking whether the object is still the one that was read, so that
//! every answer is given from the newest state.
//!
//! Tasks that have come to their end stay for a while and up to a number, and are then dropped without a trace: this engine is
//! for queues of thousands of tasks, and every commit writes all of it.

mod document;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use object_store::ObjectStore;
use qo_core::task::{decode, encode};
use qo_core::{OpId, QueueState, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::client::{ClientConfig, Object, Tag};
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;
use qo_store::{StoreClient, StoreError};

use self::document::{Head, KEY, LINE_OVERHEAD, Writer};
use super::BrokerEngine;
use super::config::JsonConfig;
use super::journal::{Committed, GroupChanges, Journal, Poll};
use super::payloads::forget_payloads;

/// The largest object that is read. A larger one was not written by qo.
const READ_MAX_BYTES: u64 = 256 * 1024 * 1024;

impl BrokerEngine {
    /// The engine that keeps the queue in one JSON object. Any number of processes may share it.
    pub fn json(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<StoreClock>,
        runtime: Arc<dyn Runtime>,
        client: ClientConfig,
        config: JsonConfig,
    ) -> Self {
        let client = StoreClient::new(
            objects,
            clock,
            Arc::clone(&runtime),
            ClientConfig {
                recognise: document::recognise,
                object_bytes_max: client.object_bytes_max.max(READ_MAX_BYTES),
                ..client
            },
        );
        let state = config.state.clone();
        let journal = JsonJournal::new(client.clone(), Arc::clone(&runtime), config);
        let space = QueueState::new();
        Self::start(space, journal, client, runtime, state, None)
    }
}

struct JsonJournal {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: JsonConfig,
    writer: Writer,
    /// The object as it was last read or written; nothing, where there was none.
    tag: Option<Tag>,
    /// Whether the state may not be what `tag` names.
    must_load: bool,
    /// What was read already when it was found to differ.
    read: Option<Object>,
    head: Head,
    /// Each task's line, as it is in the object that `tag` names.
    lines: BTreeMap<TaskId, Bytes>,
    /// Lines that are no task to this version. They are carried along.
    strangers: Vec<Bytes>,
    lines_bytes: usize,
    /// What the last object was written into. Memory that was used before costs less than new memory.
    spare: BytesMut,
}

impl JsonJournal {
    fn new(client: StoreClient, runtime: Arc<dyn Runtime>, config: JsonConfig) -> Self {
        Self {
            client,
            writer: Writer::new(runtime.random()),
            runtime,
            config,
            tag: None,
            must_load: true,
            read: None,
            head: Head::default(),
            lines: BTreeMap::new(),
            strangers: Vec::new(),
            lines_bytes: 0,
            spare: BytesMut::new(),
        }
    }

    /// Takes in an object. Only lines that differ from what is known are parsed.
    fn take_in(&mut self, body: &[u8], state: &mut QueueState) -> Result<(), StoreError> {
        let (head, lines) = document::read(body)?;
        let mut gone: BTreeSet<TaskId> = self.lines.keys().copied().collect();
        let mut strangers = Vec::new();
        for line in lines {
            let Some(id) = document::id_of(line) else {
                tracing::warn!("a line of {KEY} is no task to this version and is left as it is");
                strangers.push(Bytes::copy_from_slice(line.as_bytes()));
                continue;
            };
            gone.remove(&id);
            if self.lines.get(&id).is_some_and(|known| known == line) {
                continue;
            }
            state.unload(id);
            match decode(line.as_bytes()) {
                Ok(task) => {
                    state.load(task);
                }
                Err(error) => {
                    tracing::warn!(task = %id, %error, "a task cannot be read and is left as it is");
                }
            }
            self.set_line(id, Some(Bytes::copy_from_slice(line.as_bytes())));
        }
        for id in gone {
            state.unload(id);
            self.set_line(id, None);
        }
        self.lines_bytes -= bytes_of(&self.strangers);
        self.lines_bytes += bytes_of(&strangers);
        self.strangers = strangers;
        state.restore(head.paused.clone(), head.last_sequence);
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

    /// Forgets what is known of tasks whose write did not come to be, so that the next load reads them.
    fn undo(&mut self, state: &mut QueueState, staged: &BTreeMap<TaskId, Option<Bytes>>) {
        self.must_load = true;
        for id in staged.keys() {
            state.unload(*id);
            self.set_line(*id, None);
        }
    }

    /// Makes sure that the object is still the one that is known.
    async fn confirm(&mut self) -> Committed {
        let found = match &self.tag {
            Some(tag) => self.client.get_if_changed(KEY, tag).await,
            None => self.client.get(KEY).await.map(Some),
        };
        match found {
            Ok(None) => Committed::Done,
            Err(StoreError::NotFound { .. }) if self.tag.is_none() => Committed::Done,
            Ok(read) => {
                self.read = read;
                self.must_load = true;
                Committed::Lost
            }
            Err(StoreError::NotFound { .. }) => {
                self.must_load = true;
                Committed::Lost
            }
            Err(error) => {
                self.must_load = true;
                Committed::Failed(error.into())
            }
        }
    }

    /// Whether a write that was refused is in the object all the same: something on the way may have sent it twice, and
    /// answered with the fate of the second copy. What is read here is what the next load would read. As long as it cannot be
    /// read, nobody knows.
    async fn is_in_after_all(&mut self, op: &OpId) -> Result<bool, StoreError> {
        match self.client.get(KEY).await {
            Ok(object) => {
                let is_in = document::recognise(&object.body, op).is_some();
                self.read = Some(object);
                Ok(is_in)
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

    /// The object with what a group changed.
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
        let lines = kept.chain(staged.values().flatten()).chain(&self.strangers);
        let bytes = self.lines_bytes + staged_bytes;
        let spare = std::mem::take(&mut self.spare);
        document::write(spare, head, op, now, lines, bytes)
            .map_err(|error| EngineError::BadRequest(error.to_string()))
    }
}

fn bytes_of(lines: &[Bytes]) -> usize {
    lines.iter().map(|line| line.len() + LINE_OVERHEAD).sum()
}

#[async_trait]
impl Journal for JsonJournal {
    fn must_load(&self) -> bool {
        self.must_load
    }

    async fn load(&mut self, state: &mut QueueState) -> Result<(), EngineError> {
        let object = match self.read.take() {
            Some(object) => Some(object),
            None => match self.client.get(KEY).await {
                Ok(object) => Some(object),
                Err(StoreError::NotFound { .. }) => None,
                Err(error) => return Err(error.into()),
            },
        };
        if let Some(object) = object {
            self.take_in(&object.body, state)?;
            self.tag = Some(object.tag);
        } else {
            for id in self.lines.keys() {
                state.unload(*id);
            }
            self.lines.clear();
            self.strangers.clear();
            self.lines_bytes = 0;
            self.head = Head::default();
            state.restore(BTreeSet::new(), 0);
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
    ) -> Committed {
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
                    return Committed::Failed(EngineError::BadRequest(error.to_string()));
                }
            };
            staged.insert(*id, line);
        }
        let op = self.writer.next_op();
        let mut head = self.head.clone();
        head.mark(&op, now);
        head.last_sequence = state.last_sequence();
        head.paused.clone_from(state.paused());
        let body = match self.compose(&head, &staged, &op, now) {
            Ok(body) => body,
            Err(error) => {
                self.undo(state, &staged);
                return Committed::Failed(error);
            }
        };
        let written = match &self.tag {
            Some(tag) => self.client.swap(KEY, body.clone(), tag, &op).await,
            None => self.client.create(KEY, body.clone(), &op).await,
        };
        // A store that still holds it keeps it.
        self.spare = body.try_into_mut().unwrap_or_default();
        let is_in = match written {
            Ok(written) => {
                // Where there is no tag, somebody has written since; what this group saw and did stands.
                self.must_load = written.tag().is_none();
                self.tag = written.tag().cloned().or_else(|| self.tag.take());
                Ok(true)
            }
            Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => {
                self.must_load = true;
                self.is_in_after_all(&op).await
            }
            Err(error) => Err(error),
        };
        match is_in {
            Ok(true) => {
                for (id, line) in staged {
                    self.set_line(id, line);
                }
                self.head = head;
                forget_payloads(&self.client, self.runtime.as_ref(), &changes.removed);
                Committed::Done
            }
            Ok(false) => {
                self.undo(state, &staged);
                Committed::Lost
            }
            Err(error) => {
                self.undo(state, &staged);
                Committed::Failed(error.into())
            }
        }
    }

    fn poll(&self) -> Option<Poll> {
        Some(Poll {
            waiting: self.config.poll_interval,
            idle: self.config.fallback_interval,
        })
    }

    fn admit(&self, group_bytes: u64, bytes: u64) -> Result<(), EngineError> {
        let size = (self.lines_bytes as u64)
            .saturating_add(group_bytes)
            .saturating_add(bytes);
        let limit = self.config.object_max_bytes;
        if size > limit {
            return Err(EngineError::QueueFull { size, limit });
        }
        Ok(())
    }

    fn retire(&mut self, state: &mut QueueState, changes: &mut GroupChanges, now: Timestamp) {
        let keep_ms = u64::try_from(self.config.finished_keep.as_millis()).unwrap_or(u64::MAX);
        let kept_since = now.minus_millis(keep_ms);
        let excess = state.ended().len().saturating_sub(self.config.finished_max);
        let dropped: Vec<_> = state
            .ended()
            .enumerate()
            .take_while(|(index, (at, _))| *index < excess || *at < kept_since)
            .map(|(_, (_, id))| id)
            .collect();
        let dropped = dropped
            .into_iter()
            .filter_map(|id| state.forget(id).map(Arc::unwrap_or_clone));
        changes.removed.extend(dropped);
    }

    async fn close(&mut self) {}
}
