//! What the probe found, in a form that people and programs can read, and that is remembered in the bucket.

use std::fmt;

use qo_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::admin::Versioning;

/// The form of [`Verdict`] that this version writes. A verdict in any other form is made anew.
pub const VERDICT_FORMAT: u32 = 1;

/// One thing that a store must, or should, get right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckName {
    /// A create where nothing is succeeds, and one where something is is refused.
    CreateRefusesExisting,
    /// A swap with the current tag succeeds and changes the tag.
    SwapAcceptsCurrentTag,
    /// A swap with an outdated tag is refused and changes nothing.
    SwapRefusesStaleTag,
    /// A swap where nothing is is refused and makes nothing.
    SwapRefusesMissing,
    /// Whether equal bytes get an equal tag. Either is right; qo makes its bytes differ.
    EqualBytes,
    /// A list shows what was just written and not what was just deleted.
    ListIsCurrent,
    /// Many objects can be deleted at once.
    BatchDelete,
    /// A read can be made to answer only if something changed.
    ConditionalGet,
    /// Of writers who create one key at once exactly one wins, and its bytes are stored.
    CreateRace,
    /// Of writers who swap one object at once exactly one wins, and its bytes are stored.
    SwapRace,
    /// As many swaps are stored as were won.
    SwapCounter,
}

impl CheckName {
    /// Every check, in the order in which a verdict lists them.
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

    /// The name that JSON uses.
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

    /// Whether a store that fails this may still be used.
    fn is_required(self) -> bool {
        !matches!(self, Self::EqualBytes | Self::ConditionalGet)
    }
}

impl fmt::Display for CheckName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The store got it right.
    Passed,
    /// The store got it wrong.
    Failed,
    /// It was not tried, because something before it failed.
    Skipped,
}

/// One check and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: CheckName,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the store is refused if this did not pass.
    pub required: bool,
    /// Why, in a sentence.
    pub reason: String,
}

impl Check {
    pub(super) fn new(name: CheckName, outcome: Outcome, reason: impl Into<String>) -> Self {
        Self {
            name,
            outcome,
            required: name.is_required(),
            reason: reason.into(),
        }
    }

    pub(super) fn passed(name: CheckName, reason: impl Into<String>) -> Self {
        Self::new(name, Outcome::Passed, reason)
    }

    pub(super) fn failed(name: CheckName, reason: impl Into<String>) -> Self {
        Self::new(name, Outcome::Failed, reason)
    }
}

/// Whether the bucket kept versions while it was probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbedVersioning {
    /// It never did.
    Off,
    /// It did.
    On,
    /// It once did.
    Suspended,
    /// The store could not be asked, or did not say.
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

/// How much the probe did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// The most writers that raced at once.
    pub writers_max: u32,
    /// Races of creates that ended with a winner, or with too many.
    pub create_rounds: u32,
    /// Races of swaps that ended with a winner, or with too many.
    pub swap_rounds: u32,
    /// Races without a winner, which prove nothing.
    pub undecided_rounds: u32,
    /// The most winners of one race: 1, if the store is right.
    pub winners_max: u32,
    /// Whether equal bytes written again get another tag, if that was found out.
    pub equal_bytes_change_tag: Option<bool>,
    /// How long the probe took.
    pub duration_ms: u64,
    /// How many requests for objects it sent.
    pub requests: u64,
}

/// Whether a bucket can be trusted, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The form of this record, see [`VERDICT_FORMAT`].
    pub format: u32,
    /// Whether every required check passed.
    pub trusted: bool,
    /// When the probe ended, by the prober's clock.
    pub probed_at: Timestamp,
    /// The store's own clock during the probe, from the time that it put on an object. A remembered verdict that was
    /// stored much later than this was copied here from elsewhere.
    pub store_time: Option<Timestamp>,
    /// The version of qo that made it.
    pub qo_version: String,
    /// The state of the bucket that it holds for: some stores are right on a plain bucket and wrong on a versioned one.
    pub versioning: ProbedVersioning,
    /// All checks.
    pub checks: Vec<Check>,
    /// How much was done.
    pub figures: Figures,
}

