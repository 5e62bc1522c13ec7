//! The step `integration`: builds the integration tests of all crates, and runs their programs beside each other.
//!
//! The browser tests of the step `ui` mostly wait, so they run beside them if both steps are chosen.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};
use qo_testkit::SeaweedFs;
use serde::Deserialize;

use crate::lanes::{self, Job, JobResult, Load};
use crate::repeat::Runner;
use crate::shipped;
use crate::steps::{SHIPPED, Verdict};
use crate::typed::typed;

/// Builds the programs and prints where they are.
const BUILD: [&str; 8] = [
    "test",
    "--workspace",
    "--features",
    SHIPPED,
    "--test",
    "*",
    "--no-run",
    "--message-format=json-render-diagnostics",
];

/// The packages whose tests mostly wait, those that take longest first, and how many of their tests run at the same time for each core.
const WAITING: [(&str, usize); 9] = [
    ("qo-cli", 3),
    ("qo-server", 2),
    ("qo-cluster", 2),
    ("qo", 2),
    ("qo-chaos", 1),
    ("qo-store", 1),
    ("qo-testkit", 1),
    ("qo-wasi", 1),
    ("qo-blob", 1),
];
/// The package whose tests compute longest, so that they start first.
const LONGEST: &str = "qo-sim";

/// A built test program.
#[derive(Debug, PartialEq, Eq)]
struct TestProgram {
    package: String,
    target: String,
    /// The folder of the package, in which cargo runs its tests.
    folder: PathBuf,
    path: PathBuf,
}

/// Runs the step. `browser` runs beside it, if it is given; its result is the second one.
pub(crate) fn run(browser: Option<Job>) -> Result<(Verdict, Option<JobResult>)> {
    let shipped = shipped::program()?;
    let programs = ordered(build()?);
    // All test processes share one server.
    let server =
        SeaweedFs::shared_with_others().context("cannot start the S3 server for the tests")?;
    let has_browser = browser.is_some();
    // It takes long, so it starts first.
    let mut jobs = Vec::from_iter(browser);
    for program in &programs {
        jobs.push(program.job(server, &shipped)?);
    }
    let mut results = lanes::run(jobs);
    let browser = has_browser.then(|| results.remove(0));
    print!("\n{}", summary(&results));
    Ok((verdict(&results), browser))
}

/// Builds the test programs.
fn build() -> Result<Vec<TestProgram>> {
    let mut command = qo_testkit::cargo()?;
    command.args(BUILD).stderr(Stdio::inherit());
    println!("$ {}", typed(&command));
    let output = command.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`{}` ended with {}", typed(&command), output.status);
    }
    let text = String::from_utf8(output.stdout).context("cargo printed no UTF-8")?;
    let programs = programs(&text)?;
    if programs.is_empty() {
        bail!("`{}` built no test program", typed(&command));
    }
    Ok(programs)
}

/// A message of cargo.
#[derive(Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<MessageProfile>,
    target: Option<MessageTarget>,
}

#[derive(Deserialize)]
struct MessageProfile {
    test: bool,
}

#[derive(Deserialize)]
struct MessageTarget {
    name: String,
}

/// The test programs that cargo's messages name.
fn programs(messages: &str) -> Result<Vec<TestProgram>> {
    let mut programs = Vec::new();
    // Build scripts may print other lines.
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("cannot read cargo's output")?;
        let is_test = message.profile.is_some_and(|profile| profile.test);
        if message.reason != "compiler-artifact" || !is_test {
            continue;
        }
        let (Some(path), Some(id), Some(manifest), Some(target)) = (
            message.executable,
            message.package_id,
            message.manifest_path,
            message.target,
        ) else {
            continue;
        };
        programs.push(TestProgram {
            package: package_name(&id).to_owned(),
            target: target.name,
            folder: manifest.parent().unwrap_or(&manifest).to_path_buf(),
            path,
        });
    }
    Ok(programs)
}

/// The name in a package id: `path+file:///folder#name@0.1.0`, or `path+file:///folder/name#0.1.0`.
fn package_name(id: &str) -> &str {
    let (folder, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name,
        None => folder.rsplit('/').next().unwrap_or(folder),
    }
}

/// In the order in which they start: those that take longest first.
fn ordered(mut programs: Vec<TestProgram>) -> Vec<TestProgram> {
    programs.sort_by_key(|program| {
        let order = WAITING.iter().position(|known| known.0 == program.package);
        let is_longest = program.package == LONGEST;
        (
            !is_longest,
            order.unwrap_or(WAITING.len()),
            program.path.clone(),
        )
    });
    programs
}

