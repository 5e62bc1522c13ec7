//! Reads and writes payloads of direct mode.

use qo_core::keys::Key;
use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use qo_core::{Json, Payload, Sha256, TaskId};
use qo_engine::{EngineError, payload};

use super::DirectEngine;

impl DirectEngine {
    pub(super) async fn put_payload(&self, key: &Key, json: &Json) -> Result<(), EngineError> {
        payload::put(self.client(), key, json).await
    }

    /// Decides where an input is stored.
    pub(super) fn place_input(&self, input: &Json) -> Result<Payload, EngineError> {
        let size_max = self.config().payload_max_bytes;
        payload::place("input", input, INLINE_PAYLOAD_MAX_BYTES, size_max)
    }

    pub(super) async fn load_payload(
        &self,
        payload: Payload,
        key: impl FnOnce(Sha256) -> Key,
    ) -> Result<Json, EngineError> {
        payload::load(self.client(), payload, key).await
    }

    /// The key of a task's large output.
    pub(super) fn output_key(id: TaskId, attempt: u32) -> Key {
        Key::Output { id, attempt }
    }
}
