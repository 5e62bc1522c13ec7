//! Binary inputs and outputs.
//!
//! A queue stores JSON. Bytes are sent and stored as base64 in an object with their content type:
//! `{"$bytes":"aGVsbG8=","content_type":"text/plain"}`. Every reader sees JSON; a reader that requests bytes gets them decoded.

use qo_core::Json;
use qo_core::json::InvalidJson;
use serde::{Deserialize, Serialize};

use qo_engine::EngineError;

/// The longest content type, in bytes.
pub const CONTENT_TYPE_MAX_BYTES: usize = 128;

/// Bytes and their content type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BytesPayload {
    /// The bytes, as base64 with the standard alphabet and padding.
    #[serde(rename = "$bytes")]
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")
    )]
    pub base64: String,
    /// The content type, such as `image/png`.
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[a-z0-9]{1,32}/[a-z0-9.+-]{1,64}$")
    )]
    pub content_type: String,
}

impl BytesPayload {
    /// The stored form.
    pub fn into_json(self) -> Result<Json, EngineError> {
        if !is_base64(&self.base64) {
            return Err(EngineError::BadRequest(
                "$bytes is not base64: use the standard alphabet with padding".to_owned(),
            ));
        }
        if !is_content_type(&self.content_type) {
            return Err(EngineError::BadRequest(
                "content_type is invalid: write it like image/png, in at most 128 bytes".to_owned(),
            ));
        }
        Json::from_value(&self).map_err(|error| bad_json(&error))
    }

    /// Parses the stored form.
    pub fn from_json(json: &Json) -> Option<Self> {
        let payload: Self = json.to_value().ok()?;
        (is_base64(&payload.base64) && is_content_type(&payload.content_type)).then_some(payload)
    }
}

/// The payload in a body: its JSON, its bytes, or none, but not both.
pub(crate) fn one_of(
    field: &str,
    json: Option<Json>,
    bytes: Option<BytesPayload>,
) -> Result<Option<Json>, EngineError> {
    match (json, bytes) {
        (Some(_), Some(_)) => Err(EngineError::BadRequest(format!(
            "give {field} or {field}_bytes, not both"
        ))),
        (None, Some(bytes)) => bytes.into_json().map(Some),
        // The depth of JSON within a larger body has not been checked yet.
        (Some(json), None) => {
            json.check_depth().map_err(|error| bad_json(&error))?;
            Ok(Some(json))
        }
        (None, None) => Ok(None),
    }
}

fn bad_json(error: &InvalidJson) -> EngineError {
    EngineError::BadRequest(error.to_string())
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    text.len().is_multiple_of(4) && text.len() - body.len() <= 2 && body.bytes().all(is_digit)
}

fn is_content_type(text: &str) -> bool {
    let is_token = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-')
    };
    text.len() <= CONTENT_TYPE_MAX_BYTES
        && text.split_once('/').is_some_and(|(sort, kind)| {
            !sort.is_empty()
                && !kind.is_empty()
                && sort.bytes().all(is_token)
                && kind.bytes().all(is_token)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(base64: &str, content_type: &str) -> BytesPayload {
        BytesPayload {
            base64: base64.to_owned(),
            content_type: content_type.to_owned(),
        }
    }

    #[test]
    fn bytes_round_trip_through_json() {
        let payload = bytes("aGVsbG8=", "text/plain");
        let json = payload.clone().into_json().unwrap();
        assert_eq!(
            json.as_str(),
            r#"{"$bytes":"aGVsbG8=","content_type":"text/plain"}"#
        );
        assert_eq!(BytesPayload::from_json(&json), Some(payload));
        let other = Json::parse("{\"a\":1}").unwrap();
        assert_eq!(BytesPayload::from_json(&other), None);
    }

    #[test]
    fn invalid_base64_and_content_types_are_rejected() {
        for base64 in ["a", "a===", "äöü=", "aGVsb G8", "====", "aGVsbG8-"] {
            assert!(bytes(base64, "a/b").into_json().is_err(), "{base64}");
        }
        for content_type in ["", "/", "a/", "a b/c", "a/b\r\nx: y", "text/html; x", "A/B"] {
            assert!(
                bytes("", content_type).into_json().is_err(),
                "{content_type}"
            );
        }
    }

    #[test]
    fn only_one_payload_is_accepted_and_its_depth_is_checked() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let json: Json = serde_json::from_str(&deep).unwrap();
        assert!(one_of("input", Some(json), None).is_err());
        let both = one_of("input", Some(Json::null()), Some(bytes("", "a/b")));
        assert!(both.is_err());
        assert_eq!(one_of("input", None, None), Ok(None));
    }
}
