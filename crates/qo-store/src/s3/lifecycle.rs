//! Lifecycle rules as XML.
//!
//! A bucket has one document with all rules, so changing one rule rewrites all. Rules from other tools may use
//! features that [`LifecycleRule`] lacks. Each stored rule is therefore kept as its original text, which is written
//! back verbatim.

use bytes::Bytes;
use quick_xml::Reader;
use quick_xml::de::from_str;
use quick_xml::events::Event;
use serde::Deserialize;

use super::xml::{NAMESPACE, element};
use crate::admin::LifecycleRule;

/// A rule as stored in the bucket.
#[derive(Debug)]
pub(super) struct StoredRule {
    /// Its id, if it has one.
    pub(super) id: Option<String>,
    /// Its XML element, verbatim.
    pub(super) xml: String,
    /// The parsed rule, if [`LifecycleRule`] can express it.
    pub(super) parsed: Option<LifecycleRule>,
}

#[derive(Deserialize)]
struct RuleId {
    #[serde(rename = "ID")]
    id: Option<String>,
}

/// Exactly the features of [`LifecycleRule`]. A rule with any other element is not parsed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleXml {
    #[serde(rename = "ID", default)]
    id: String,
    #[serde(rename = "Status")]
    status: String,
    #[serde(rename = "Filter")]
    filter: Option<Filter>,
    #[serde(rename = "Prefix")]
    prefix: Option<String>,
    #[serde(rename = "Expiration")]
    expiration: Option<Expiration>,
    #[serde(rename = "NoncurrentVersionExpiration")]
    noncurrent: Option<Noncurrent>,
    #[serde(rename = "AbortIncompleteMultipartUpload")]
    abort: Option<Abort>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    #[serde(rename = "Prefix")]
    prefix: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expiration {
    #[serde(rename = "Days")]
    days: Option<u32>,
    #[serde(rename = "ExpiredObjectDeleteMarker", default)]
    delete_markers: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Noncurrent {
    #[serde(rename = "NoncurrentDays")]
    days: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Abort {
    #[serde(rename = "DaysAfterInitiation")]
    days: u32,
}

pub(super) fn parse(body: &Bytes) -> Option<Vec<StoredRule>> {
    let text = std::str::from_utf8(body).ok()?;
    let rules = elements(text, "Rule")?.into_iter().map(|xml| StoredRule {
        id: from_str::<RuleId>(xml).ok().and_then(|rule| rule.id),
        parsed: from_str::<RuleXml>(xml).ok().and_then(to_rule),
        xml: xml.to_owned(),
    });
    Some(rules.collect())
}

/// The texts of the elements with this name directly below the root.
fn elements<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let mut reader = Reader::from_str(text);
    let mut found = Vec::new();
    let mut depth = 0_u32;
    let mut start = None;
    loop {
        let before = usize::try_from(reader.buffer_position()).ok()?;
        match reader.read_event().ok()? {
            Event::Start(tag) => {
                if depth == 1 && tag.name().as_ref() == name.as_bytes() {
                    start = Some(before);
                }
                depth += 1;
            }
            Event::End(_) => {
                depth = depth.checked_sub(1)?;
                if depth == 1
                    && let Some(start) = start.take()
                {
                    let after = usize::try_from(reader.buffer_position()).ok()?;
                    found.push(text.get(start..after)?);
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    (depth == 0).then_some(found)
}

fn to_rule(rule: RuleXml) -> Option<LifecycleRule> {
    if rule.status != "Enabled" {
        return None;
    }
    let prefix = rule
        .filter
        .and_then(|filter| filter.prefix)
        .or(rule.prefix)
        .unwrap_or_default();
    let expiration = rule.expiration;
    Some(LifecycleRule {
        id: rule.id,
        prefix,
        expire_days: expiration.as_ref().and_then(|expiration| expiration.days),
        expire_noncurrent_days: rule.noncurrent.map(|noncurrent| noncurrent.days),
        expire_delete_markers: expiration.is_some_and(|expiration| expiration.delete_markers),
        abort_multipart_days: rule.abort.map(|abort| abort.days),
    })
}

/// The rule with its prefix relative to the store's prefix. `None` if it applies to keys outside the store.
pub(super) fn under_prefix(
    rule: LifecycleRule,
    strip: impl Fn(&str) -> Option<String>,
) -> Option<LifecycleRule> {
    let prefix = strip(&rule.prefix)?;
    Some(LifecycleRule { prefix, ..rule })
}

/// The document with these rules and, verbatim, the kept ones.
///
/// An expiration in S3 has either days or delete markers. If both are requested, the days are written, because S3
/// then also removes delete markers that hide no version.
pub(super) fn write(rules: &[LifecycleRule], kept: &[String]) -> String {
    let mut document = format!(r#"<LifecycleConfiguration xmlns="{NAMESPACE}">"#);
    for rule in rules {
        document.push_str("<Rule>");
        element(&mut document, "ID", &rule.id);
        document.push_str("<Filter>");
        element(&mut document, "Prefix", &rule.prefix);
        document.push_str("</Filter><Status>Enabled</Status>");
        if let Some(days) = rule.expire_days {
            nested(&mut document, "Expiration", "Days", &days.to_string());
        } else if rule.expire_delete_markers {
            nested(
                &mut document,
                "Expiration",
                "ExpiredObjectDeleteMarker",
                "true",
            );
        }
        if let Some(days) = rule.expire_noncurrent_days {
            nested(
                &mut document,
                "NoncurrentVersionExpiration",
                "NoncurrentDays",
                &days.to_string(),
            );
        }
        if let Some(days) = rule.abort_multipart_days {
            nested(
                &mut document,
                "AbortIncompleteMultipartUpload",
                "DaysAfterInitiation",
                &days.to_string(),
            );
        }
        document.push_str("</Rule>");
    }
    for rule in kept {
        document.push_str(rule);
    }
    document.push_str("</LifecycleConfiguration>");
    document
}

fn nested(document: &mut String, outer: &str, inner: &str, text: &str) {
    document.push('<');
    document.push_str(outer);
    document.push('>');
    element(document, inner, text);
    document.push_str("</");
    document.push_str(outer);
    document.push('>');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(id: &str) -> LifecycleRule {
        LifecycleRule {
            id: id.to_owned(),
            prefix: "ready/<&>".to_owned(),
            expire_days: None,
            expire_noncurrent_days: Some(1),
            expire_delete_markers: true,
            abort_multipart_days: Some(7),
        }
    }

    #[test]
    fn rules_round_trip() {
        let days = LifecycleRule {
            expire_days: Some(30),
            expire_delete_markers: false,
            ..rule("qo-days")
        };
        let rules = vec![rule("qo-index"), days];
        let stored = parse(&Bytes::from(write(&rules, &[]))).unwrap();
        let known: Vec<_> = stored
            .into_iter()
            .map(|rule| rule.parsed.unwrap())
            .collect();
        assert_eq!(known, rules);
    }

    #[test]
    fn rules_of_other_tools_are_kept_verbatim() {
        let foreign = r"<Rule><ID>cold &amp; cheap</ID><Filter><And><Prefix>a</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></And></Filter><Status>Enabled</Status><Transition><Days>30</Days><StorageClass>GLACIER</StorageClass></Transition></Rule>";
        let disabled = "<Rule>\n <ID>off</ID> <Prefix/> <Status>Disabled</Status><Expiration><Days>1</Days></Expiration></Rule>";
        let document = format!(
            r#"<?xml version="1.0"?><LifecycleConfiguration xmlns="{NAMESPACE}"> {foreign}{disabled} </LifecycleConfiguration>"#
        );
        let stored = parse(&Bytes::from(document)).unwrap();
        assert_eq!(stored.len(), 2);
        assert_eq!(stored[0].id.as_deref(), Some("cold & cheap"));
        assert!(stored.iter().all(|rule| rule.parsed.is_none()));
        let kept: Vec<String> = stored.into_iter().map(|rule| rule.xml).collect();
        assert_eq!(kept, [foreign, disabled]);
        let again = write(&[rule("qo-index")], &kept);
        assert!(again.contains(foreign) && again.contains(disabled));
        assert_eq!(parse(&Bytes::from(again)).unwrap().len(), 3);
    }

    #[test]
    fn old_rules_have_their_prefix_outside_of_a_filter() {
        let document = "<LifecycleConfiguration><Rule><ID>a</ID><Prefix>logs/</Prefix><Status>Enabled</Status><Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>";
        let stored = parse(&Bytes::from(document)).unwrap();
        let known = stored[0].parsed.as_ref().unwrap();
        assert_eq!(
            (known.prefix.as_str(), known.expire_days),
            ("logs/", Some(3))
        );
    }

    #[test]
    fn hostile_documents_are_none() {
        for text in ["<", "<a><b></a>", "<LifecycleConfiguration><Rule>", "</a>"] {
            assert!(parse(&Bytes::from(text)).is_none(), "{text}");
        }
        assert_eq!(
            parse(&Bytes::from("<LifecycleConfiguration/>"))
                .unwrap()
                .len(),
            0
        );
    }
}
