//! The doctor's report, for people and programs.

use std::collections::BTreeMap;
use std::fmt;

use qo_core::Timestamp;
use serde::Serialize;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// No problem was found.
    Ok,
    /// The check did not run.
    Skipped,
    /// It works but needs attention.
    Warning,
    /// It does not work.
    Failed,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorCheck {
    /// The name of the check.
    pub name: &'static str,
    /// The result.
    pub health: Health,
    /// The finding, in one sentence.
    pub summary: String,
    /// What to do about it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Measured values. Each name ends with the unit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, i64>,
    /// Whether the remaining checks cannot run either.
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

    pub(super) fn is_fatal(&self) -> bool {
        self.is_fatal
    }
}

/// The results of all checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DoctorReport {
    /// The store's description. It contains no credentials.
    pub store: String,
    /// The source of the credentials, not the credentials themselves.
    pub credentials: String,
    /// When the checks started, in the store's time as it was known then.
    pub at: Timestamp,
    /// The checks, in the order in which they ran.
    pub checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    /// The worst result.
    pub fn health(&self) -> Health {
        let healths = self.checks.iter().map(|check| check.health);
        healths.max().unwrap_or(Health::Ok)
    }

    /// The check with this name.
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