impl TestProgram {
    /// The program with the environment that cargo gives it.
    fn job(&self, server: &SeaweedFs, shipped: &Path) -> Result<Job> {
        let waiting = WAITING.iter().find(|known| known.0 == self.package);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // What it computes is not urgent. The other tests run in real time.
        let mut command = Command::new("nice");
        if let Some((_, per_core)) = waiting {
            command = Command::new(&self.path);
            command.arg(format!("--test-threads={}", cores * per_core));
        } else {
            command.arg(&self.path);
        }
        for (name, value) in qo_testkit::cargo()?.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env(qo_testkit::PROGRAM_VARIABLE, shipped)
            .envs(server.environment());
        Ok(Job {
            name: format!("{} --test {}", self.package, self.target),
            load: match waiting {
                Some(_) => Load::Waits,
                None => Load::Computes,
            },
            runner: Runner::Libtest,
            command,
        })
    }
}

/// A line for each program.
fn summary(results: &[JobResult]) -> String {
    let mut text = String::from("seconds  integration tests\n");
    for result in results {
        let seconds = result.took.as_secs_f64();
        let mark = match &result.failure {
            Some(_) => "  FAILED",
            None if result.unstable.is_empty() => "",
            None => "  unstable",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{seconds:>7.1}  {}{mark}", result.name);
    }
    text
}

fn verdict(results: &[JobResult]) -> Verdict {
    let failed = results.iter().filter(|result| result.failure.is_some());
    let failed: Vec<_> = failed
        .map(|result| format!("`cargo test -p {}`", result.name))
        .collect();
    let unstable = results.iter().flat_map(|result| {
        let tests = result.unstable.iter();
        tests.map(|test| format!("`cargo test -p {} {test}`", result.name))
    });
    if failed.is_empty() {
        Verdict::of_unstable(&unstable.collect::<Vec<_>>())
    } else {
        Verdict::Failed(format!("{} failed", failed.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    const MESSAGES: &str = r#"
{"reason":"compiler-artifact","package_id":"path+file:///w/verify/sim#qo-sim@0.1.0","manifest_path":"/w/verify/sim/Cargo.toml","target":{"name":"qo_sim","kind":["lib"]},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","package_id":"path+file:///w/crates/qo-cli#0.1.0","manifest_path":"/w/crates/qo-cli/Cargo.toml","target":{"name":"qo"},"profile":{"test":false},"executable":"/t/qo"}
{"reason":"compiler-artifact","package_id":"path+file:///w/verify/fuzz#qo-fuzz@0.1.0","manifest_path":"/w/verify/fuzz/Cargo.toml","target":{"name":"it"},"profile":{"test":true},"executable":"/t/it-1"}
a line of a build script
{"reason":"compiler-artifact","package_id":"path+file:///w/crates/qo-cli#0.1.0","manifest_path":"/w/crates/qo-cli/Cargo.toml","target":{"name":"it"},"profile":{"test":true},"executable":"/t/it-2"}
{"reason":"build-finished","success":true}
"#;

    #[test]
    fn test_programs_are_found_in_the_messages_of_cargo() {
        let found = programs(MESSAGES).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|program| (program.package.as_str(), program.path.as_path()))
            .collect();
        let expected = [
            ("qo-fuzz", Path::new("/t/it-1")),
            ("qo-cli", Path::new("/t/it-2")),
        ];
        assert_eq!(names, expected);
        assert_eq!(found[1].folder, Path::new("/w/crates/qo-cli"));
    }

    #[test]
    fn failed_programs_are_named_as_a_user_repeats_them() {
        let result = |name: &str, failure: Option<&str>| JobResult {
            name: name.to_owned(),
            took: Duration::from_millis(1_500),
            failure: failure.map(str::to_owned),
            unstable: Vec::new(),
        };
        let results = [
            result("qo-core --test it", None),
            result("qo-cli --test it", Some("it ended with exit status: 101")),
        ];
        let failed = "`cargo test -p qo-cli --test it` failed";
        assert_eq!(verdict(&results), Verdict::Failed(failed.to_owned()));
        assert_eq!(verdict(&results[..1]), Verdict::Passed);
        let mut unstable = result("qo-cli --test it", None);
        unstable.unstable.push("broker::waits".to_owned());
        let name = "`cargo test -p qo-cli --test it broker::waits`";
        assert_eq!(verdict(&[unstable]), Verdict::Unstable(name.to_owned()));
        let expected = "seconds  integration tests\n    1.5  qo-core --test it\n    1.5  qo-cli --test it  FAILED\n";
        assert_eq!(summary(&results), expected);
    }

    #[test]
    fn the_packages_with_known_loads_exist() {
        let manifest = std::fs::read_to_string(crate::root::root().join("Cargo.lock")).unwrap();
        for name in WAITING.iter().map(|known| known.0).chain([LONGEST]) {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        }
    }
}
