//! The report of a probe, for people and programs. It is stored in the bucket.

use std::fmt;

use qo_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::admin::Versioning;

/// The format of [`ProbeReport`] that this version writes. A report in another format is discarded and the probe
/// repeated.
pub const REPORT_FORMAT: u32 = 1;

/// A property that a store must or should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckName {
    /// A create succeeds if the object does not exist and is refused if it does.
    CreateRefusesExisting,
    /// A swap with the current tag succeeds and changes the tag.
    SwapAcceptsCurrentTag,
    /// A swap with an outdated tag is refused and changes nothing.
    SwapRefusesStaleTag,
    /// A swap of a missing object is refused and creates nothing.
    SwapRefusesMissing,
    /// Whether equal bytes have equal tags. Both are correct; qo makes its bytes differ.
    EqualBytes,
    /// A list includes new objects and omits deleted ones.
    ListIsCurrent,
    /// Several objects can be deleted in one request.
    BatchDelete,
    /// A read can be conditional on a change.
    ConditionalGet,
    /// If several writers create the same key concurrently, exactly one wins, and its bytes are stored.
    CreateRace,
    /// If several writers swap the same object concurrently, exactly one wins, and its bytes are stored.
    SwapRace,
    /// The stored counter equals the number of successful swaps.
    SwapCounter,
}

impl CheckName {
    /// Every check, in the order of the report.
    pub const ALL: [Self; 11] = [
        Self::CreateRefusesExisting,
        Self::SwapAcceptsCurrentTag,
        Self::SwapRefusesStaleTag,
        Self::SwapRefusesMissing,
        Self::EqualBytes,
        Self::ListIsCurrent,
        Self::BatchDelete,
        Self::ConditionalGet,
        Self::CreateRace,
        Self::SwapRace,
        Self::SwapCounter,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateRefusesExisting => "create_refuses_existing",
            Self::SwapAcceptsCurrentTag => "swap_accepts_current_tag",
            Self::SwapRefusesStaleTag => "swap_refuses_stale_tag",
            Self::SwapRefusesMissing => "swap_refuses_missing",
            Self::EqualBytes => "equal_bytes",
            Self::ListIsCurrent => "list_is_current",
            Self::BatchDelete => "batch_delete",
            Self::ConditionalGet => "conditional_get",
            Self::CreateRace => "create_race",
            Self::SwapRace => "swap_race",
            Self::SwapCounter => "swap_counter",
        }
    }

    /// Whether a store must pass this check.
    fn is_required(self) -> bool {
        !matches!(self, Self::EqualBytes | Self::ConditionalGet)
    }
}

impl fmt::Display for CheckName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// The store behaved correctly.
    Passed,
    /// The store behaved incorrectly.
    Failed,
    /// Not run, because an earlier check failed.
    Skipped,
}

/// A check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The check.
    pub name: CheckName,
    /// Its result.
    pub outcome: CheckOutcome,
    /// Whether a failure makes the store unusable.
    pub required: bool,
    /// The reason, as a sentence.
    pub reason: String,
}

impl Check {
    pub(super) fn new(name: CheckName, outcome: CheckOutcome, reason: impl Into<String>) -> Self {
        Self {
            name,
            outcome,
            required: name.is_required(),
            reason: reason.into(),
        }
    }

    pub(super) fn passed(name: CheckName, reason: impl Into<String>) -> Self {
        Self::new(name, CheckOutcome::Passed, reason)
    }

    pub(super) fn failed(name: CheckName, reason: impl Into<String>) -> Self {
        Self::new(name, CheckOutcome::Failed, reason)
    }
}

/// The bucket's versioning during the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbedVersioning {
    /// Never enabled.
    Off,
    /// Enabled.
    On,
    /// Disabled after having been enabled.
    Suspended,
    /// Unknown.
    #[default]
    Unknown,
}

impl From<Option<Versioning>> for ProbedVersioning {
    fn from(versioning: Option<Versioning>) -> Self {
        match versioning {
            Some(Versioning::Off) => Self::Off,
            Some(Versioning::On) => Self::On,
            Some(Versioning::Suspended) => Self::Suspended,
            None => Self::Unknown,
        }
    }
}

/// Statistics of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// The maximum number of concurrent writers.
    pub writers_max: u32,
    /// Create races with at least one winner.
    pub create_rounds: u32,
    /// Swap races with at least one winner.
    pub swap_rounds: u32,
    /// Races without a winner, which prove nothing.
    pub undecided_rounds: u32,
    /// The maximum number of winners of one race: 1 if the store is correct.
    pub winners_max: u32,
    /// Whether rewriting equal bytes changes the tag, if known.
    pub equal_bytes_change_tag: Option<bool>,
    /// The duration of the probe in milliseconds.
    pub duration_ms: u64,
    /// The number of object requests.
    pub requests: u64,
}