impl Verdict {
    /// Puts the checks in order, notes those that were not tried, and judges.
    pub(super) fn judge(
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
                // A check can be made more than once; one failure is enough.
                let failed = same.clone().find(|check| check.outcome == Outcome::Failed);
                let check = failed.or_else(|| same.next()).cloned();
                check.unwrap_or_else(|| {
                    let reason = "it was not tried, because an earlier check failed";
                    Check::new(name, Outcome::Skipped, reason)
                })
            })
            .collect();
        let mut required = checks.iter().filter(|check| check.required);
        Self {
            format: VERDICT_FORMAT,
            trusted: required.all(|check| check.outcome == Outcome::Passed),
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
        checks.filter(|check| check.required && check.outcome == Outcome::Failed)
    }

    /// What is wrong and what to do about it, in two lines.
    pub(super) fn refusal(&self) -> String {
        let failures: Vec<_> = self
            .failures()
            .map(|check| format!("{} ({})", check.reason, check.name))
            .collect();
        let found = if failures.is_empty() {
            "not every required check could be made".to_owned()
        } else {
            failures.join("; ")
        };
        let unversioned = if self.versioning == ProbedVersioning::On {
            " Some stores are right once versioning is off: try a bucket that never had it on."
        } else {
            ""
        };
        format!(
            "this bucket would lose or duplicate tasks: {found}.\nUse a store whose conditional writes hold, such as \
             AWS S3, Cloudflare R2, SeaweedFS or sqlite:PATH.{unversioned}"
        )
    }
}

impl fmt::Display for Verdict {
    /// A line for the verdict and one for each check.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.trusted {
            "trusted"
        } else {
            "not trusted"
        };
        writeln!(
            f,
            "{verdict}: {} create and {} swap races of up to {} writers, {} requests in {} ms",
            self.figures.create_rounds,
            self.figures.swap_rounds,
            self.figures.writers_max,
            self.figures.requests,
            self.figures.duration_ms,
        )?;
        for check in &self.checks {
            let outcome = match check.outcome {
                Outcome::Passed => "ok",
                Outcome::Failed if check.required => "FAILED",
                Outcome::Failed => "lacking",
                Outcome::Skipped => "skipped",
            };
            writeln!(f, "  {outcome:<8} {:<24} {}", check.name, check.reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(found: &[Check]) -> Verdict {
        let (versioning, time) = (ProbedVersioning::On, Timestamp::MIN);
        Verdict::judge(found, versioning, Figures::default(), time, None)
    }

    fn all_passed() -> Vec<Check> {
        CheckName::ALL
            .map(|name| Check::passed(name, "fine"))
            .to_vec()
    }

    #[test]
    fn only_required_checks_decide_and_one_failure_is_enough() {
        assert!(judged(&all_passed()).trusted);
        for name in CheckName::ALL {
            let mut found = all_passed();
            found.push(Check::failed(name, "broken"));
            let verdict = judged(&found);
            assert_eq!(verdict.trusted, !name.is_required(), "{name}");
            assert_eq!(verdict.checks.len(), CheckName::ALL.len());
        }
    }

    #[test]
    fn what_was_not_tried_is_not_trusted() {
        let verdict = judged(&all_passed()[..9]);
        assert!(!verdict.trusted);
        assert_eq!(verdict.checks[10].outcome, Outcome::Skipped);
    }

    #[test]
    fn json_uses_the_names_that_people_see_and_round_trips() {
        for name in CheckName::ALL {
            assert_eq!(serde_json::to_value(name).unwrap(), name.name());
        }
        let verdict = judged(&all_passed());
        let json = serde_json::to_string(&verdict).unwrap();
        assert_eq!(serde_json::from_str::<Verdict>(&json).unwrap(), verdict);
    }

    #[test]
    fn a_refusal_names_the_check_and_what_to_do() {
        let failed = Check::failed(CheckName::SwapRace, "2 of 2 writers won");
        let refusal = judged(&[failed]).refusal();
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
