//! An object's attributes as a JSON object in a column.

use std::collections::BTreeMap;

use object_store::{Attribute, AttributeValue, Attributes};

use super::error::{SqliteError, damaged};

/// The maximum length of the JSON in bytes. S3 allows 2 KiB for user metadata and as much for the rest.
const ENCODED_LENGTH_LIMIT: usize = 8 * 1024;

/// Distinguishes user metadata from the HTTP attributes.
const METADATA_PREFIX: &str = "metadata:";

/// Encodes attributes as JSON; `None` if there are none.
pub(super) fn encode(attributes: &Attributes) -> Result<Option<String>, SqliteError> {
    if attributes.is_empty() {
        return Ok(None);
    }
    let mut named = BTreeMap::new();
    for (attribute, value) in attributes {
        let name = match attribute {
            Attribute::ContentDisposition => "content-disposition".to_owned(),
            Attribute::ContentEncoding => "content-encoding".to_owned(),
            Attribute::ContentLanguage => "content-language".to_owned(),
            Attribute::ContentType => "content-type".to_owned(),
            Attribute::CacheControl => "cache-control".to_owned(),
            Attribute::StorageClass => "storage-class".to_owned(),
            Attribute::Metadata(name) => format!("{METADATA_PREFIX}{name}"),
            unknown => {
                return Err(SqliteError::Attributes {
                    detail: format!("{unknown:?} is not supported"),
                });
            }
        };
        named.insert(name, value.as_ref());
    }
    let encoded = serde_json::to_string(&named).map_err(|error| SqliteError::Attributes {
        detail: error.to_string(),
    })?;
    if encoded.len() > ENCODED_LENGTH_LIMIT {
        return Err(SqliteError::Attributes {
            detail: format!(
                "they take {} bytes, more than the limit of {ENCODED_LENGTH_LIMIT}",
                encoded.len()
            ),
        });
    }
    Ok(Some(encoded))
}

/// Decodes the attributes of a stored column.
pub(super) fn decode(encoded: Option<&str>) -> rusqlite::Result<Attributes> {
    let Some(encoded) = encoded else {
        return Ok(Attributes::new());
    };
    let named: BTreeMap<String, String> = serde_json::from_str(encoded)
        .map_err(|error| damaged(format!("cannot parse the attributes: {error}")))?;
    named
        .into_iter()
        .map(|(name, value)| {
            let attribute = match name.as_str() {
                "content-disposition" => Attribute::ContentDisposition,
                "content-encoding" => Attribute::ContentEncoding,
                "content-language" => Attribute::ContentLanguage,
                "content-type" => Attribute::ContentType,
                "cache-control" => Attribute::CacheControl,
                "storage-class" => Attribute::StorageClass,
                other => match other.strip_prefix(METADATA_PREFIX) {
                    Some(name) => Attribute::Metadata(name.to_owned().into()),
                    None => return Err(damaged(format!("an attribute named {other:?}"))),
                },
            };
            Ok((attribute, AttributeValue::from(value)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip() {
        let attributes = Attributes::from_iter([
            (Attribute::ContentDisposition, "inline"),
            (Attribute::ContentEncoding, "gzip"),
            (Attribute::ContentLanguage, "en"),
            (
                Attribute::ContentType,
                "application/json; charset=\"utf-8\"",
            ),
            (Attribute::CacheControl, "no-store"),
            (Attribute::StorageClass, "STANDARD"),
            (
                Attribute::Metadata("content-type".into()),
                "a name that HTTP has too",
            ),
            (Attribute::Metadata("".into()), "é"),
        ]);
        let encoded = encode(&attributes).unwrap();
        assert_eq!(decode(encoded.as_deref()).unwrap(), attributes);
        assert_eq!(encode(&Attributes::new()).unwrap(), None);
        assert_eq!(decode(None).unwrap(), Attributes::new());
    }

    #[test]
    fn oversized_or_damaged_attributes_are_rejected() {
        let long = Attributes::from_iter([(Attribute::ContentType, "x".repeat(9_000))]);
        assert!(matches!(encode(&long), Err(SqliteError::Attributes { .. })));
        for bad in ["", "[]", "{\"unknown\":\"x\"}", "{\"content-type\":1}"] {
            assert!(decode(Some(bad)).is_err(), "{bad}");
        }
    }
}
