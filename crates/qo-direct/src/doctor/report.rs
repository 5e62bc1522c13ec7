//! What was found, in a form that people and programs can read.

use std::collections::BTreeMap;
use std::fmt;

use qo_core::Timestamp;
use serde::Serialize;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// As it should be.
    Ok,
    /// It was not looked at.
    Skipped,
    /// It works, and somebody should look at it.
    Warning,
    /// It does not work.
    Failed,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorCheck {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub health: Health,
    /// What was found, in a sentence.
    pub summary: String,
    /// What to do, if something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What was measured; the unit is the end of each name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, i64>,
    /// Whether nothing else can be looked at either.
    #[serde(skip)]
    is_fatal: bool,
}

impl DoctorCheck {
    pub(super) fn new(name: &'static str, health: Health, summary: impl Into<String>) -> Self {
        Self {
            name,
            health,
            summary: summary.into(),
            hint: None,
            figures: BTreeMap::new(),
            is_fatal: false,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        self
    }

    pub(super) fn figure(mut self, name: impl Into<String>, value: impl TryInto<i64>) -> Self {
        let value = value.try_into().unwrap_or(i64::MAX);
        self.figures.insert(name.into(), value);
        self
    }

    pub(super) fn fatal(mut self) -> Self {
        self.is_fatal = true;
        self
    }

    pub(super) fn ends_the_visit(&self) -> bool {
        self.is_fatal
    }
}

/// Everything that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorReport {
    /// Which store: safe to print.
    pub store: String,
    /// Where its credentials come from, never the credentials themselves.
    pub credentials: String,
    /// When, in the store's time as it was known then.
    pub at: Timestamp,
    /// In the order in which they were made.
    pub checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    /// The worst that was found.
    pub fn health(&self) -> Health {
        let healths = self.checks.iter().map(|check| check.health);
        healths.max().unwrap_or(Health::Ok)
    }

    /// The check of this name.
    pub fn check(&self, name: &str) -> Option<&DoctorCheck> {
        self.checks.iter().find(|check| check.name == name)
    }
}

impl fmt::Display for DoctorReport {
    /// A line for each check, and one for each hint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.store)?;
        for check in &self.checks {
            let health = match check.health {
                Health::Ok => "ok",
                Health::Skipped => "skipped",
                Health::Warning => "WARNING",
                Health::Failed => "FAILED",
            };
            writeln!(f, "  {health:<8} {:<12} {}", check.name, check.summary)?;
            if let Some(hint) = &check.hint {
                writeln!(f, "  {:<8} {:<12} -> {hint}", "", "")?;
            }
        }
        Ok(())
    }
}
