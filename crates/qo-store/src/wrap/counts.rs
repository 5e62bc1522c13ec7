//! Request counts by prefix and kind, and their cost.

use std::collections::BTreeMap;
use std::fmt;

use object_store::Error;
use serde::{Deserialize, Serialize};

use super::operation::Operation;
use super::prices::Prices;

/// The maximum number of prefixes. Further ones are counted together under [`OTHER_PREFIXES`].
const PREFIXES_MAX: usize = 64;

/// The name under which prefixes beyond the first 64 are counted.
pub const OTHER_PREFIXES: &str = "other";

/// Counters of one kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Requests sent.
    pub requests: u64,
    /// Entries returned by lists, or keys in deletes.
    pub keys: u64,
    /// Bytes of request bodies.
    pub bytes_up: u64,
    /// Bytes of response bodies.
    pub bytes_down: u64,
    /// Failed conditions: 412, or the object already exists.
    pub refused: u64,
    /// Responses that the object is unchanged.
    pub not_modified: u64,
    /// Responses that the object does not exist.
    pub not_found: u64,
    /// All other failures, with or without a response. For a batch delete, each failed key counts.
    pub errors: u64,
}

impl Tally {
    fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requests: with(self.requests, other.requests),
            keys: with(self.keys, other.keys),
            bytes_up: with(self.bytes_up, other.bytes_up),
            bytes_down: with(self.bytes_down, other.bytes_down),
            refused: with(self.refused, other.refused),
            not_modified: with(self.not_modified, other.not_modified),
            not_found: with(self.not_found, other.not_found),
            errors: with(self.errors, other.errors),
        }
    }

    pub(super) fn fail(&mut self, error: &Error) {
        let counter = match error {
            Error::Precondition { .. } | Error::AlreadyExists { .. } => &mut self.refused,
            Error::NotModified { .. } => &mut self.not_modified,
            Error::NotFound { .. } => &mut self.not_found,
            _ => &mut self.errors,
        };
        *counter += 1;
    }
}

/// A snapshot of the counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts {
    by_prefix: BTreeMap<String, BTreeMap<Operation, Tally>>,
}

impl Counts {
    /// One kind of request under one first path segment, such as `tasks`; `/` is the root.
    pub fn of(&self, prefix: &str, operation: Operation) -> Tally {
        let tallies = self.by_prefix.get(prefix);
        let tally = tallies.and_then(|tallies| tallies.get(&operation));
        tally.copied().unwrap_or_default()
    }

    /// One kind of request, summed over all prefixes.
    pub fn total(&self, operation: Operation) -> Tally {
        let tallies = self.by_prefix.values();
        tallies
            .filter_map(|tallies| tallies.get(&operation))
            .fold(Tally::default(), |sum, tally| {
                sum.zip(*tally, u64::saturating_add)
            })
    }

    /// The number of requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.iter().map(|(_, _, tally)| tally.requests).sum()
    }

    /// The difference to an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = Self::default();
        for (prefix, operation, tally) in self.iter() {
            let added = tally.zip(earlier.of(prefix, operation), u64::saturating_sub);
            if added != Tally::default() {
                let tallies = since.by_prefix.entry(prefix.to_owned()).or_default();
                tallies.insert(operation, added);
            }
        }
        since
    }

    /// The cost of these requests in dollars.
    pub fn dollars(&self, prices: &Prices) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 requests")]
        let cost = |operation, tally: &Tally| tally.requests as f64 * prices.of(operation);
        self.iter()
            .map(|(_, operation, tally)| cost(operation, tally))
            .sum()
    }

    /// Every prefix and kind of request, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Operation, &Tally)> {
        self.by_prefix.iter().flat_map(|(prefix, tallies)| {
            let tallies = tallies.iter();
            tallies.map(move |(operation, tally)| (prefix.as_str(), *operation, tally))
        })
    }

    pub(super) fn tally(&mut self, prefix: &str, operation: Operation) -> &mut Tally {
        let known = self.by_prefix.contains_key(prefix);
        let prefix = if known || self.by_prefix.len() < PREFIXES_MAX {
            prefix
        } else {
            OTHER_PREFIXES
        };
        let tallies = self.by_prefix.entry(prefix.to_owned()).or_default();
        tallies.entry(operation).or_default()
    }
}

impl fmt::Display for Counts {
    /// An aligned table with a row per prefix and kind, and a total.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |prefix: &str, operation: &str, tally: &Tally| {
            let figures = [
                tally.requests,
                tally.keys,
                tally.bytes_up,
                tally.bytes_down,
                tally.refused,
                tally.not_modified,
                tally.not_found,
                tally.errors,
            ];
            let mut cells = vec![prefix.to_owned(), operation.to_owned()];
            cells.extend(figures.map(|figure| figure.to_string()));
            cells
        };
        let head = [
            "prefix",
            "request",
            "requests",
            "keys",
            "bytes up",
            "bytes down",
            "refused",
            "unmodified",
            "not found",
            "errors",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let mut sum = Tally::default();
        for (prefix, operation, tally) in self.iter() {
            rows.push(row(prefix, operation.name(), tally));
            sum = sum.zip(*tally, u64::saturating_add);
        }
        rows.push(row("total", "", &sum));
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..head.len()).map(width).collect();
        for cells in &rows {
            let aligned = cells.iter().zip(&widths).enumerate();
            // Names are left-aligned, numbers right-aligned.
            let line: Vec<_> = aligned
                .map(|(column, (cell, width))| {
                    if column < 2 {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                })
                .collect();
            writeln!(f, "{}", line.join("  "))?;
        }
        Ok(())
    }
}
