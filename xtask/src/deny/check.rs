//! The built-in check of dependencies: their licences, their sources and their version requirements.

use std::collections::BTreeSet;

use super::licence::Expression;
use super::policy::{Level, Policy};
use crate::metadata::{Metadata, Package};

/// Everything that breaks a rule, one line each, sorted.
pub(super) fn violations(metadata: &Metadata, policy: &Policy) -> Vec<String> {
    let alternates = alternate_registries(metadata);
    let mut found = Vec::new();
    for package in &metadata.packages {
        let problems = [
            licence_problem(package, policy),
            source_problem(package, policy, &alternates),
        ];
        let problems = problems.into_iter().flatten();
        found.extend(
            problems
                .chain(wildcard_problems(package, policy))
                .map(|problem| format!("{} {}: {problem}", package.name, package.version)),
        );
    }
    found.sort();
    found
}

fn licence_problem(package: &Package, policy: &Policy) -> Option<String> {
    let Some(text) = &package.license else {
        return Some("the manifest states no licence".to_owned());
    };
    match Expression::parse(text) {
        Ok(expression) if expression.is_satisfied_by(&policy.licenses.allow) => None,
        Ok(_) => Some(format!("licence {text:?} is not allowed")),
        Err(error) => Some(format!("licence {text:?} cannot be parsed: {error}")),
    }
}

/// Cargo names the registry of a dependency only if it is not the default one, so no address needs to be known here.
fn alternate_registries(metadata: &Metadata) -> BTreeSet<&str> {
    let dependencies = metadata
        .packages
        .iter()
        .flat_map(|package| &package.dependencies);
    dependencies
        .filter_map(|dependency| dependency.registry.as_deref())
        .map(address)
        .collect()
}

/// The address of a source, without the protocol of its index.
fn address(source: &str) -> &str {
    let stripped = source.strip_prefix("registry+");
    stripped
        .or_else(|| source.strip_prefix("sparse+"))
        .unwrap_or(source)
}

fn source_problem(
    package: &Package,
    policy: &Policy,
    alternates: &BTreeSet<&str>,
) -> Option<String> {
    // Packages without a source are in the workspace or beside it.
    let source = package.source.as_deref()?;
    let rules = &policy.sources;
    if source.starts_with("registry+") || source.starts_with("sparse+") {
        let is_refused =
            alternates.contains(address(source)) && rules.unknown_registry == Level::Deny;
        return is_refused.then(|| format!("registry {source:?} is not allowed"));
    }
    if source.starts_with("git+") {
        let is_refused = rules.unknown_git == Level::Deny;
        return is_refused.then(|| format!("git source {source:?} is not allowed"));
    }
    Some(format!("source {source:?} is of an unknown kind"))
}

fn wildcard_problems(package: &Package, policy: &Policy) -> Vec<String> {
    let rules = &policy.bans;
    if rules.wildcards != Level::Deny {
        return Vec::new();
    }
    let refused = package.dependencies.iter().filter(|dependency| {
        let is_allowed_path = dependency.path.is_some() && rules.allow_wildcard_paths;
        dependency.req == "*" && !is_allowed_path
    });
    refused
        .map(|dependency| format!("dependency {} has no version", dependency.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const POLICY: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        [bans]
        wildcards = "deny"
        allow-wildcard-paths = true
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
    "#;

    /// A package from the default registry, with some fields replaced.
    fn package(changes: &Value) -> Value {
        let mut package = json!({
            "name": "leaf", "version": "1.2.3", "license": "MIT",
            "source": "registry+https://default.example/index", "dependencies": [], "targets": [], "manifest_path": "Cargo.toml",
        });
        for (key, value) in changes.as_object().unwrap() {
            package[key] = value.clone();
        }
        package
    }

    fn dependency(req: &str, path: Option<&str>, registry: Option<&str>) -> Value {
        json!({"name": "other", "req": req, "path": path, "registry": registry})
    }

    fn found(packages: &[Value]) -> Vec<String> {
        let metadata =
            serde_json::from_value(json!({"packages": packages, "target_directory": "target"}))
                .unwrap();
        violations(&metadata, &Policy::parse(POLICY).unwrap())
    }

    #[test]
    fn allowed_packages_pass() {
        let own =
            json!({"source": null, "dependencies": [dependency("*", Some("crates/other"), None)]});
        let packages = [
            package(&json!({})),
            package(&json!({"license": "GPL-3.0-only OR MIT"})),
            package(&json!({"source": "sparse+https://default.example/"})),
            package(&json!({"dependencies": [dependency("^1", None, None)]})),
            package(&own),
        ];
        assert_eq!(found(&packages), Vec::<String>::new());
    }

    #[test]
    fn a_licence_outside_the_list_is_refused() {
        assert_eq!(
            found(&[package(&json!({"license": "MIT AND GPL-3.0-only"}))]),
            ["leaf 1.2.3: licence \"MIT AND GPL-3.0-only\" is not allowed"]
        );
    }

    #[test]
    fn a_missing_or_malformed_licence_is_refused() {
        assert_eq!(
            found(&[package(&json!({"license": null}))]),
            ["leaf 1.2.3: the manifest states no licence"]
        );
        let malformed = found(&[package(&json!({"license": "MIT OR"}))]);
        assert!(malformed[0].contains("cannot be parsed"), "{malformed:?}");
    }

    #[test]
    fn git_and_unknown_sources_are_refused() {
        let found = found(&[
            package(&json!({"source": "git+https://host.example/leaf#abc"})),
            package(&json!({"source": "ftp+https://host.example/leaf"})),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("git source"), "{found:?}");
        assert!(found[1].contains("unknown kind"), "{found:?}");
    }

    #[test]
    fn another_registry_than_the_default_is_refused() {
        let registry = "https://other.example/index";
        let found = found(&[
            package(&json!({"source": format!("registry+{registry}")})),
            package(
                &json!({"name": "user", "dependencies": [dependency("^1", None, Some(registry))]}),
            ),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("leaf 1.2.3: registry"), "{found:?}");
    }

    #[test]
    fn a_dependency_without_a_version_is_refused() {
        assert_eq!(
            found(&[package(
                &json!({"dependencies": [dependency("*", None, None)]})
            )]),
            ["leaf 1.2.3: dependency other has no version"]
        );
    }
}
