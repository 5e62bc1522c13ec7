//! A name for one state of one object, by which a later write says what it expects to find.

use object_store::{ObjectMeta, PutResult, UpdateVersion};

/// Names one state of one object.
///
/// It keeps both names that a store may give, because stores differ in which one they compare: S3 and Azure the entity tag,
/// Google Cloud Storage the version. Both are kept as the server sent them. A tag from a listing has no version on most
/// stores: compare it with [`Tag::matches`], but read the object before a swap.
///
/// There is deliberately no `==`: tags of the same state may differ in quoting and in whether a version is known.
#[derive(Debug, Clone, Hash)]
pub struct Tag {
    e_tag: Option<String>,
    version: Option<String>,
}

impl Tag {
    /// A tag of what the server sent; `None` if it sent neither, so that nothing could be compared.
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

    /// Whether both name the same state, however they are quoted. Whatever both know must agree.
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

/// The entity tag without the weak mark and the quotes, which some stores send in one answer and not in another.
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
    fn quotes_and_the_weak_mark_do_not_matter() {
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
    fn whatever_both_know_must_agree() {
        let both = tag(Some("a"), Some("1"));
        assert!(both.matches(&tag(Some("a"), None)));
        assert!(both.matches(&tag(None, Some("1"))));
        assert!(!both.matches(&tag(Some("a"), Some("2"))));
        assert!(!both.matches(&tag(Some("b"), Some("1"))));
        assert!(!tag(Some("a"), None).matches(&tag(None, Some("1"))));
    }

    #[test]
    fn a_store_that_names_nothing_gives_no_tag() {
        assert!(Tag::new(None, None).is_none());
    }

    #[test]
    fn a_swap_sends_both_names_as_the_server_gave_them() {
        let expected = tag(Some("W/\"a\""), Some("7")).expected();
        assert_eq!(expected.e_tag.as_deref(), Some("W/\"a\""));
        assert_eq!(expected.version.as_deref(), Some("7"));
    }
}
