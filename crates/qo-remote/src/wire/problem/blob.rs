//! Converts errors of operations on blobs to problems and back.

use qo_blob::BlobError;
use qo_store::StoreError;

use super::{Condition, Problem};

impl From<&BlobError> for Problem {
    fn from(error: &BlobError) -> Self {
        let condition = match error {
            BlobError::Engine(error) => return Self::from(error),
            BlobError::Store(error) => {
                return Self::from(qo_engine::EngineError::from(error.clone()));
            }
            BlobError::NotFound { address } => Condition::BlobNotFound { address: *address },
            BlobError::Mismatch { expected, actual } => Condition::BlobMismatch {
                expected: *expected,
                actual: *actual,
            },
            BlobError::Damaged { address, detail } => Condition::BlobDamaged {
                address: *address,
                reason: detail.clone(),
            },
            BlobError::TooLarge { max_bytes } => Condition::BlobTooLarge { limit: *max_bytes },
            BlobError::BadRange {
                address,
                start,
                end,
                size,
            } => Condition::BadRange {
                address: *address,
                start: *start,
                end: *end,
                size: *size,
            },
            BlobError::Contended { address } => Condition::StoreConflict {
                key: format!("blob {address}"),
            },
            BlobError::Unreadable { address, detail } => Condition::StoreCorrupt {
                key: format!("blob {address}"),
                reason: detail.clone(),
            },
            BlobError::Upload { .. } => Condition::BadBody,
            BlobError::Spool { .. } => Condition::Overloaded,
            BlobError::GraceTooShort { .. } => Condition::BadRequest,
            _ => Condition::Internal,
        };
        Self::new(condition, error.to_string())
    }
}

/// The error of a condition that concerns a blob.
pub(super) fn error_of(condition: &Condition) -> Option<BlobError> {
    Some(match condition.clone() {
        Condition::BlobNotFound { address } | Condition::MissingBlob { address } => {
            BlobError::NotFound { address }
        }
        Condition::BlobMismatch { expected, actual } => BlobError::Mismatch { expected, actual },
        Condition::BlobDamaged { address, reason } => BlobError::Damaged {
            address,
            detail: reason,
        },
        Condition::BlobTooLarge { limit } => BlobError::TooLarge { max_bytes: limit },
        Condition::BadRange {
            address,
            start,
            end,
            size,
        } => BlobError::BadRange {
            address,
            start,
            end,
            size,
        },
        Condition::NoBlobs => BlobError::Store(StoreError::Unsupported {
            operation: "blobs",
            detail: "the queue of this server stores none".to_owned(),
        }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_round_trip() {
        let address = qo_blob::address_of(b"a");
        let expected = qo_blob::address_of(b"b");
        for error in [
            BlobError::NotFound { address },
            BlobError::Mismatch {
                expected,
                actual: address,
            },
            BlobError::Damaged {
                address,
                detail: "x".to_owned(),
            },
            BlobError::TooLarge { max_bytes: 3 },
            BlobError::BadRange {
                address,
                start: 1,
                end: 9,
                size: 4,
            },
            BlobError::Engine(qo_engine::EngineError::NotLeader),
        ] {
            let text = serde_json::to_string(&Problem::from(&error)).unwrap();
            let problem: Problem = serde_json::from_str(&text).unwrap();
            assert_eq!(problem.into_blob_error("http://server"), error);
        }
    }
}
