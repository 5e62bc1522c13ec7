//! Fields that this version does not know.
//!
//! Old and new versions of qo share a bucket during a rolling update. When an old version rewrites a record, fields
//! from a newer version must survive, so every stored record keeps its unknown fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The unknown fields of a record. The common case of none takes one word of memory.
#[expect(
    clippy::box_collection,
    reason = "a map is three words, and a task has several of these"
)]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extra(Option<Box<BTreeMap<String, Value>>>);

impl Extra {
    /// No unknown fields.
    pub const NONE: Self = Self(None);

    /// The value of an unknown field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_deref()?.get(name)
    }

    /// Adds a known field whose value this version does not know.
    pub(crate) fn insert(&mut self, name: &str, value: Value) {
        let fields = self.0.get_or_insert_default();
        fields.insert(name.to_owned(), value);
    }

    /// The names of the unknown fields.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0
            .as_deref()
            .into_iter()
            .flat_map(BTreeMap::keys)
            .map(String::as_str)
    }

    /// The number of unknown fields.
    pub fn len(&self) -> usize {
        self.0.as_deref().map_or(0, BTreeMap::len)
    }

    /// Whether there are no unknown fields.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Serialize for Extra {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.as_deref().into_iter().flatten())
    }
}

impl<'de> Deserialize<'de> for Extra {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = BTreeMap::deserialize(deserializer)?;
        Ok(Self((!fields.is_empty()).then(|| Box::new(fields))))
    }
}
