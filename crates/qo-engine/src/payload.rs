//! Where inputs and outputs are stored: in the task's record, or in an object of their own if they are too large for it.
//!
//! A large payload is written before the record that refers to it, under a key that no other content can have. Every reference in
//! a record is therefore valid. A payload whose record was never written is an orphan, which the sweeper deletes.

use bytes::Bytes;
use qo_core::keys::Key;
use qo_core::limits::{INLINE_PAYLOAD_MAX_BYTES, STORED_PAYLOAD_MAX_BYTES};
use qo_core::{Json, Payload, PayloadRef, Sha256};
use qo_store::{StoreClient, StoreError};

use crate::error::EngineError;

/// Decides where a payload is stored: in the record up to `inline_max_bytes`, in its own object above that. Rejects a payload larger
/// than `max_bytes`, and one that other programs could not read.
pub fn place(
    field: &'static str,
    json: &Json,
    inline_max_bytes: usize,
    max_bytes: u64,
) -> Result<Payload, EngineError> {
    if let Err(error) = json.check_interoperable() {
        return Err(EngineError::BadRequest(format!("{field}: {error}")));
    }
    let size = json.size() as u64;
    let limit = max_bytes.min(STORED_PAYLOAD_MAX_BYTES);
    if size > limit {
        return Err(EngineError::PayloadTooLarge { field, size, limit });
    }
    if json.size() <= inline_max_bytes.min(INLINE_PAYLOAD_MAX_BYTES) {
        return Ok(Payload::Inline(json.clone()));
    }
    Ok(Payload::Stored(PayloadRef::new(
        size,
        digest(json.as_str().as_bytes()),
    )))
}

/// The SHA-256 digest of `bytes`.
pub fn digest(bytes: &[u8]) -> Sha256 {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut array = [0; 32];
    array.copy_from_slice(digest.as_ref());
    Sha256::from_bytes(array)
}

/// Writes a large payload to its own object.
pub async fn put(client: &StoreClient, key: &Key, json: &Json) -> Result<(), EngineError> {
    let body = Bytes::copy_from_slice(json.as_str().as_bytes());
    client.put(&key.to_string(), body).await?;
    Ok(())
}

/// Reads a payload, from the record or from its own object.
pub async fn load(
    client: &StoreClient,
    payload: Payload,
    key: impl FnOnce(Sha256) -> Key,
) -> Result<Json, EngineError> {
    let reference = match payload {
        Payload::Inline(json) => return Ok(json),
        Payload::Stored(reference) => reference,
    };
    let key = key(reference.sha256).to_string();
    let body = client.get(&key).await?.body;
    let corrupt = |detail: String| StoreError::Corrupt {
        key: key.clone(),
        detail,
    };
    if body.len() as u64 != reference.size || digest(&body) != reference.sha256 {
        return Err(corrupt("its size or digest differs from the task's record".to_owned()).into());
    }
    let text = String::from_utf8(body.into()).map_err(|error| corrupt(error.to_string()))?;
    Json::parse(text).map_err(|error| corrupt(error.to_string()).into())
}
