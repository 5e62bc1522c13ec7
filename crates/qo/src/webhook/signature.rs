//! Signatures of notifications, as in [Standard Webhooks](https://www.standardwebhooks.com): an HMAC with SHA-256 of the id, the time and the
//! body, with a dot between them.
//!
//! A receiver verifies a notification before it believes it:
//!
//! ```
//! use qo::webhook::WebhookSecret;
//! use qo::webhook::signature::{SignedHeaders, SigningKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
//! # let body = br#"{"type":"task.completed"}"#;
//! # let now = 1_700_000_000;
//! # let key = SigningKey::new(&WebhookSecret::new(secret)?)?;
//! # let (id, timestamp, signature) = ("msg_1", "1700000000", key.sign("msg_1", now, body));
//! let key = SigningKey::new(&WebhookSecret::new(secret)?)?;
//! let headers = SignedHeaders { id, timestamp, signature: &signature };
//! key.verify(&headers, body, now)?;
//! # Ok(())
//! # }
//! ```

use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use qo_core::webhook::{InvalidWebhook, SECRET_PREFIX, WebhookSecret};
use ring::hmac;
use thiserror::Error;

/// The header with the id of a notification. It is the same for all retries, so a receiver recognises a notification that it has already.
pub const ID_HEADER: &str = "webhook-id";
/// The header with the time of the request, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header with the signatures.
pub const SIGNATURE_HEADER: &str = "webhook-signature";
/// How far the time of a request may be from the receiver's.
pub const TOLERANCE_SECONDS: u64 = 300;

/// The start of a signature.
const VERSION: &str = "v1,";
/// Secrets of other programs may have no padding.
const SECRET_FORM: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The key of a secret.
#[derive(Clone)]
pub struct SigningKey(hmac::Key);

/// The headers of a notification.
#[derive(Debug, Clone, Copy)]
pub struct SignedHeaders<'a> {
    /// The value of [`ID_HEADER`].
    pub id: &'a str,
    /// The value of [`TIMESTAMP_HEADER`].
    pub timestamp: &'a str,
    /// The value of [`SIGNATURE_HEADER`]: one or more signatures, separated by spaces.
    pub signature: &'a str,
}

/// Why a notification must not be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidSignature {
    /// The time is not a number of seconds.
    #[error("{TIMESTAMP_HEADER} is not a number of seconds")]
    Timestamp,
    /// The request is too old, or from the future: somebody may repeat an old one.
    #[error("{TIMESTAMP_HEADER} is more than {TOLERANCE_SECONDS} seconds from now")]
    NotNow,
    /// No signature fits.
    #[error("no signature matches the secret and the body")]
    Signature,
}

impl SigningKey {
    /// The key of a secret.
    pub fn new(secret: &WebhookSecret) -> Result<Self, InvalidWebhook> {
        let text = secret.as_str().strip_prefix(SECRET_PREFIX);
        let bytes = text.and_then(|text| SECRET_FORM.decode(text).ok());
        let bytes = bytes.ok_or(InvalidWebhook::Secret)?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The signature of a notification. `timestamp` is the time of the request in seconds since 1970.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let signed = signed(id, &timestamp.to_string(), body);
        let tag = hmac::sign(&self.0, &signed);
        format!("{VERSION}{}", STANDARD.encode(tag))
    }

    /// Verifies a notification. `now` is the receiver's time in seconds since 1970.
    pub fn verify(
        &self,
        headers: &SignedHeaders<'_>,
        body: &[u8],
        now: u64,
    ) -> Result<(), InvalidSignature> {
        let timestamp: u64 =
            (headers.timestamp.parse()).map_err(|_| InvalidSignature::Timestamp)?;
        if timestamp.abs_diff(now) > TOLERANCE_SECONDS {
            return Err(InvalidSignature::NotNow);
        }
        let signed = signed(headers.id, headers.timestamp, body);
        let fits = |text: &str| {
            let tag = text.strip_prefix(VERSION);
            let tag = tag.and_then(|tag| STANDARD.decode(tag).ok());
            tag.is_some_and(|tag| hmac::verify(&self.0, &signed, &tag).is_ok())
        };
        if headers.signature.split(' ').any(fits) {
            return Ok(());
        }
        Err(InvalidSignature::Signature)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

fn signed(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> SigningKey {
        SigningKey::new(&WebhookSecret::new(text).unwrap()).unwrap()
    }

    /// The example of the specification of Standard Webhooks.
    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let body = br#"{"test": 2432232314}"#;
        let signature = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn only_what_was_signed_is_believed() {
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let other =
            SigningKey::new(&WebhookSecret::new(&format!("whsec_{}", "A".repeat(32))).unwrap())
                .unwrap();
        let signature = key.sign("a", 1_000, b"body");
        let several = format!("v1,AAAA v2,x {signature}");
        let verify = |key: &SigningKey, id, timestamp, signature: &str, body: &[u8], now| {
            let headers = SignedHeaders {
                id,
                timestamp,
                signature,
            };
            key.verify(&headers, body, now)
        };
        assert_eq!(
            verify(&key, "a", "1000", &signature, b"body", 1_300),
            Ok(())
        );
        assert_eq!(verify(&key, "a", "1000", &several, b"body", 700), Ok(()));
        let wrong = Err(InvalidSignature::Signature);
        assert_eq!(
            verify(&other, "a", "1000", &signature, b"body", 1_000),
            wrong
        );
        assert_eq!(verify(&key, "b", "1000", &signature, b"body", 1_000), wrong);
        assert_eq!(verify(&key, "a", "1001", &signature, b"body", 1_000), wrong);
        assert_eq!(verify(&key, "a", "1000", &signature, b"bodY", 1_000), wrong);
        assert_eq!(verify(&key, "a", "1000", "", b"body", 1_000), wrong);
        let old = verify(&key, "a", "1000", &signature, b"body", 1_301);
        assert_eq!(old, Err(InvalidSignature::NotNow));
        let none = verify(&key, "a", "soon", &signature, b"body", 1_000);
        assert_eq!(none, Err(InvalidSignature::Timestamp));
    }
}
