//! What is known about a record of a later version without reading it as a task.
//!
//! A broker holds all live tasks in memory. It must not change or drop a record that it cannot read, and must not give its id or its
//! idempotency key to another task. So every later form of the record keeps to this:
//!
//! - JSON names the id, the queue, the type and the key as it does today.
//! - The compact form 1 may have more flags, and the id follows the flags.
//! - Any other binary form has its number in the first byte and the sixteen bytes of the id behind it.

use serde::Deserialize;

use super::{IdempotencyScope, ScopedKey};
use crate::id::TaskId;
use crate::names::{IdempotencyKey, QueueName, TaskType};

/// The identity of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// The id of the task.
    pub id: TaskId,
    /// Its idempotency key, if the record names one in a way that this version knows.
    pub key: Option<ScopedKey>,
}

impl Outline {
    /// Reads the identity from a record in any form, [`decode_compact`](super::decode_compact) or JSON.
    pub fn of(record: &[u8]) -> Option<Self> {
        match record.split_first()? {
            (&super::compact::FORM, rest) => Some(Self {
                id: super::compact::id_behind_flags(rest)?,
                key: None,
            }),
            (&form, rest) if form < b'\t' => Some(Self {
                id: TaskId::from_bytes(rest.get(..16)?.try_into().ok()?),
                key: None,
            }),
            _ => Self::of_json(record),
        }
    }

    fn of_json(record: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Id {
            id: TaskId,
        }
        #[derive(Deserialize)]
        struct Named {
            #[serde(default)]
            queue: QueueName,
            task_type: TaskType,
            idempotency_key: IdempotencyKey,
            #[serde(default)]
            idempotency_scope: IdempotencyScope,
        }
        let Id { id } = serde_json::from_slice(record).ok()?;
        let key = serde_json::from_slice::<Named>(record).ok();
        Some(Self {
            id,
            key: key.map(|named| {
                ScopedKey::new(
                    named.idempotency_scope,
                    &named.queue,
                    &named.task_type,
                    &named.idempotency_key,
                )
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "550e8400-e29b-41d4-a716-446655440000";

    #[test]
    fn json_names_the_id_and_the_key() {
        let id: TaskId = ID.parse().unwrap();
        let record = format!(
            r#"{{"id":"{ID}","task_type":"t","status":{{"phase":7}},"idempotency_key":"k","idempotency_scope":"type"}}"#
        );
        let outline = Outline::of(record.as_bytes()).unwrap();
        assert_eq!(outline.id, id);
        assert_eq!(outline.key.unwrap().canonical(), "default/t/k");
        let without = Outline::of(format!(r#"{{"id":"{ID}","x":1}}"#).as_bytes()).unwrap();
        assert_eq!((without.id, without.key), (id, None));
        let strange = format!(r#"{{"id":"{ID}","task_type":"t","idempotency_key":7}}"#);
        assert_eq!(Outline::of(strange.as_bytes()).unwrap().key, None);
    }

    #[test]
    fn binary_forms_have_the_id_at_their_front() {
        let id: TaskId = ID.parse().unwrap();
        for start in [&[1_u8, 0x80, 0x80, 0x80, 0x01][..], &[1, 0], &[2], &[8]] {
            let mut record = start.to_vec();
            record.extend_from_slice(id.as_uuid().as_bytes());
            assert_eq!(Outline::of(&record).unwrap().id, id);
            record.extend_from_slice(b"more");
            assert_eq!(Outline::of(&record).unwrap().id, id);
        }
    }

    #[test]
    fn other_bytes_have_no_identity() {
        for bytes in [
            &b""[..],
            b"{",
            b"{}",
            b"null",
            &[1],
            &[1, 0xff],
            &[2, 3],
            b"\t",
        ] {
            assert_eq!(Outline::of(bytes), None);
        }
    }
}
