//! What cargo knows about packages: `cargo metadata`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::typed::typed;

/// The output of `cargo metadata`, as far as it is needed.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

/// A package.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    /// None for packages that are referred to by path.
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// A dependency as a manifest declares it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) req: String,
    pub(crate) path: Option<String>,
    /// None for the default registry.
    pub(crate) registry: Option<String>,
}

/// A library, program, test, example or benchmark.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Metadata {
    /// The packages of the workspace.
    pub(crate) fn of_workspace() -> Result<Self> {
        Self::read(&["--no-deps"])
    }

    /// The packages of the workspace and all their dependencies.
    ///
    /// Dependencies for other platforms are included if cargo has them or can download them. Without a network it may have only those for
    /// this platform.
    pub(crate) fn of_dependencies(all_features: bool) -> Result<Self> {
        let features: &[&str] = if all_features {
            &["--all-features"]
        } else {
            &[]
        };
        let with = |others: &[&str]| Self::read(&[features, &["--locked"], others].concat());
        if let Ok(metadata) = with(&["--offline"]).or_else(|_| with(&[])) {
            return Ok(metadata);
        }
        println!("dependencies for other platforms cannot be downloaded and are not checked");
        with(&["--offline", "--filter-platform", &host()?])
    }

    /// The workspace's package that has a target of this kind and name.
    pub(crate) fn package_with_target(&self, kind: &str, name: &str) -> Result<&Package> {
        let has_target = |package: &&Package| {
            let mut targets = package.targets.iter();
            targets.any(|target| target.name == name && target.kind.iter().any(|one| one == kind))
        };
        let found = self.packages.iter().find(has_target);
        found.with_context(|| format!("no package has the {kind} target {name:?}"))
    }

    fn read(arguments: &[&str]) -> Result<Self> {
        let mut command = qo_testkit::cargo()?;
        command
            .args(["metadata", "--quiet", "--format-version", "1"])
            .args(arguments);
        let output = command.output().context("cannot run cargo")?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("`{}` failed: {}", typed(&command), errors.trim());
        }
        serde_json::from_slice(&output.stdout).context("cannot parse the output of cargo metadata")
    }
}

/// The platform that cargo runs on, such as `x86_64-unknown-linux-gnu`.
fn host() -> Result<String> {
    let mut command = qo_testkit::cargo()?;
    command.args(["--version", "--verbose"]);
    let output = command.output().context("cannot run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .context("`cargo --version --verbose` names no host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_and_the_benchmarks_are_found() {
        let metadata = Metadata::of_workspace().unwrap();
        let command = metadata.package_with_target("bin", "qo").unwrap();
        assert_eq!(command.name, "qo-cli");
        for name in ["queue_state", "direct", "broker", "http"] {
            metadata.package_with_target("bench", name).unwrap();
        }
        assert!(metadata.package_with_target("bench", "nothing").is_err());
    }
}
