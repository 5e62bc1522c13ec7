//! The rules in `deny.toml`.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// The settings that the built-in check understands. It refuses others, so that none is ignored silently.
///
/// `unused-allowed-license` and `multiple-versions` can only warn, and `advisories` is a step of its own, so the check reads none of them.
const UNDERSTOOD: [(&str, &[&str]); 5] = [
    ("graph", &["all-features"]),
    ("licenses", &["allow", "unused-allowed-license"]),
    (
        "bans",
        &["multiple-versions", "wildcards", "allow-wildcard-paths"],
    ),
    ("sources", &["unknown-registry", "unknown-git"]),
    ("advisories", &["yanked"]),
];

/// The part of `deny.toml` that the built-in check enforces.
#[derive(Debug, Deserialize)]
pub(super) struct Policy {
    #[serde(default)]
    pub(super) graph: Graph,
    pub(super) licenses: Licenses,
    #[serde(default)]
    pub(super) bans: Bans,
    #[serde(default)]
    pub(super) sources: Sources,
}

/// Which features the dependencies are resolved with.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Graph {
    pub(super) all_features: bool,
}

/// Allowed licences.
#[derive(Debug, Deserialize)]
pub(super) struct Licenses {
    pub(super) allow: BTreeSet<String>,
}

/// Rules for version requirements.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Bans {
    pub(super) wildcards: Level,
    pub(super) allow_wildcard_paths: bool,
}

/// Rules for where dependencies come from.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Sources {
    pub(super) unknown_registry: Level,
    pub(super) unknown_git: Level,
}

/// How strictly a rule is enforced.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Deny,
    #[default]
    Warn,
    Allow,
}

impl Policy {
    /// Parses the text of `deny.toml`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse().context("deny.toml is not valid TOML")?;
        for (section, settings) in &table {
            let known = UNDERSTOOD.iter().find(|(name, _)| name == section);
            let Some((_, known)) = known else {
                bail!("deny.toml: the built-in check does not support the section `{section}`");
            };
            let settings = settings
                .as_table()
                .with_context(|| format!("deny.toml: `{section}` is not a section"))?;
            if let Some(unknown) = settings.keys().find(|key| !known.contains(&key.as_str())) {
                bail!("deny.toml: the built-in check does not support `{section}.{unknown}`");
            }
        }
        table
            .try_into()
            .context("deny.toml does not have the expected form")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projects_own_rules_are_understood() {
        let policy = Policy::parse(include_str!("../../../deny.toml")).unwrap();
        assert!(policy.graph.all_features);
        assert!(policy.licenses.allow.contains("MIT"));
        assert_eq!(policy.bans.wildcards, Level::Deny);
        assert!(policy.bans.allow_wildcard_paths);
        assert_eq!(policy.sources.unknown_registry, Level::Deny);
        assert_eq!(policy.sources.unknown_git, Level::Deny);
    }

    #[test]
    fn rules_that_the_check_cannot_enforce_are_an_error() {
        for (text, named) in [
            (
                "[licenses]\nallow = []\nexceptions = []",
                "licenses.exceptions",
            ),
            ("[licenses]\nallow = []\n[bans]\ndeny = []", "bans.deny"),
            ("[licenses]\nallow = []\n[output]\n", "output"),
            ("[bans]\nwildcards = \"deny\"", "expected form"),
        ] {
            let message = format!("{:#}", Policy::parse(text).unwrap_err());
            assert!(message.contains(named), "{message}");
        }
    }
}
