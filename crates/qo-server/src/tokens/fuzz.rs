//! Tokens and the object that holds them, from any bytes.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use qo_core::Timestamp;
use qo_engine::fuzz::round_trip;

use super::record::split;
use super::store::Stored;

/// The stored tokens, and a text that may be a token: nothing that was not made here opens anything.
pub fn tokens(bytes: &[u8]) {
    let records = round_trip::<Stored>(bytes).map(Stored::into_records);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok((id, secret)) = split(text) {
        assert_eq!(format!("qo_{id}_{secret}"), text);
    }
    for record in records.unwrap_or_default() {
        // The hash of a secret is not its secret, and neither is anything else that is stored.
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
