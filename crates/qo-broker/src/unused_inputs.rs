//! Deletes the inputs of submits that created no task.
//!
//! A caller that chose the id may repeat a refused submit, and the repetition stores the same input under the same key. A delete that the store
//! applies late would then hit the input of a task. So such an input is kept for longer than callers repeat a submit, and it is deleted then if
//! no task refers to it. Nobody else uses an id that the engine chose, so its input is deleted at once.
//!
//! A process that ends before that leaves an orphan, as a crash does. The number and the size of the inputs that wait are bounded: beyond that
//! they are deleted at once, because storage must not grow without bound while a full queue refuses submits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use qo_core::keys::Key;
use qo_core::{Payload, TaskId};
use qo_engine::EngineError;
use qo_engine::api::Submitted;
use tokio::sync::Semaphore;

use super::message::Submit;
use super::payload_removal::delete_keys;
use super::{BrokerEngine, EngineShared};

/// How long an input is kept for a repetition of its submit.
const KEPT: Duration = Duration::from_mins(10);
/// How much is kept at the same time, in units of [`UNIT_BYTES`]: 512 MiB, or 8,000 small inputs.
const KEPT_UNITS_MAX: usize = 8_192;
/// The unit of that room. Inputs in their own objects are larger than this.
const UNIT_BYTES: u64 = 64 * 1024;

/// The room for inputs that are kept for a repetition.
#[derive(Debug, Clone)]
pub(super) struct KeptInputs(Arc<Semaphore>);

impl Default for KeptInputs {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(KEPT_UNITS_MAX)))
    }
}

/// An input in its own object, of a submit whose result is awaited.
#[derive(Debug)]
pub(super) struct StoredInput {
    id: TaskId,
    id_is_chosen: bool,
    input: Payload,
}

impl StoredInput {
    /// The input of a submit, if it is in its own object.
    pub(super) fn of(submit: &Submit) -> Option<Self> {
        match &submit.input {
            Payload::Inline(_) => None,
            input @ Payload::Stored(_) => Some(Self {
                id: submit.id,
                id_is_chosen: submit.id_is_chosen,
                input: input.clone(),
            }),
        }
    }

    /// The room that it takes.
    fn units(&self) -> u32 {
        let bytes = match &self.input {
            Payload::Inline(_) => 0,
            Payload::Stored(reference) => reference.size,
        };
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
    }

    /// Whether a task refers to it, or may do so.
    fn is_used(&self, result: &Result<Submitted, EngineError>) -> bool {
        match result {
            Ok(submitted) => submitted.task.id == self.id && submitted.task.input() == self.input,
            Err(
                EngineError::Rejected(_)
                | EngineError::ObjectFull { .. }
                | EngineError::Overloaded { .. },
            ) => false,
            // The submit may still have been written.
            Err(_) => true,
        }
    }
}

impl BrokerEngine {
    /// Deletes the input of a submit that created no task, now or later.
    pub(super) fn delete_unused_input(
        &self,
        stored: StoredInput,
        result: &Result<Submitted, EngineError>,
    ) {
        if stored.is_used(result) {
            return;
        }
        let runtime = Arc::clone(&self.shared.runtime);
        let room = Arc::clone(&self.shared.kept_inputs.0);
        let kept = stored
            .id_is_chosen
            .then(|| room.try_acquire_many_owned(stored.units()).ok())
            .flatten();
        let engine = Arc::downgrade(&self.shared);
        self.runtime().spawn(Box::pin(async move {
            if kept.is_some() {
                runtime.sleep(KEPT).await;
            }
            delete(engine, &stored).await;
        }));
    }
}

async fn delete(engine: Weak<EngineShared>, stored: &StoredInput) {
    let (Some(shared), Payload::Stored(reference)) = (engine.upgrade(), &stored.input) else {
        return;
    };
    let engine = BrokerEngine { shared };
    let id = stored.id;
    // Another submit of the same id may have stored the same input. Then the object stays.
    let Some(_guard) = engine.shared.payload_guards.try_delete(id) else {
        return;
    };
    let is_free = match engine.read(id).await {
        Ok(task) => task.input() != stored.input,
        Err(error) => error.is_not_found(),
    };
    let sha256 = reference.sha256;
    let key = Key::Input { id, sha256 }.to_string();
    if is_free && let Err(error) = delete_keys(engine.client(), &[key]).await {
        tracing::warn!(%error, "could not delete an unused payload");
    }
}
