//! Fuzz targets for the XML documents that an S3 server sends.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use bytes::Bytes;

use super::{encoding, lifecycle, xml};
use crate::admin::Versioning;

/// Parses bytes as each S3 document. A document that parses must survive a round trip.
pub fn s3_documents(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    if let Some(page) = xml::parse_versions(&body)
        && let Some((key, _)) = page.next
    {
        assert!(!key.is_empty(), "a listing would restart forever");
    }
    if let Some(versioning) = xml::parse_versioning(&body) {
        let written = xml::write_versioning(versioning);
        let again = xml::parse_versioning(&Bytes::from(written));
        // There is no way to write 'never enabled'; it is written as 'suspended'.
        let expected = match versioning {
            Versioning::Off => Versioning::Suspended,
            other => other,
        };
        assert_eq!(again, Some(expected));
    }
    if let Some(rules) = xml::parse_cors(&body) {
        let written = xml::write_cors(&rules);
        assert_eq!(xml::parse_cors(&Bytes::from(written)), Some(rules));
    }
    if let Some(rules) = lifecycle::parse(&body) {
        let known: Vec<_> = rules
            .iter()
            .filter_map(|rule| rule.parsed.clone())
            .collect();
        let foreign: Vec<_> = rules
            .iter()
            .filter(|rule| rule.parsed.is_none())
            .map(|rule| rule.xml.clone())
            .collect();
        let written = Bytes::from(lifecycle::write(&known, &foreign));
        let again = lifecycle::parse(&written).unwrap_or_default();
        let (again_known, again_foreign): (Vec<_>, Vec<_>) =
            again.into_iter().partition(|rule| rule.parsed.is_some());
        let again_known: Vec<_> = again_known
            .into_iter()
            .filter_map(|rule| rule.parsed)
            .collect();
        let again_foreign: Vec<_> = again_foreign.into_iter().map(|rule| rule.xml).collect();
        assert_eq!((again_known, again_foreign), (known, foreign));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        for keep_slashes in [false, true] {
            let encoded = encoding::percent_encode(text, keep_slashes);
            assert_eq!(encoding::percent_decode(&encoded), text);
        }
    }
}
