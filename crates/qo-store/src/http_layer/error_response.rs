//! Parses an error response: its status, the store's error code, and one line of text, each bounded.
//!
//! Only the code and the message are taken from the body. S3 repeats the access key id and the signed text in other
//! elements of the body, and those must not reach a log.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::HeaderMap;
use object_store::client::{HttpError, HttpResponse, HttpResponseBody};
use serde::Deserialize;

use crate::response::ResponseError;

/// How much of an error response is read: several times what stores send.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// How much of the store's message is kept.
const MAX_MESSAGE_CHARS: usize = 300;
/// The maximum length of an error code.
const MAX_CODE_CHARS: usize = 64;

/// Reads at most `limit` bytes of a body. The flag is true if the body was longer.
pub(crate) async fn read_bounded(
    body: HttpResponseBody,
    limit: usize,
) -> Result<(Bytes, bool), HttpError> {
    let mut stream = body.bytes_stream();
    let mut read = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        let room = limit - read.len();
        read.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        if chunk.len() > room {
            return Ok((read.freeze(), true));
        }
    }
    Ok((read.freeze(), false))
}

/// Parses an error response. Also returns the response with the part of its body that was read.
pub(crate) async fn read_error(response: HttpResponse) -> (HttpResponse, ResponseError) {
    let (parts, body) = response.into_parts();
    // If the body breaks off, the status remains, and it is what matters.
    let (body, _) = read_bounded(body, MAX_ERROR_BYTES)
        .await
        .unwrap_or_default();
    let error = describe(parts.status.as_u16(), &parts.headers, &body);
    (HttpResponse::from_parts(parts, body.into()), error)
}

/// An error of S3, Azure, or the XML API of GCS.
#[derive(Deserialize)]
struct XmlError {
    #[serde(rename = "Code")]
    code: Option<String>,
    #[serde(rename = "Message")]
    message: Option<String>,
}

fn describe(status: u16, headers: &HeaderMap, body: &[u8]) -> ResponseError {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();
    let (code, message) = if text.starts_with('{') {
        from_json(text)
    } else if text.starts_with('<') {
        quick_xml::de::from_str::<XmlError>(text)
            .map_or((None, None), |error| (error.code, error.message))
    } else {
        (None, None)
    };
    // Azure also sends the code in a header, and for HEAD requests only there.
    let code = code.or_else(|| {
        headers
            .get("x-ms-error-code")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    });
    ResponseError::Status {
        status,
        code: code.filter(|code| is_code(code)),
        message: message.map_or_else(
            || "no reason given".to_owned(),
            |message| one_line(&message),
        ),
    }
}

/// An error of the JSON API of GCS: `{"error": {"code": 409, "message": "...", "errors": [{"reason": "..."}]}}`.
fn from_json(text: &str) -> (Option<String>, Option<String>) {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else {
        return (None, None);
    };
    let error = value.get("error").unwrap_or(&value);
    let text_of = |name: &str| {
        error
            .get(name)
            .and_then(|field| field.as_str())
            .map(str::to_owned)
    };
    let reason = error
        .pointer("/errors/0/reason")
        .and_then(|reason| reason.as_str())
        .map(str::to_owned);
    let code = reason.or_else(|| text_of("status")).or_else(|| {
        // A numeric code only repeats the HTTP status.
        text_of("code")
    });
    (code, text_of("message"))
}

fn is_code(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_CODE_CHARS
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// The text as one line without control characters, truncated.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if let Some((cut, _)) = line.char_indices().nth(MAX_MESSAGE_CHARS) {
        line.truncate(cut);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(status: u16, body: &str) -> (Option<String>, String) {
        match describe(status, &HeaderMap::new(), body.as_bytes()) {
            ResponseError::Status { code, message, .. } => (code, message),
            ResponseError::NoResponse { .. } => panic!("expected a status"),
        }
    }

    #[test]
    fn s3_and_azure_return_a_code_and_a_message() {
        let (code, message) = parse(
            403,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SignatureDoesNotMatch</Code><Message>The signature\n  does not match.</Message><AWSAccessKeyId>AKIDSECRET</AWSAccessKeyId><StringToSign>x</StringToSign></Error>",
        );
        assert_eq!(code.as_deref(), Some("SignatureDoesNotMatch"));
        assert_eq!(message, "The signature does not match.");
        let (code, _) = parse(
            409,
            "\u{feff}<?xml version=\"1.0\"?><Error><Code>BlobAlreadyExists</Code><Message>m</Message></Error>",
        );
        assert_eq!(code.as_deref(), Some("BlobAlreadyExists"));
    }

    #[test]
    fn google_json_returns_a_reason() {
        let (code, message) = parse(
            429,
            r#"{"error":{"code":429,"message":"slow down","errors":[{"reason":"rateLimitExceeded"}]}}"#,
        );
        assert_eq!(code.as_deref(), Some("rateLimitExceeded"));
        assert_eq!(message, "slow down");
    }

    #[test]
    fn azure_returns_the_code_of_a_head_in_a_header() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ms-error-code", "ServerBusy".parse().unwrap());
        let ResponseError::Status { code, .. } = describe(503, &headers, b"") else {
            panic!("expected a status");
        };
        assert_eq!(code.as_deref(), Some("ServerBusy"));
    }

    #[test]
    fn hostile_bodies_give_only_the_status() {
        for body in [
            "",
            "<Error><Code>",
            "{\"error\":",
            "<html><body>Bad gateway</body></html>",
            "plain text",
        ] {
            assert_eq!(parse(502, body).0, None, "{body}");
        }
        let odd = "<Error><Code>a b&lt;script&gt;</Code><Message>m</Message></Error>";
        assert_eq!(parse(502, odd).0, None);
        let long = format!("<Error><Message>{}</Message></Error>", "é".repeat(5_000));
        assert_eq!(parse(502, &long).1.chars().count(), MAX_MESSAGE_CHARS);
        let ResponseError::Status { status, code, .. } =
            describe(500, &HeaderMap::new(), &[0xff, 0xfe, 0, 1])
        else {
            panic!("expected a status");
        };
        assert_eq!((status, code), (500, None));
    }
}
