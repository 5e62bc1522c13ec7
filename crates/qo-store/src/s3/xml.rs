//! The XML documents of S3: versions, versioning and CORS rules.
//!
//! A document that does not parse gives `None`. Its text is untrusted and never becomes part of an error.

use bytes::Bytes;
use quick_xml::de::from_str;
use quick_xml::escape::escape;
use serde::Deserialize;

use super::encoding::percent_decode;
use crate::admin::{CorsRule, ObjectVersion, Versioning};

pub(super) const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Appends an element with escaped text.
pub(super) fn element(document: &mut String, name: &str, text: &str) {
    document.push('<');
    document.push_str(name);
    document.push('>');
    document.push_str(&escape(text));
    document.push_str("</");
    document.push_str(name);
    document.push('>');
}

/// One version of a key.
#[derive(Debug)]
pub(super) struct VersionEntry {
    pub(super) key: String,
    pub(super) version: ObjectVersion,
}

/// One page of versions, in the store's order.
#[derive(Debug)]
pub(super) struct VersionPage {
    pub(super) entries: Vec<VersionEntry>,
    /// The key and version to continue after, if there are more.
    pub(super) next: Option<(String, String)>,
}

/// Versions and delete markers are interleaved, and their order matters, so they are variants of one list.
#[derive(Deserialize)]
struct ListVersionsResult {
    #[serde(rename = "$value", default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
enum Item {
    IsTruncated(bool),
    EncodingType(String),
    NextKeyMarker(String),
    NextVersionIdMarker(String),
    Version(Entry),
    DeleteMarker(Entry),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    key: String,
    version_id: Option<String>,
    #[serde(default)]
    is_latest: bool,
    last_modified: String,
    #[serde(rename = "ETag")]
    e_tag: Option<String>,
    #[serde(default)]
    size: u64,
}

pub(super) fn parse_versions(body: &Bytes) -> Option<VersionPage> {
    let result: ListVersionsResult = from_str(std::str::from_utf8(body).ok()?).ok()?;
    let is_encoded = result
        .items
        .iter()
        .any(|item| matches!(item, Item::EncodingType(encoding) if encoding == "url"));
    let decode = |text: String| {
        if is_encoded {
            percent_decode(&text)
        } else {
            text
        }
    };
    let mut entries = Vec::new();
    let mut truncated = false;
    let (mut next_key, mut next_version) = (String::new(), String::new());
    for item in result.items {
        match item {
            Item::IsTruncated(value) => truncated = value,
            Item::NextKeyMarker(key) => next_key = decode(key),
            Item::NextVersionIdMarker(version) => next_version = version,
            Item::Version(entry) => entries.push(to_version(entry, false, decode)?),
            Item::DeleteMarker(entry) => entries.push(to_version(entry, true, decode)?),
            Item::EncodingType(_) | Item::Other => {}
        }
    }
    let next = (truncated && !next_key.is_empty()).then_some((next_key, next_version));
    Some(VersionPage { entries, next })
}

fn to_version(
    entry: Entry,
    is_delete_marker: bool,
    decode: impl Fn(String) -> String,
) -> Option<VersionEntry> {
    Some(VersionEntry {
        key: decode(entry.key),
        version: ObjectVersion {
            version: entry.version_id.unwrap_or_else(|| "null".to_owned()),
            last_modified: entry.last_modified.parse().ok()?,
            is_latest: entry.is_latest,
            is_delete_marker,
            size: entry.size,
            e_tag: entry.e_tag.filter(|_| !is_delete_marker),
        },
    })
}

#[derive(Deserialize)]
struct VersioningConfiguration {
    #[serde(rename = "Status")]
    status: Option<String>,
}

pub(super) fn parse_versioning(body: &Bytes) -> Option<Versioning> {
    let document: VersioningConfiguration = from_str(std::str::from_utf8(body).ok()?).ok()?;
    match document.status.as_deref().map(str::trim) {
        None | Some("") => Some(Versioning::Off),
        Some("Enabled") => Some(Versioning::On),
        Some("Suspended") => Some(Versioning::Suspended),
        Some(_) => None,
    }
}

pub(super) fn write_versioning(versioning: Versioning) -> String {
    let status = match versioning {
        Versioning::On => "Enabled",
        Versioning::Off | Versioning::Suspended => "Suspended",
    };
    format!(
        r#"<VersioningConfiguration xmlns="{NAMESPACE}"><Status>{status}</Status></VersioningConfiguration>"#
    )
}

#[derive(Deserialize)]
struct CorsConfiguration {
    #[serde(rename = "CORSRule", default)]
    rules: Vec<CorsRuleXml>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CorsRuleXml {
    #[serde(rename = "AllowedOrigin", default)]
    origins: Vec<String>,
    #[serde(rename = "AllowedMethod", default)]
    methods: Vec<String>,
    #[serde(rename = "AllowedHeader", default)]
    headers: Vec<String>,
    #[serde(rename = "ExposeHeader", default)]
    expose: Vec<String>,
    #[serde(default)]
    max_age_seconds: u32,
}

pub(super) fn parse_cors(body: &Bytes) -> Option<Vec<CorsRule>> {
    let document: CorsConfiguration = from_str(std::str::from_utf8(body).ok()?).ok()?;
    let rules = document.rules.into_iter().map(|rule| CorsRule {
        allowed_origins: rule.origins,
        allowed_methods: rule.methods,
        allowed_headers: rule.headers,
        expose_headers: rule.expose,
        max_age_seconds: rule.max_age_seconds,
    });
    Some(rules.collect())
}

pub(super) fn write_cors(rules: &[CorsRule]) -> String {
    let mut document = format!(r#"<CORSConfiguration xmlns="{NAMESPACE}">"#);
    for rule in rules {
        document.push_str("<CORSRule>");
        for (name, values) in [
            ("AllowedOrigin", &rule.allowed_origins),
            ("AllowedMethod", &rule.allowed_methods),
            ("AllowedHeader", &rule.allowed_headers),
            ("ExposeHeader", &rule.expose_headers),
        ] {
            for value in values {
                element(&mut document, name, value);
            }
        }
        element(
            &mut document,
            "MaxAgeSeconds",
            &rule.max_age_seconds.to_string(),
        );
        document.push_str("</CORSRule>");
    }
    document.push_str("</CORSConfiguration>");
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::from(text.to_owned())
    }

    #[test]
    fn versions_and_delete_markers_keep_their_order() {
        let page = parse_versions(&bytes(
            r#"<?xml version="1.0" encoding="UTF-8"?>
            <ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
              <Name>bucket</Name><Prefix>a%2Fb+c</Prefix><KeyMarker/><VersionIdMarker></VersionIdMarker>
              <NextKeyMarker>a%2Fb+c</NextKeyMarker><NextVersionIdMarker>v1</NextVersionIdMarker>
              <MaxKeys>3</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
              <DeleteMarker><Key>a%2Fb+c</Key><VersionId>v3</VersionId><IsLatest>true</IsLatest><LastModified>2026-01-03T00:00:00.000Z</LastModified><Owner><ID>o</ID></Owner></DeleteMarker>
              <Version><Key>a%2Fb+c</Key><VersionId>v2</VersionId><IsLatest>false</IsLatest><LastModified>2026-01-02T00:00:00.000Z</LastModified><ETag>&quot;e2&quot;</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass></Version>
              <DeleteMarker><Key>a%2Fb+c</Key><VersionId>v1</VersionId><IsLatest>false</IsLatest><LastModified>2026-01-01T00:00:00.000Z</LastModified></DeleteMarker>
            </ListVersionsResult>"#,
        ))
        .unwrap();
        let seen: Vec<_> = page
            .entries
            .iter()
            .map(|entry| {
                (
                    entry.key.as_str(),
                    entry.version.version.as_str(),
                    entry.version.is_delete_marker,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("a/b c", "v3", true),
                ("a/b c", "v2", false),
                ("a/b c", "v1", true)
            ]
        );
        assert!(page.entries[0].version.is_latest);
        assert_eq!(page.entries[1].version.e_tag.as_deref(), Some("\"e2\""));
        assert_eq!(page.entries[1].version.size, 7);
        assert_eq!(page.next, Some(("a/b c".to_owned(), "v1".to_owned())));
    }

    #[test]
    fn a_list_without_versions_is_empty() {
        let page = parse_versions(&bytes(
            "<ListVersionsResult><Name>b</Name><IsTruncated>false</IsTruncated></ListVersionsResult>",
        ))
        .unwrap();
        assert!(page.entries.is_empty() && page.next.is_none());
    }

    #[test]
    fn versioning_has_three_states() {
        let parse = |inner: &str| {
            parse_versioning(&bytes(&format!(
                r#"<VersioningConfiguration xmlns="{NAMESPACE}">{inner}</VersioningConfiguration>"#
            )))
        };
        assert_eq!(parse(""), Some(Versioning::Off));
        assert_eq!(parse("<Status>Enabled</Status>"), Some(Versioning::On));
        assert_eq!(
            parse("<Status>Suspended</Status>"),
            Some(Versioning::Suspended)
        );
        assert_eq!(parse("<Status>Odd</Status>"), None);
        assert_eq!(
            parse_versioning(&bytes("<VersioningConfiguration/>")),
            Some(Versioning::Off)
        );
        assert_eq!(
            parse_versioning(&bytes(&write_versioning(Versioning::On))),
            Some(Versioning::On)
        );
    }

    #[test]
    fn cors_rules_round_trip_with_escapes() {
        let rules = vec![CorsRule {
            allowed_origins: vec!["https://a.example/?<&>\"'".to_owned(), "*".to_owned()],
            allowed_methods: vec!["GET".to_owned(), "PUT".to_owned()],
            allowed_headers: vec!["*".to_owned()],
            expose_headers: vec!["ETag".to_owned()],
            max_age_seconds: 600,
        }];
        assert_eq!(parse_cors(&bytes(&write_cors(&rules))).unwrap(), rules);
    }

    #[test]
    fn hostile_documents_are_none() {
        for text in [
            "",
            "<",
            "plain",
            "<a><b></a>",
            "{}",
            "<ListVersionsResult><Version/></ListVersionsResult>",
        ] {
            assert!(
                parse_versions(&bytes(text)).is_none_or(|page| page.entries.is_empty()),
                "{text}"
            );
        }
        assert!(parse_versions(&Bytes::from_static(&[0xff, 0xfe])).is_none());
        assert!(parse_cors(&bytes("<CORSConfiguration><CORSRule>")).is_none());
    }
}
