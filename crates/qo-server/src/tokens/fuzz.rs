//! Fuzz target of tokens and their stored object.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use qo_core::Timestamp;
use qo_engine::fuzz::round_trip;

use super::record::split;
use super::store::StoredTokens;

/// Stored tokens, and a text that may be a token: only a generated token is accepted.
pub fn tokens(bytes: &[u8]) {
    let records = round_trip::<StoredTokens>(bytes).map(StoredTokens::into_records);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok((id, secret)) = split(text) {
        assert_eq!(format!("qo_{id}_{secret}"), text);
    }
    for record in records.unwrap_or_default() {
        // Neither the hash of a secret nor any other stored text is the secret.
        for secret in [
            "",
            record.id.as_str(),
            record.name.as_str(),
            &record.sha256.to_string(),
        ] {
            assert!(!record.admits(secret, Timestamp::MIN));
        }
    }
}
