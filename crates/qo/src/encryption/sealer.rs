//! Encrypts what a queue writes, and decrypts what it reads.

use qo_core::schedule::TaskTemplate;
use qo_core::task::{Event, ScopedKey};
use qo_core::transition::Failure;
use qo_core::{DocumentName, Json, Task, TaskId, TaskType};
use qo_engine::Operation;
use qo_engine::api::SubmitRequest;
use qo_store::runtime::{Runtime, RuntimeExt};

use super::envelope::{self, Binding, Role, Salt};
use super::key::{KeyId, Keyring};
use super::{EncryptionError, error_text};

/// The encryption of a queue. Without a keyring it encrypts nothing, and refuses to decrypt with the name of the key that it lacks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sealer {
    keyring: Option<Keyring>,
}

impl Sealer {
    pub(crate) fn new(keyring: Keyring) -> Self {
        Self {
            keyring: Some(keyring),
        }
    }

    /// The names of the keys. The first one encrypts.
    pub(crate) fn keys(&self) -> Vec<KeyId> {
        let keys = self.keyring.iter().flat_map(Keyring::ids);
        keys.cloned().collect()
    }

    /// Encrypts the input of a submit. A task without an idempotency key gets its id here, because the encryption is bound to it.
    pub(crate) fn seal_submit(
        &self,
        request: &mut SubmitRequest,
        runtime: &dyn Runtime,
        new_id: impl FnOnce() -> TaskId,
    ) -> Result<(), EncryptionError> {
        let Some(keyring) = &self.keyring else {
            return Ok(());
        };
        if request.task_type.as_str() == qo_blob::job::TASK_TYPE {
            return Err(EncryptionError::RefersToBlobs);
        }
        let task = match request.scoped_key() {
            Some(key) => bound_to_key(&key),
            None => bound_to_id(*request.id.get_or_insert_with(new_id)),
        };
        let binding = Binding {
            role: Role::Input,
            task: &task,
        };
        request.input = envelope::seal(keyring, binding, &salt(runtime), &request.input)?;
        Ok(())
    }

    /// Encrypts the input of a schedule. Processes without the key pass the ciphertext on to its tasks, whose ids are not known yet, so it
    /// is bound to the schedule and the type of its tasks.
    pub(crate) fn seal_schedule(
        &self,
        name: &DocumentName,
        task: &mut TaskTemplate,
        runtime: &dyn Runtime,
    ) -> Result<(), EncryptionError> {
        let Some(keyring) = &self.keyring else {
            return Ok(());
        };
        if task.task_type.as_str() == qo_blob::job::TASK_TYPE {
            return Err(EncryptionError::RefersToBlobs);
        }
        let Some(input) = &mut task.input else {
            return Ok(());
        };
        let bound = bound_to_schedule(name.as_str(), &task.task_type);
        let binding = Binding {
            role: Role::Input,
            task: &bound,
        };
        let salt = salt(runtime);
        *input = envelope::seal_scheduled(keyring, binding, &salt, name.as_str(), input)?;
        Ok(())
    }

    /// Decrypts the input of a schedule. One that cannot be decrypted stays as it is stored.
    pub(crate) fn open_schedule(&self, name: &DocumentName, task: &mut TaskTemplate) {
        let bound = bound_to_schedule(name.as_str(), &task.task_type);
        if let Some(input) = &mut task.input
            && let Ok(opened) = self.open(Role::Input, &bound, input.clone())
        {
            *input = opened;
        }
    }

    /// Whether the input of a schedule is encrypted with the first key, or need not be.
    pub(crate) fn is_current(&self, task: &TaskTemplate) -> bool {
        let first = self.keyring.as_ref().and_then(Keyring::first);
        let (Some(first), Some(input)) = (first, &task.input) else {
            return true;
        };
        envelope::sealed_with(input).as_deref() == Some(first.id().as_str())
    }

