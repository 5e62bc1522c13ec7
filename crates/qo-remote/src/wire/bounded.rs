//! Lists in bodies whose length is checked while they are read: a long list of short names would otherwise take many times the memory
//! of its body.

use std::fmt;
use std::marker::PhantomData;

use qo_core::TaskId;
use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{BACKGROUND_IDS_MAX, NAMES_MAX};

/// Reads a list of at most [`NAMES_MAX`] items.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(BoundedList::<T, NAMES_MAX>(PhantomData))
}

/// Reads an optional list of at most [`NAMES_MAX`] items.
pub(super) fn optional_list<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Option::<List<T>>::deserialize(deserializer)?;
    Ok(list.map(|list| list.0))
}

/// Reads a list of at most [`BACKGROUND_IDS_MAX`] task ids.
pub(super) fn ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TaskId>, D::Error> {
    deserializer.deserialize_seq(BoundedList::<TaskId, BACKGROUND_IDS_MAX>(PhantomData))
}

#[derive(Deserialize)]
#[serde(transparent)]
struct List<T>(#[serde(deserialize_with = "list", bound = "T: Deserialize<'de>")] Vec<T>);

struct BoundedList<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedList<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX {
            match list.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(items),
            }
        }
        match list.next_element::<IgnoredAny>()? {
            None => Ok(items),
            Some(IgnoredAny) => Err(A::Error::custom(format_args!(
                "a list may have at most {MAX} items"
            ))),
        }
    }
}