/// Whether a bucket is safe for a queue, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProbeReport {
    /// The format of this report; see [`REPORT_FORMAT`].
    pub format: u32,
    /// Whether every required check passed.
    pub trusted: bool,
    /// When the probe ended, by the local clock.
    pub probed_at: Timestamp,
    /// The store's time during the probe, from the modification time of an object. A report that was stored much
    /// later than this was copied from another bucket.
    pub store_time: Option<Timestamp>,
    /// The version of qo that wrote the report.
    pub qo_version: String,
    /// The versioning that the report is valid for: some stores are correct only without it.
    pub versioning: ProbedVersioning,
    /// All checks.
    pub checks: Vec<Check>,
    /// Statistics.
    pub figures: Figures,
}

impl ProbeReport {
    /// Orders the checks, adds those that did not run, and decides whether the bucket is trusted.
    pub(super) fn new(
        found: &[Check],
        versioning: ProbedVersioning,
        figures: Figures,
        probed_at: Timestamp,
        store_time: Option<Timestamp>,
    ) -> Self {
        let checks: Vec<_> = CheckName::ALL
            .into_iter()
            .map(|name| {
                let mut same = found.iter().filter(|check| check.name == name);
                // A check can run more than once. One failure is enough.
                let failed = same
                    .clone()
                    .find(|check| check.outcome == CheckOutcome::Failed);
                let check = failed.or_else(|| same.next()).cloned();
                check.unwrap_or_else(|| {
                    let reason = "not run, because an earlier check failed";
                    Check::new(name, CheckOutcome::Skipped, reason)
                })
            })
            .collect();
        let mut required = checks.iter().filter(|check| check.required);
        Self {
            format: REPORT_FORMAT,
            trusted: required.all(|check| check.outcome == CheckOutcome::Passed),
            probed_at,
            store_time,
            qo_version: env!("CARGO_PKG_VERSION").to_owned(),
            versioning,
            checks,
            figures,
        }
    }

    /// The required checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        let checks = self.checks.iter();
        checks.filter(|check| check.required && check.outcome == CheckOutcome::Failed)
    }

    /// What is wrong and what to do about it, in two lines.
    pub(super) fn refusal(&self) -> String {
        let failures: Vec<_> = self
            .failures()
            .map(|check| format!("{} ({})", check.reason, check.name))
            .collect();
        let found = if failures.is_empty() {
            "not every required check could run".to_owned()
        } else {
            failures.join("; ")
        };
        let unversioned = if self.versioning == ProbedVersioning::On {
            " Some stores are correct without versioning: try a bucket that never had it enabled."
        } else {
            ""
        };
        format!(
            "this bucket would lose or duplicate tasks: {found}.\nUse a store with correct conditional writes, such as \
             AWS S3, Cloudflare R2, SeaweedFS or sqlite:PATH.{unversioned}"
        )
    }
}

impl fmt::Display for ProbeReport {
    /// A summary line, and a line for each check.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = if self.trusted {
            "trusted"
        } else {
            "not trusted"
        };
        writeln!(
            f,
            "{summary}: {} create and {} swap races of up to {} writers, {} requests in {} ms",
            self.figures.create_rounds,
            self.figures.swap_rounds,
            self.figures.writers_max,
            self.figures.requests,
            self.figures.duration_ms,
        )?;
        for check in &self.checks {
            let outcome = match check.outcome {
                CheckOutcome::Passed => "ok",
                CheckOutcome::Failed if check.required => "FAILED",
                CheckOutcome::Failed => "missing",
                CheckOutcome::Skipped => "skipped",
            };
            writeln!(f, "  {outcome:<8} {:<24} {}", check.name, check.reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(found: &[Check]) -> ProbeReport {
        let (versioning, time) = (ProbedVersioning::On, Timestamp::MIN);
        ProbeReport::new(found, versioning, Figures::default(), time, None)
    }

    fn all_passed() -> Vec<Check> {
        CheckName::ALL
            .map(|name| Check::passed(name, "fine"))
            .to_vec()
    }

    #[test]
    fn only_required_checks_decide_and_one_failure_is_enough() {
        assert!(report(&all_passed()).trusted);
        for name in CheckName::ALL {
            let mut found = all_passed();
            found.push(Check::failed(name, "broken"));
            let report = report(&found);
            assert_eq!(report.trusted, !name.is_required(), "{name}");
            assert_eq!(report.checks.len(), CheckName::ALL.len());
        }
    }

    #[test]
    fn a_check_that_did_not_run_is_not_trusted() {
        let report = report(&all_passed()[..9]);
        assert!(!report.trusted);
        assert_eq!(report.checks[10].outcome, CheckOutcome::Skipped);
    }

    #[test]
    fn json_uses_the_displayed_names_and_round_trips() {
        for name in CheckName::ALL {
            assert_eq!(serde_json::to_value(name).unwrap(), name.name());
        }
        let report = report(&all_passed());
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<ProbeReport>(&json).unwrap(), report);
    }

    #[test]
    fn a_refusal_names_the_check_and_what_to_do() {
        let failed = Check::failed(CheckName::SwapRace, "2 of 2 writers won");
        let refusal = report(&[failed]).refusal();
        assert!(
            refusal.contains("2 of 2 writers won (swap_race)"),
            "{refusal}"
        );
        assert!(
            refusal.contains("SeaweedFS") && refusal.contains("versioning"),
            "{refusal}"
        );
        assert_eq!(refusal.lines().count(), 2);
    }
}
