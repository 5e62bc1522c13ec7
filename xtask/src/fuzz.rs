//! `cargo xtask fuzz`: libFuzzer on the targets of `verify/fuzz`, for so long each.
//!
//! cargo-fuzz asks for a nightly compiler, because it builds with flags that are not stable. The compiler that builds everything else
//! understands them too, once it is told to by `RUSTC_BOOTSTRAP`, so that no second one has to be installed. There is no sanitizer: qo has no unsafe code.
//!
//! What a fuzzer finds worth keeping goes below `target/fuzz`, not into the repository; what breaks a target is copied from there to
//! `verify/fuzz/libfuzzer/corpus/` by whoever puts the cause right, and the tests run it from then on.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::paint::Paint;
use crate::typed::typed;

/// The version that is installed where there is none.
const CARGO_FUZZ: &str = "0.13.2";
/// How long each target is run if nothing is said.
const SECONDS_DEFAULT: u64 = 60;
/// The longest input, in bytes. Nothing that is tried depends on more.
const INPUT_MAX_BYTES: u32 = 4_096;
/// An input that takes longer than this counts as a finding.
const TIMEOUT_SECONDS: u32 = 20;

/// What to fuzz, and for how long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The targets; all of them, if empty.
    pub(crate) targets: Vec<String>,
    /// For each.
    pub(crate) seconds: u64,
}

/// Reads the words behind `fuzz`.
pub(crate) fn plan(words: &[OsString]) -> Result<Plan> {
    let mut plan = Plan {
        targets: Vec::new(),
        seconds: SECONDS_DEFAULT,
    };
    let known = targets()?;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = word.to_str().context("`fuzz` takes words that are UTF-8")?;
        let seconds = match word.strip_prefix("--seconds") {
            Some("") => words.next().and_then(|seconds| seconds.to_str()),
            Some(rest) => rest.strip_prefix('='),
            None => {
                if !known.iter().any(|name| name == word) {
                    bail!(
                        "there is no target {word:?}; there are {}",
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

fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// The targets that there are.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("verify/fuzz/libfuzzer/fuzz_targets");
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

/// How one target did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figures {
    executions: u64,
    /// Edges of the program that were reached.
    coverage: u64,
    /// What was tried and found worth keeping.
    corpus: u64,
    failed: bool,
}

impl Figures {
    /// Takes in a line of libFuzzer's.
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

/// The number that a word begins with.
fn number(word: Option<&str>) -> Option<u64> {
    word?.split('/').next()?.parse().ok()
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
    let mut rows = Vec::new();
    for target in chosen {
        rows.push((target.as_str(), fuzz(target, plan.seconds, &tools)?));
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
    // Writing into a string cannot fail, here and below.
    let _ = writeln!(text, "{}", paint.bold(&head));
    for (target, figures) in rows {
        let result = if figures.failed {
            paint.red("BROKEN")
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
            "\n{target} broke: what broke it is below target/fuzz/artifacts/{target}/; copy it to verify/fuzz/libfuzzer/corpus/{target}/, and\n    \
             cargo test -p qo-fuzz\nruns it from then on"
        );
    }
    text
}

/// Makes sure that cargo-fuzz is there, and gives the `PATH` on which it is found.
fn install() -> Result<OsString> {
    let folder = root().join("target/tools/cargo-fuzz");
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.join("bin")).chain(env::split_paths(&path));
    let path = env::join_paths(folders).context("the PATH cannot be extended")?;
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
        bail!("cargo-fuzz cannot be installed: check that cargo can reach its registry");
    }
    Ok(path)
}

fn fuzz(target: &str, seconds: u64, path: &OsString) -> Result<Figures> {
    let kept = root().join("target/fuzz/corpus").join(target);
    let broken = root().join("target/fuzz/artifacts").join(target);
    for folder in [&kept, &broken] {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut command = qo_testkit::cargo()?;
    command
        .args([
            "fuzz",
            "run",
            "--fuzz-dir",
            "verify/fuzz/libfuzzer",
            "--sanitizer",
            "none",
            "--target-dir",
        ])
        .arg(root().join("target/fuzz"))
        .arg(target)
        .arg(&kept)
        .arg(Path::new("verify/fuzz/libfuzzer/corpus").join(target))
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_MAX_BYTES}"))
        .arg(format!("-timeout={TIMEOUT_SECONDS}"))
        .arg(format!("-artifact_prefix={}/", broken.display()))
        .arg("-print_final_stats=1")
        .env("PATH", path)
        .env("RUSTC_BOOTSTRAP", "1")
        .stderr(Stdio::piped());
    println!("$ {}", typed(&command));
    watch(&mut command)
}

/// Runs the command, shows what it says, and reads the figures from it.
fn watch(command: &mut Command) -> Result<Figures> {
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run `{}`", typed(command)))?;
    let mut figures = Figures::default();
    if let Some(errors) = child.stderr.take() {
        for line in BufReader::new(errors).lines() {
            let line = line.context("cannot read what the fuzzer says")?;
            figures.read(&line);
            // A line for each input that is kept would be thousands.
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

    fn planned(line: &str) -> Result<Plan> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        plan(&words)
    }

    #[test]
    fn the_plan_is_read() {
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
    fn figures_are_read_from_what_libfuzzer_says() {
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
