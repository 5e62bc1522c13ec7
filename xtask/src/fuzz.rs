//! `cargo xtask fuzz`: runs libFuzzer on the fuzz targets.
//!
//! cargo-fuzz expects a nightly compiler because it uses unstable flags. `RUSTC_BOOTSTRAP` makes the stable compiler accept them, so that no
//! second compiler is needed. There is no sanitizer, because qo has no unsafe code.
//!
//! The corpus that a fuzzer builds is kept in `target/fuzz`, outside the repository. An input that crashed a target is added to the
//! repository's corpus with the fix, and the tests replay it.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::paint::Paint;
use crate::root::root;
use crate::typed::typed;

/// The workspace of the fuzz targets, relative to the root of the repository.
const WORKSPACE: &str = "verify/fuzz/libfuzzer";
/// The version of cargo-fuzz to install if there is none.
const CARGO_FUZZ: &str = "0.13.2";
/// The default time for each target.
const SECONDS_DEFAULT: u64 = 60;
/// The length limit of inputs. Longer ones reach no other code.
const INPUT_MAX_BYTES: u32 = 4_096;
/// An input that takes longer than this counts as a crash.
const TIMEOUT_SECONDS: u32 = 20;

/// Which targets to run, and for how long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The targets; all of them if empty.
    pub(crate) targets: Vec<String>,
    /// The time for each target.
    pub(crate) seconds: u64,
}

/// Parses the arguments of `cargo xtask fuzz`.
pub(crate) fn plan(words: &[OsString]) -> Result<Plan> {
    let mut plan = Plan {
        targets: Vec::new(),
        seconds: SECONDS_DEFAULT,
    };
    let known = targets()?;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = word.to_str().context("arguments of `fuzz` must be UTF-8")?;
        let seconds = match word.strip_prefix("--seconds") {
            Some("") => words.next().and_then(|seconds| seconds.to_str()),
            Some(rest) => rest.strip_prefix('='),
            None => {
                if !known.iter().any(|name| name == word) {
                    bail!(
                        "unknown target {word:?}; the targets are {}",
                        known.join(", ")
                    );
                }
                plan.targets.push(word.to_owned());
                continue;
            }
        };
        plan.seconds = seconds
            .and_then(|seconds| seconds.parse().ok())
            .filter(|seconds| *seconds > 0)
            .context("`--seconds` needs a number, such as `--seconds 180`")?;
    }
    Ok(plan)
}

/// The names of all targets.
fn targets() -> Result<Vec<String>> {
    let folder = root().join(WORKSPACE).join("fuzz_targets");
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        names.extend(stem.map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// The result of one target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figures {
    executions: u64,
    /// Edges of the program that were covered.
    coverage: u64,
    /// Inputs that were kept because they cover something new.
    corpus: u64,
    failed: bool,
}

impl Figures {
    /// Updates the figures from a line of libFuzzer's output.
    fn read(&mut self, line: &str) {
        if let Some(executions) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = executions.trim().parse().unwrap_or(self.executions);
            return;
        }
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "cov:" => self.coverage = number(words.next()).unwrap_or(self.coverage),
                "corp:" => self.corpus = number(words.next()).unwrap_or(self.corpus),
                _ => {}
            }
        }
    }
}

/// The number before the first slash of a word.
fn number(word: Option<&str>) -> Option<u64> {
    word?.split('/').next()?.parse().ok()
}

/// What the fuzzers are built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Features {
    All,
    /// Without the command, the server and the S3 client, which take most of the time of the build.
    Small,
}

/// Whether the fuzzer of a target needs no features, by the manifest of the fuzzers.
fn is_small(manifest: &str, target: &str) -> bool {
    let name = format!("name = \"{target}\"");
    let mut fuzzers = manifest.split("[[bin]]").skip(1);
    let fuzzer = fuzzers.find(|fuzzer| fuzzer.contains(&name));
    fuzzer.is_some_and(|fuzzer| !fuzzer.contains("required-features"))
}