    /// Encrypts the output or the error of an operation.
    pub(crate) fn seal_operation(
        &self,
        id: TaskId,
        operation: &mut Operation,
        runtime: &dyn Runtime,
    ) -> Result<(), EncryptionError> {
        let Some(keyring) = &self.keyring else {
            return Ok(());
        };
        let task = bound_to_id(id);
        match operation {
            Operation::Logged { log, operation } => {
                let binding = Binding {
                    role: Role::Log,
                    task: &task,
                };
                *log = error_text::seal_log(keyring, binding, &salt(runtime), log)?.into();
                self.seal_operation(id, operation, runtime)?;
            }
            Operation::Complete {
                output: Some(output),
                ..
            } => {
                let binding = Binding {
                    role: Role::Output,
                    task: &task,
                };
                *output = envelope::seal(keyring, binding, &salt(runtime), output)?;
            }
            Operation::Fail {
                failure: Failure { error, .. },
                ..
            } => {
                let binding = Binding {
                    role: Role::Error,
                    task: &task,
                };
                *error = error_text::seal(keyring, binding, &salt(runtime), error)?.into();
            }
            _ => {}
        }
        Ok(())
    }

    /// Decrypts an input. Returns one that is not encrypted as it is.
    pub(crate) fn open_input(&self, task: &Task, input: Json) -> Result<Json, EncryptionError> {
        let bound = match (envelope::schedule_of(&input), task.scoped_key()) {
            (Some(schedule), _) => bound_to_schedule(&schedule, &task.task_type),
            (None, Some(key)) => bound_to_key(&key),
            (None, None) => bound_to_id(task.id),
        };
        self.open(Role::Input, &bound, input)
    }

    /// Decrypts an output. Returns one that is not encrypted as it is.
    pub(crate) fn open_output(&self, task: &Task, output: Json) -> Result<Json, EncryptionError> {
        self.open(Role::Output, &bound_to_id(task.id), output)
    }

    fn open(&self, role: Role, task: &str, json: Json) -> Result<Json, EncryptionError> {
        let binding = Binding { role, task };
        let opened = envelope::open(self.keyring.as_ref(), binding, &json)?;
        Ok(opened.unwrap_or(json))
    }

    /// Decrypts what a task's record contains. What cannot be decrypted stays as it is stored.
    pub(crate) fn open_task(&self, mut task: Task) -> Task {
        if self.keyring.is_none() {
            return task;
        }
        if let Some(input) = task.inline_input() {
            let opened = self.open_input(&task, input.clone()).ok();
            task.reveal_input(|_| opened);
        }
        let bound = bound_to_id(task.id);
        task.reveal_output(|output| self.open(Role::Output, &bound, output.clone()).ok());
        task.reveal_errors(|error| self.open_error(&bound, error));
        task.reveal_logs(|log| self.open_text(Role::Log, &bound, log));
        task
    }

    /// Decrypts the errors of a task's events. What cannot be decrypted stays as it is stored.
    pub(crate) fn open_events(&self, id: TaskId, events: &mut [Event]) {
        if self.keyring.is_none() {
            return;
        }
        let bound = bound_to_id(id);
        for event in events {
            let opened = event.error.as_deref();
            if let Some(error) = opened.and_then(|error| self.open_error(&bound, error)) {
                event.error = Some(error);
            }
        }
    }

    fn open_error(&self, task: &str, error: &str) -> Option<Box<str>> {
        self.open_text(Role::Error, task, error)
    }

    fn open_text(&self, role: Role, task: &str, text: &str) -> Option<Box<str>> {
        let binding = Binding { role, task };
        let opened = error_text::open(self.keyring.as_ref(), binding, text).ok()??;
        Some(opened.into())
    }
}

/// A task in the authenticated data, by its id.
fn bound_to_id(id: TaskId) -> String {
    format!("id/{id}")
}

/// A task in the authenticated data, by its idempotency key.
fn bound_to_key(key: &ScopedKey) -> String {
    format!("key/{}", key.canonical())
}

/// The tasks of a schedule in the authenticated data. The name of a type contains no slash.
fn bound_to_schedule(name: &str, task_type: &TaskType) -> String {
    format!("schedule/{task_type}/{name}")
}

fn salt(runtime: &dyn Runtime) -> Salt {
    let mut salt = Salt::default();
    for bytes in salt.chunks_mut(size_of::<u64>()) {
        bytes.copy_from_slice(&runtime.random().to_be_bytes()[..bytes.len()]);
    }
    salt
}

/// A new id of a task, by the queue's clock: the sweeper finds new tasks by the time in their ids.
pub(crate) fn new_id(now: qo_core::Timestamp, runtime: &dyn Runtime) -> TaskId {
    TaskId::from_time(now, runtime.random_u128())
}
