//! Identifiers of tasks, leases and operations, and the shard of a task.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::time::Timestamp;

/// A text that is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a {kind}: expected a UUID such as 550e8400-e29b-41d4-a716-446655440000")]
pub struct InvalidId {
    kind: &'static str,
    text: String,
}

macro_rules! uuid_newtype {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Creates a version 4 UUID from 128 random bits of the caller.
            pub fn from_random(random: u128) -> Self {
                Self(uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid())
            }

            /// Creates an identifier from its sixteen bytes.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// The identifier as a UUID.
            pub fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.0.as_hyphenated(), f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            /// Accepts only the hyphenated form, because ids are part of keys: each object must have one
            /// spelling.
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let invalid = || InvalidId {
                    kind: $kind,
                    text: text.chars().take(64).collect(),
                };
                if text.len() != 36 {
                    return Err(invalid());
                }
                Uuid::try_parse(text).map(Self).map_err(|_| invalid())
            }
        }
    };
}

uuid_newtype!(
    /// Identifies a task.
    TaskId,
    "task id"
);
uuid_newtype!(
    /// Identifies one claim of a task. Changing a running task's result requires it.
    LeaseId,
    "lease id"
);
uuid_newtype!(
    /// Identifies one write, so that its author can recognise it after a lost response.
    OpId,
    "operation id"
);

/// How many bits of an id follow the time: 128 less four for the shard and 44 for the milliseconds since 1970.
const TIME_SHIFT: u32 = 80;

impl TaskId {
    /// Creates an id for a task that is submitted now, from 128 random bits of the caller.
    ///
    /// The first digit is random: it is the shard. The eleven digits after it are the time in milliseconds. In each shard the ids are thus
    /// in the order of their creation, and the newest tasks of a bucket can be listed without the others. It is a version 8 UUID. Nothing
    /// relies on an id having this form, because callers choose their own.
    pub fn from_time(now: Timestamp, random: u128) -> Self {
        let millis = u128::from(now.as_millis().unsigned_abs()) & ((1 << 44) - 1);
        let time_mask = ((1_u128 << 44) - 1) << TIME_SHIFT;
        let mut bytes = ((random & !time_mask) | (millis << TIME_SHIFT)).to_be_bytes();
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Self(Uuid::from_bytes(bytes))
    }

    /// An id before all ids that [`TaskId::from_time`] creates in a shard from this time on.
    pub fn first_of(shard: Shard, from: Timestamp) -> Self {
        let millis = u128::from(from.as_millis().unsigned_abs()) & ((1 << 44) - 1);
        let bits = (u128::from(shard.index()) << 124) | (millis << TIME_SHIFT);
        Self(Uuid::from_bytes(bits.to_be_bytes()))
    }

    /// A number in the order of the times that [`TaskId::from_time`] writes into ids, across all shards. Every id has one: the number of
    /// an id that a caller chose at random means nothing.
    pub fn time_order(&self) -> u128 {
        u128::from_be_bytes(*self.0.as_bytes()).rotate_left(4)
    }

    /// The id with this [`TaskId::time_order`].
    pub fn at_time_order(order: u128) -> Self {
        Self(Uuid::from_bytes(order.rotate_right(4).to_be_bytes()))
    }

    /// The lowest [`TaskId::time_order`] of the ids that [`TaskId::from_time`] creates from this time on.
    pub fn time_order_from(from: Timestamp) -> u128 {
        let millis = u128::from(from.as_millis().unsigned_abs()) & ((1 << 44) - 1);
        millis << (TIME_SHIFT + 4)
    }

    /// The shard of this task: the first hexadecimal digit of the id.
    pub fn shard(&self) -> Shard {
        Shard(self.0.as_bytes()[0] >> 4)
    }
}

/// One of the sixteen partitions of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u8);

/// A text that is not a shard.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a shard: expected one hexadecimal digit, 0 to f")]
pub struct InvalidShard {
    text: String,
}

impl Shard {
    /// The number of shards.
    pub const COUNT: u8 = 16;

    /// All shards, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    /// The shard's number, 0 to 15.
    pub fn index(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl FromStr for Shard {
    type Err = InvalidShard;

    fn from_str(text: &str) -> Result<Self, InvalidShard> {
        match text.as_bytes() {
            [digit @ b'0'..=b'9'] => Ok(Self(digit - b'0')),
            [digit @ b'a'..=b'f'] => Ok(Self(digit - b'a' + 10)),
            _ => Err(InvalidShard {
                text: text.chars().take(64).collect(),
            }),
        }
    }
}

impl Serialize for Shard {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Shard {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_is_the_first_digit_of_the_id() {
        for shard in Shard::all() {
            let id: TaskId = format!("{shard}50e8400-e29b-41d4-a716-446655440000")
                .parse()
                .unwrap();
            assert_eq!(id.shard(), shard);
            assert_eq!(shard.to_string().parse::<Shard>().unwrap(), shard);
            assert!(id.to_string().starts_with(&shard.to_string()));
        }
    }

    #[test]
    fn generated_ids_are_in_the_order_of_their_times_across_shards() {
        let mut last = 0;
        for millis in [1_000_u64, 1_001, 1_763_238_840_123, 1_763_238_840_124] {
            for shard in Shard::all() {
                let at = Timestamp::from_millis(i64::try_from(millis).unwrap());
                let random = u128::from(shard.index()) << 124 | u128::from(millis % 7);
                let id = TaskId::from_time(at, random);
                assert_eq!(id.shard(), shard);
                assert_eq!(TaskId::at_time_order(id.time_order()), id);
                assert!(id.time_order() >= TaskId::time_order_from(at));
                assert!(id.time_order() < TaskId::time_order_from(at.plus_millis(1)));
                assert!(id.time_order() > last);
            }
            last = TaskId::time_order_from(Timestamp::from_millis(i64::try_from(millis).unwrap()));
        }
    }

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        let good = "550e8400-e29b-41d4-a716-446655440000";
        assert_eq!(good.parse::<TaskId>().unwrap().to_string(), good);
        for bad in [
            "",
            "550e8400e29b41d4a716446655440000",
            "{550e8400-e29b-41d4-a716-446655440000}",
            "../etc/passwd",
            "550e8400-e29b-41d4-a716-44665544000g",
        ] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_shard_is_one_lower_case_digit() {
        for bad in ["", "g", "A", "00", "é"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}
