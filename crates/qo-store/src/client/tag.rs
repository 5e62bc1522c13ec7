//! An identifier of one state of an object, used as the condition of a later write.

use object_store::{ObjectMeta, PutResult, UpdateVersion};

/// Identifies one state of one object.
///
/// It contains both the entity tag and the version, because stores compare different ones: S3 and Azure compare the
/// entity tag, Google Cloud Storage the version. Both are kept verbatim. On most stores a tag from a listing has no
/// version: compare it with [`Tag::matches`], but read the object before a swap.
///
/// `==` is deliberately missing: tags of the same state may differ in quoting and in whether the version is known.
#[derive(Debug, Clone, Hash)]
pub struct Tag {
    e_tag: Option<String>,
    version: Option<String>,
}

impl Tag {
    /// A tag from the values in a response. `None` if the response has neither, because then nothing could be
    /// compared.
    pub fn new(e_tag: Option<String>, version: Option<String>) -> Option<Self> {
        (e_tag.is_some() || version.is_some()).then_some(Self { e_tag, version })
    }

    /// The entity tag as the server sent it.
    pub fn e_tag(&self) -> Option<&str> {
        self.e_tag.as_deref()
    }

    /// The version as the server sent it.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Whether both tags identify the same state, ignoring quotes. Values that both have must be equal.
    pub fn matches(&self, other: &Self) -> bool {
        let e_tags = self.e_tag.as_deref().zip(other.e_tag.as_deref());
        let versions = self.version.as_deref().zip(other.version.as_deref());
        let known = e_tags.is_some() || versions.is_some();
        known
            && e_tags.is_none_or(|(a, b)| bare(a) == bare(b))
            && versions.is_none_or(|(a, b)| a == b)
    }

    pub(super) fn of_put(result: PutResult) -> Option<Self> {
        Self::new(result.e_tag, result.version)
    }

    pub(super) fn of_meta(meta: &ObjectMeta) -> Option<Self> {
        Self::new(meta.e_tag.clone(), meta.version.clone())
    }

    pub(super) fn expected(&self) -> UpdateVersion {
        UpdateVersion {
            e_tag: self.e_tag.clone(),
            version: self.version.clone(),
        }
    }
}

/// The entity tag without the weak prefix and quotes, which some stores send inconsistently.
fn bare(e_tag: &str) -> &str {
    let strong = e_tag.strip_prefix("W/").unwrap_or(e_tag);
    strong
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(strong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(e_tag: Option<&str>, version: Option<&str>) -> Tag {
        Tag::new(e_tag.map(str::to_owned), version.map(str::to_owned)).unwrap()
    }

    #[test]
    fn quotes_and_the_weak_prefix_are_ignored() {
        let plain = tag(Some("abc"), None);
        for same in ["abc", "\"abc\"", "W/\"abc\""] {
            assert!(plain.matches(&tag(Some(same), None)), "{same}");
            assert!(tag(Some(same), None).matches(&plain), "{same}");
        }
        for other in ["abd", "\"abc", "\"\"abc\"\"", ""] {
            assert!(!plain.matches(&tag(Some(other), None)), "{other}");
        }
    }

    #[test]
    fn values_in_both_tags_must_be_equal() {
        let both = tag(Some("a"), Some("1"));
        assert!(both.matches(&tag(Some("a"), None)));
        assert!(both.matches(&tag(None, Some("1"))));
        assert!(!both.matches(&tag(Some("a"), Some("2"))));
        assert!(!both.matches(&tag(Some("b"), Some("1"))));
        assert!(!tag(Some("a"), None).matches(&tag(None, Some("1"))));
    }

    #[test]
    fn neither_value_gives_no_tag() {
        assert!(Tag::new(None, None).is_none());
    }

    #[test]
    fn a_swap_sends_both_values_verbatim() {
        let expected = tag(Some("W/\"a\""), Some("7")).expected();
        assert_eq!(expected.e_tag.as_deref(), Some("W/\"a\""));
        assert_eq!(expected.version.as_deref(), Some("7"));
    }
}
