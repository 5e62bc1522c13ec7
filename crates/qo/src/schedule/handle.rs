//! Defines, shows and changes schedules.

use qo_core::schedule::{Firing, Run, RunKind, Schedule, ScheduleSpec};
use qo_core::{DocumentKind, DocumentName, OpId, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{Document, DocumentQuery, DocumentWrite};
use qo_store::runtime::RuntimeExt;

use super::{BackfillReport, ScheduleInfo, body, document_id, read, request, write_of};
use crate::error::Error;
use crate::queue::Queue;

/// How often a change is tried while others change the same schedule.
const TRIES_MAX: u32 = 20;
/// The most runs of one backfill.
const BACKFILL_MAX: usize = 1_000;

/// The schedules of a queue, from [`Queue::schedules`].
#[derive(Debug, Clone)]
pub struct Schedules {
    queue: Queue,
}

impl Queue {
    /// The schedules of this queue.
    pub fn schedules(&self) -> Schedules {
        Schedules {
            queue: self.clone(),
        }
    }
}

impl Schedules {
    /// Adds a schedule. Fails with [`Error::ScheduleExists`] if there is one of this name with another definition.
    pub async fn add(&self, name: &str, spec: ScheduleSpec) -> Result<ScheduleInfo, Error> {
        self.set(name, spec, false).await
    }

    /// Adds a schedule, or replaces the definition of the one with this name. A new definition applies from now on. If the definition
    /// is the same, nothing is written.
    pub async fn put(&self, name: &str, spec: ScheduleSpec) -> Result<ScheduleInfo, Error> {
        self.set(name, spec, true).await
    }

    async fn set(
        &self,
        name: &str,
        spec: ScheduleSpec,
        replaces: bool,
    ) -> Result<ScheduleInfo, Error> {
        let name = DocumentName::new(name)?;
        spec.check_known()?;
        let sealed = self.sealed(&name, &spec)?;
        for _ in 0..TRIES_MAX {
            let now = self.queue.now();
            let op = self.queue.runtime().new_op_id();
            let (expected, next) = match self.find(&name).await? {
                None => {
                    let generation = self.queue.runtime().new_op_id();
                    (None, Schedule::new(sealed.clone(), generation, now)?)
                }
                Some((document, known)) if self.opened(&name, &known.spec) == spec => {
                    if self.queue.sealer().is_current(&known.spec.task) {
                        return Ok(self.info(name, known, now));
                    }
                    // The same definition, encrypted with another key or not at all. Its ticks continue.
                    let next = Schedule {
                        spec: sealed.clone(),
                        ..known
                    };
                    (Some(document.version), next)
                }
                Some(_) if !replaces => {
                    return Err(Error::ScheduleExists {
                        name: name.to_string(),
                    });
                }
                Some((document, known)) => {
                    let next = known.with_spec(sealed.clone(), now)?;
                    (Some(document.version), next)
                }
            };
            let body = Some(body(&name, &next)?);
            let write = DocumentWrite::new(document_id(&name), expected, body, op);
            if self.write(write).await? {
                return Ok(self.info(name, next, now));
            }
        }
        Err(contended(&name))
    }

    /// The definition with an encrypted input, if the queue has a key.
    fn sealed(&self, name: &DocumentName, spec: &ScheduleSpec) -> Result<ScheduleSpec, Error> {
        let mut sealed = spec.clone();
        let runtime = self.queue.runtime().as_ref();
        let sealer = self.queue.sealer();
        sealer.seal_schedule(name, &mut sealed.task, runtime)?;
        // What is stored must keep to the limits, too.
        sealed.ticks()?;
        Ok(sealed)
    }

    /// The definition with a decrypted input, if the queue has its key.
    fn opened(&self, name: &DocumentName, spec: &ScheduleSpec) -> ScheduleSpec {
        let mut opened = spec.clone();
        self.queue.sealer().open_schedule(name, &mut opened.task);
        opened
    }

    fn info(&self, name: DocumentName, mut schedule: Schedule, now: Timestamp) -> ScheduleInfo {
        let task = &mut schedule.spec.task;
        self.queue.sealer().open_schedule(&name, task);
        ScheduleInfo::of(name, schedule, now)
    }

    /// All schedules, ordered by name.
    pub async fn list(&self) -> Result<Vec<ScheduleInfo>, Error> {
        let query = DocumentQuery::all(DocumentKind::Schedules);
        let documents = self.queue.engine().documents(&query).await?;
        let now = self.queue.now();
        let mut schedules = Vec::with_capacity(documents.len());
        for document in documents {
            match read(&document) {
                Ok(schedule) => {
                    schedules.push(self.info(document.id.name, schedule, now));
                }
                Err(error) => tracing::warn!(%error, "skipping an unreadable schedule"),
            }
        }
        Ok(schedules)
    }

    /// One schedule.
    pub async fn get(&self, name: &str) -> Result<ScheduleInfo, Error> {
        let name = DocumentName::new(name)?;
        let (_, schedule) = self.must_find(&name).await?;
        let now = self.queue.now();
        Ok(self.info(name, schedule, now))
    }

    /// Stops the ticks of a schedule until it is resumed. Tasks that are submitted stay.
    pub async fn pause(&self, name: &str) -> Result<ScheduleInfo, Error> {
        self.change(name, Schedule::pause).await
    }

    /// Continues with the ticks from now on. Those of the pause are left out.
    pub async fn resume(&self, name: &str) -> Result<ScheduleInfo, Error> {
        self.change(name, Schedule::resume).await
    }

    /// Submits one task of the schedule now, even if it is paused. Returns the task's id.
    pub async fn trigger(&self, name: &str) -> Result<TaskId, Error> {
        let name = DocumentName::new(name)?;
        let op = self.queue.runtime().new_op_id();
        for _ in 0..TRIES_MAX {
            let (document, schedule) = self.must_find(&name).await?;
            let run = schedule.triggered(&name, op, self.queue.now());
            let task = run.task;
            let firing = schedule.trigger(run);
            if self.write_firing(&name, &document, &firing, op).await? {
                return Ok(task);
            }
        }
        Err(contended(&name))
    }

    /// Submits the tasks of all ticks from `from` to `to`, both included, whether they were fired before or not. `to` must be in the past.
    /// A repeated backfill of the same range finds the tasks of the first one, as long as they are kept.
    pub async fn backfill(
        &self,
        name: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<BackfillReport, Error> {
        let name = DocumentName::new(name)?;
        let (_, schedule) = self.must_find(&name).await?;
        let now = self.queue.now();
        if to < from || to > now {
            return Err(Error::BackfillRange);
        }
        let ticks = schedule.spec.ticks()?;
        let due = ticks.between(from.minus_millis(1), to, BACKFILL_MAX + 1);
        if due.len() > BACKFILL_MAX {
            return Err(Error::BackfillTooLarge { max: BACKFILL_MAX });
        }
        let runs: Vec<Run> = due
            .into_iter()
            .map(|tick| schedule.run(&name, RunKind::Backfill, tick, now))
            .collect();
        let requests = runs.iter().map(|run| request(&name, &schedule, run));
        let results = self.queue.engine().submit_many(requests.collect()).await;
        let mut existing = 0;
        for result in results {
            existing += usize::from(result?.duplicate);
        }
        Ok(BackfillReport {
            tasks: runs.into_iter().map(|run| run.task).collect(),
            existing,
        })
    }

    /// Removes a schedule. Tasks that are submitted stay.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let name = DocumentName::new(name)?;
        let op = self.queue.runtime().new_op_id();
        for _ in 0..TRIES_MAX {
            // The document alone, because one that cannot be read can still be removed.
            let document = self.find_document(&name).await?;
            let document = document.ok_or_else(|| no_schedule(&name))?;
            let write = DocumentWrite::new(document_id(&name), Some(document.version), None, op);
            if self.write(write).await? {
                return Ok(());
            }
        }
        Err(contended(&name))
    }

    async fn change(
        &self,
        name: &str,
        change: impl Fn(&Schedule, Timestamp) -> Schedule,
    ) -> Result<ScheduleInfo, Error> {
        let name = DocumentName::new(name)?;
        let op = self.queue.runtime().new_op_id();
        for _ in 0..TRIES_MAX {
            let (document, schedule) = self.must_find(&name).await?;
            let now = self.queue.now();
            let next = change(&schedule, now);
            let is_same = next.paused_at == schedule.paused_at;
            let body = Some(body(&name, &next)?);
            let write = DocumentWrite::new(document_id(&name), Some(document.version), body, op);
            if is_same || self.write(write).await? {
                return Ok(self.info(name, next, now));
            }
        }
        Err(contended(&name))
    }

    async fn write_firing(
        &self,
        name: &DocumentName,
        document: &Document,
        firing: &Firing,
        op: OpId,
    ) -> Result<bool, Error> {
        self.write(write_of(name, document.version, firing, op)?)
            .await
    }

    /// Writes a document. Returns false if somebody else has changed it.
    async fn write(&self, write: DocumentWrite) -> Result<bool, Error> {
        match self.queue.engine().write_document(write).await {
            Ok(_) => {
                self.queue.ring_schedules();
                Ok(true)
            }
            Err(EngineError::DocumentConflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn find_document(&self, name: &DocumentName) -> Result<Option<Document>, Error> {
        let query = DocumentQuery::one(&document_id(name));
        let documents = self.queue.engine().documents(&query).await?;
        Ok(documents.into_iter().next())
    }

    async fn find(&self, name: &DocumentName) -> Result<Option<(Document, Schedule)>, Error> {
        let Some(document) = self.find_document(name).await? else {
            return Ok(None);
        };
        let schedule = read(&document)?;
        Ok(Some((document, schedule)))
    }

    async fn must_find(&self, name: &DocumentName) -> Result<(Document, Schedule), Error> {
        self.find(name).await?.ok_or_else(|| no_schedule(name))
    }
}

fn no_schedule(name: &DocumentName) -> Error {
    Error::NoSchedule {
        name: name.to_string(),
    }
}

fn contended(name: &DocumentName) -> Error {
    EngineError::DocumentConflict {
        id: document_id(name),
    }
    .into()
}
