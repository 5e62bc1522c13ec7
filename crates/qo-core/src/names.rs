//! User-chosen names that are part of keys, as validated newtypes.
//!
//! A name in a key must be the same text in every store, must not contain a separator, and must not escape its
//! prefix. All names therefore share one strict alphabet.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::cut_text;

/// The maximum length of a name in bytes.
pub const NAME_MAX_BYTES: usize = 64;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a {kind}: {problem}; use 1 to 64 letters, digits, '_', '-' or '.', not starting with '.'"
)]
pub struct InvalidName {
    kind: &'static str,
    text: String,
    problem: &'static str,
}

fn check_name(kind: &'static str, text: &str) -> Result<(), InvalidName> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let problem = if text.is_empty() {
        "it is empty"
    } else if text.len() > NAME_MAX_BYTES {
        "it is too long"
    } else if text.starts_with('.') {
        "it starts with a dot"
    } else if !text.bytes().all(allowed) {
        "it contains a character that is not allowed"
    } else {
        return Ok(());
    };
    Err(InvalidName {
        kind,
        text: text.chars().take(NAME_MAX_BYTES).collect(),
        problem,
    })
}

/// Defines a newtype of validated text.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $error:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates the text.
            pub fn new(text: &str) -> Result<Self, $error> {
                $check(text)?;
                Ok(Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Defines names, each with what errors call it.
macro_rules! names {
    ($($(#[doc = $doc:literal])* $name:ident: $noun:literal,)*) => {
        $(checked_text!(
            $(#[doc = $doc])*
            $name,
            InvalidName,
            |text| check_name($noun, text)
        );)*
    };
}

names!(
    /// The kind of work of a task, such as `send_email`. It selects the handler.
    TaskType: "task type",
    /// The queue of a task.
    QueueName: "queue name",
    /// The name of a worker process.
    WorkerId: "worker id",
    /// The name of a document, such as a schedule.
    DocumentName: "name",
    /// What limits may apply to, given at the submit: a tenant, an account of an API.
    LimitKey: "limit key",
    /// Whose turn it is: the groups of a queue, such as its tenants, are served in turn.
    FairnessGroup: "group",
);

impl Default for QueueName {
    /// The queue of tasks without an explicit one.
    fn default() -> Self {
        Self("default".into())
    }
}

impl DocumentName {
    /// The name of the document about a queue. Both have the same rules.
    pub fn of_queue(queue: &QueueName) -> Self {
        Self(Arc::clone(&queue.0))
    }
}

impl QueueName {
    /// The queue that a document is about.
    pub fn of_document(name: &DocumentName) -> Self {
        Self(Arc::clone(&name.0))
    }
}

/// Why a text is not a tag, an idempotency key or an ordering key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not {kind}: use 1 to {max} bytes without control characters")]
pub struct InvalidLabel {
    kind: &'static str,
    text: String,
    max: usize,
}

/// The maximum length of a tag in bytes.
pub const TAG_MAX_BYTES: usize = 64;
/// The maximum length of an actor's name in bytes.
pub const ACTOR_MAX_BYTES: usize = 128;
/// The maximum length of an idempotency key in bytes.
pub const IDEMPOTENCY_KEY_MAX_BYTES: usize = 256;
/// The maximum length of an ordering key in bytes.
pub const ORDERING_KEY_MAX_BYTES: usize = 256;

fn check_label(kind: &'static str, text: &str, max: usize) -> Result<(), InvalidLabel> {
    if (1..=max).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(());
    }
    let text = text.chars().take(64).collect();
    Err(InvalidLabel { kind, text, max })
}

/// Defines labels, each with what errors call it and its maximum length.
macro_rules! labels {
    ($($(#[doc = $doc:literal])* $name:ident: $noun:literal up to $max:ident,)*) => {
        $(checked_text!(
            $(#[doc = $doc])*
            $name,
            InvalidLabel,
            |text| check_label($noun, text, $max)
        );)*
    };
}

labels!(
    /// A user-defined label of a task, for searching. It is never part of a key.
    Tag: "a tag" up to TAG_MAX_BYTES,
    /// Who requested a change of a task, for people to read: a user at a machine, a token's name. It is never part of a key.
    Actor: "an actor" up to ACTOR_MAX_BYTES,
    /// Identifies duplicate submits. It is never part of a key verbatim.
    IdempotencyKey: "an idempotency key" up to IDEMPOTENCY_KEY_MAX_BYTES,
    /// Tasks of one queue with the same ordering key run one at a time, in submit order. It is never part of a key verbatim.
    OrderingKey: "an ordering key" up to ORDERING_KEY_MAX_BYTES,
);

impl Actor {
    /// An actor from any text: control characters are replaced, and a long text is truncated. `None` if the text is empty.
    pub fn from_text(text: &str) -> Option<Self> {
        let printable = text.trim().chars();
        let printable: String = printable
            .map(|character| {
                if character.is_control() {
                    '?'
                } else {
                    character
                }
            })
            .collect();
        Self::new(&cut_text(&printable, ACTOR_MAX_BYTES)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_accepted() {
        let longest = "x".repeat(NAME_MAX_BYTES);
        for good in ["a", "send_email", "v1.2-beta", "0", "a.b", longest.as_str()] {
            assert_eq!(TaskType::new(good).unwrap().as_str(), good);
            assert_eq!(QueueName::new(good).unwrap().as_str(), good);
            assert_eq!(WorkerId::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        let too_long = "x".repeat(NAME_MAX_BYTES + 1);
        for bad in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "a b",
            "ä",
            "a\0",
            "a\n",
            "%2e",
            too_long.as_str(),
        ] {
            assert!(TaskType::new(bad).is_err(), "{bad:?}");
            assert!(
                serde_json::from_str::<QueueName>(&serde_json::to_string(bad).unwrap()).is_err()
            );
        }
    }

    #[test]
    fn an_error_says_what_is_wrong_and_what_is_expected() {
        let text = TaskType::new("a/b").unwrap_err().to_string();
        assert!(
            text.contains("task type") && text.contains("not allowed") && text.contains("1 to 64"),
            "{text}"
        );
    }

    #[test]
    fn labels_are_short_printable_text() {
        assert!(Tag::new("customer: Ünal & söhne").is_ok());
        assert!(Tag::new("").is_err());
        assert!(Tag::new("a\nb").is_err());
        assert!(Tag::new(&"x".repeat(65)).is_err());
        assert!(IdempotencyKey::new(&"x".repeat(256)).is_ok());
        assert!(IdempotencyKey::new(&"x".repeat(257)).is_err());
        assert!(OrderingKey::new(&"x".repeat(256)).is_ok());
        assert!(OrderingKey::new(&"x".repeat(257)).is_err());
        assert!(OrderingKey::new("").is_err());
    }

    #[test]
    fn any_text_but_none_names_an_actor() {
        let named = |text: &str| Actor::from_text(text).map(|actor| actor.to_string());
        assert_eq!(named(" ada@laptop\n").as_deref(), Some("ada@laptop"));
        assert_eq!(named("a\tb").as_deref(), Some("a?b"));
        assert_eq!(named(" \n"), None);
        assert!(named(&"ä".repeat(500)).is_some_and(|name| name.ends_with('…')));
    }
}