/// Runs the fuzzers.
pub(crate) fn run(plan: &Plan) -> Result<ExitCode> {
    let tools = install()?;
    let all = targets()?;
    let chosen = if plan.targets.is_empty() {
        &all
    } else {
        &plan.targets
    };
    let manifest = root().join(WORKSPACE).join("Cargo.toml");
    let manifest = std::fs::read_to_string(&manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let features = if chosen.iter().all(|target| is_small(&manifest, target)) {
        Features::Small
    } else {
        Features::All
    };
    let mut rows = Vec::new();
    for target in chosen {
        rows.push((
            target.as_str(),
            fuzz(target, plan.seconds, features, &tools)?,
        ));
    }
    println!("\n{}", table(&rows, plan.seconds, Paint::for_stdout()));
    Ok(if rows.iter().any(|(_, figures)| figures.failed) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn table(rows: &[(&str, Figures)], seconds: u64, paint: Paint) -> String {
    let mut text = format!("{seconds} seconds each\n");
    let head = format!(
        "{:<16} {:>12} {:>8} {:>7}  result",
        "target", "executions", "edges", "corpus"
    );
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "{}", paint.bold(&head));
    for (target, figures) in rows {
        let result = if figures.failed {
            paint.red("CRASHED")
        } else {
            paint.green("ok")
        };
        let _ = writeln!(
            text,
            "{target:<16} {:>12} {:>8} {:>7}  {result}",
            figures.executions, figures.coverage, figures.corpus
        );
    }
    for (target, _) in rows.iter().filter(|(_, figures)| figures.failed) {
        let _ = writeln!(
            text,
            "\n{target} crashed: the input is in target/fuzz/artifacts/{target}/. Copy it to {WORKSPACE}/corpus/{target}/; then\n    \
             cargo test -p qo-fuzz\nreplays it"
        );
    }
    text
}

/// Installs cargo-fuzz if it is missing. Returns the `PATH` that contains it.
fn install() -> Result<OsString> {
    let folder = root().join("target/tools/cargo-fuzz");
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.join("bin")).chain(env::split_paths(&path));
    let path = env::join_paths(folders).context("cannot extend PATH")?;
    let mut version = qo_testkit::cargo()?;
    version
        .args(["fuzz", "--version"])
        .env("PATH", &path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if version.status().context("cannot run cargo")?.success() {
        return Ok(path);
    }
    let mut install = qo_testkit::cargo()?;
    install.args([
        "install",
        "--locked",
        "cargo-fuzz",
        "--version",
        CARGO_FUZZ,
        "--root",
    ]);
    install.arg(&folder);
    println!("$ {}", typed(&install));
    if !install.status().context("cannot run cargo")?.success() {
        bail!("cannot install cargo-fuzz: check that cargo can reach its registry");
    }
    Ok(path)
}

fn fuzz(target: &str, seconds: u64, features: Features, path: &OsString) -> Result<Figures> {
    let kept = root().join("target/fuzz/corpus").join(target);
    let crashes = root().join("target/fuzz/artifacts").join(target);
    for folder in [&kept, &crashes] {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let mut command = qo_testkit::cargo()?;
    command
        .args([
            "fuzz",
            "run",
            "--fuzz-dir",
            WORKSPACE,
            "--sanitizer",
            "none",
            "--target-dir",
        ])
        .arg(root().join("target/fuzz"));
    if features == Features::Small {
        command.arg("--no-default-features");
    }
    command
        .arg(target)
        .arg(&kept)
        .arg(Path::new(WORKSPACE).join("corpus").join(target))
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_MAX_BYTES}"))
        .arg(format!("-timeout={TIMEOUT_SECONDS}"))
        .arg(format!("-artifact_prefix={}/", crashes.display()))
        .arg("-print_final_stats=1")
        .env("PATH", path)
        .env("RUSTC_BOOTSTRAP", "1")
        .stderr(Stdio::piped());
    println!("$ {}", typed(&command));
    watch(&mut command)
}

/// Runs the fuzzer, prints its output, and reads the figures from it.
fn watch(command: &mut Command) -> Result<Figures> {
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run `{}`", typed(command)))?;
    let mut figures = Figures::default();
    if let Some(errors) = child.stderr.take() {
        for line in BufReader::new(errors).lines() {
            let line = line.context("cannot read the output of the fuzzer")?;
            figures.read(&line);
            // The fuzzer prints a line for each of thousands of inputs.
            if !line.starts_with('#') || line.contains("pulse") || line.contains("DONE") {
                println!("{line}");
            }
        }
    }
    figures.failed = !child
        .wait()
        .context("cannot wait for the fuzzer")?
        .success();
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::words;

    fn planned(line: &str) -> Result<Plan> {
        plan(&words(line))
    }

    #[test]
    fn arguments_are_parsed() {
        let all = planned("").unwrap();
        assert_eq!((all.targets.len(), all.seconds), (0, SECONDS_DEFAULT));
        let some = planned("--seconds 7 key task_record").unwrap();
        assert_eq!(some.targets, ["key", "task_record"]);
        assert_eq!(some.seconds, 7);
        assert_eq!(planned("--seconds=9").unwrap().seconds, 9);
        for (line, named) in [
            ("kye", "task_record"),
            ("--seconds", "number"),
            ("--seconds 0", "number"),
        ] {
            let message = planned(line).unwrap_err().to_string();
            assert!(message.contains(named), "{line}: {message}");
        }
    }

    #[test]
    fn the_fuzzers_of_stored_records_need_no_features() {
        let manifest = root().join(WORKSPACE).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        assert!(is_small(&manifest, "task_record") && is_small(&manifest, "slate_row"));
        assert!(!is_small(&manifest, "command_line") && !is_small(&manifest, "kye"));
    }

    #[test]
    fn figures_are_read_from_the_output_of_libfuzzer() {
        let mut figures = Figures::default();
        for line in [
            "#2\tINITED cov: 211 ft: 300 corp: 3/20b exec/s: 0 rss: 40Mb",
            "#524288\tpulse  cov: 1212 ft: 4000 corp: 512/33Kb lim: 4096 exec/s: 9000",
            "stat::number_of_executed_units: 1234567",
            "Done 1234567 runs in 61 second(s)",
        ] {
            figures.read(line);
        }
        let expected = Figures {
            executions: 1_234_567,
            coverage: 1_212,
            corpus: 512,
            failed: false,
        };
        assert_eq!(figures, expected);
    }
}
