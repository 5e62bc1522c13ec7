//! Runs test programs beside each other.
//!
//! A program that computes leaves no core free, so only one of them runs at a time, with a low priority. Programs that mostly wait, for
//! processes, servers and timers, run beside it, each with more threads than there are cores. When no such program is left, the others compute
//! beside each other, because the last test of one uses a single core. When all have ended, the failed tests run once more.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::repeat::Runner;
use crate::test::timed;

/// How many programs that wait run at the same time.
const WAITING_LANES: usize = 2;

/// What a program does most of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// It computes.
    Computes,
    /// It waits.
    Waits,
}

/// A test program.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) load: Load,
    pub(crate) runner: Runner,
    pub(crate) command: Command,
}

/// How a test program ended.
#[derive(Debug)]
pub(crate) struct JobResult {
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    /// The tests that failed at first and passed when they ran alone.
    pub(crate) unstable: Vec<String>,
}

/// Runs all jobs, also after a failure. Prints the output of each when it has ended, and returns the results in the order of the jobs.
pub(crate) fn run(jobs: Vec<Job>) -> Vec<JobResult> {
    let count = jobs.len();
    let numbered = jobs.into_iter().enumerate();
    let (computing, waiting): (VecDeque<_>, VecDeque<_>) =
        numbered.partition(|(_, job)| job.load == Load::Computes);
    let (computing, waiting) = (Mutex::new(computing), Mutex::new(waiting));
    let results = Mutex::new(Vec::with_capacity(count));
    let lane = |lists: &[&Mutex<VecDeque<(usize, Job)>>]| {
        loop {
            let next = lists.iter().find_map(|list| lock(list).pop_front());
            let Some((number, job)) = next else {
                return;
            };
            println!("running {}", job.name);
            let Job {
                name,
                runner,
                mut command,
                ..
            } = job;
            let (outcome, took) = timed(|| run_one(&mut command));
            let mut results = lock(&results);
            let (failure, failed) = print(&name, took, outcome, runner);
            let again = (!failed.is_empty()).then(|| runner.only(&command, &failed));
            let result = JobResult {
                name,
                took,
                failure,
                unstable: Vec::new(),
            };
            results.push((number, result, again.map(|again| (runner, again, failed))));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| lane(&[&computing]));
        scope.spawn(|| lane(&[&waiting, &computing]));
        for _ in 1..WAITING_LANES {
            scope.spawn(|| lane(&[&waiting]));
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(number, ..)| *number);
    let results = results.into_iter().map(|(_, mut result, again)| {
        if let Some((runner, mut again, failed)) = again {
            repeat(&mut result, runner, &mut again, failed);
        }
        result
    });
    results.collect()
}

/// Runs the failed tests of a program again. If all of them pass, the program has passed.
fn repeat(result: &mut JobResult, runner: Runner, again: &mut Command, failed: Vec<String>) {
    println!(
        "\n{} failed; running alone: {}",
        result.name,
        failed.join(", ")
    );
    let (outcome, took) = timed(|| run_one(again));
    result.took += took;
    let (failure, _) = print(&result.name, took, outcome, runner);
    if failure.is_none() {
        result.failure = None;
        result.unstable = failed;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The output of a program, and why it failed.
struct Ended {
    output: Vec<u8>,
    failure: Option<String>,
}

/// Runs a program. Its output goes to a file, because a pipe that nobody empties would stop it.
fn run_one(command: &mut Command) -> Result<Ended> {
    let mut file = tempfile::tempfile().context("cannot create a temporary file")?;
    let copy = |file: &File| file.try_clone().context("cannot use a temporary file");
    let status = command
        .stdin(Stdio::null())
        .stdout(copy(&file)?)
        .stderr(copy(&file)?)
        .status()
        .context("cannot run it")?;
    let mut output = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut output)?;
    let failure = (!status.success()).then(|| format!("it ended with {status}"));
    Ok(Ended { output, failure })
}

/// Prints what a program wrote. Returns why it failed, if it did, and the tests that failed.
fn print(
    name: &str,
    took: Duration,
    ended: Result<Ended>,
    runner: Runner,
) -> (Option<String>, Vec<String>) {
    println!("\n-- {name} ({:.1} seconds)", took.as_secs_f64());
    let (failure, failed) = match ended {
        Ok(ended) => {
            // A closed standard output stops nothing.
            let _ = std::io::stdout().write_all(&ended.output);
            let failed = runner.failed(&String::from_utf8_lossy(&ended.output));
            (ended.failure, failed)
        }
        Err(error) => (Some(format!("{error:#}")), Vec::new()),
    };
    match &failure {
        Some(reason) => {
            println!("{name}: {reason}");
            (failure, failed)
        }
        None => (None, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, load: Load, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job {
            name: name.to_owned(),
            load,
            runner: Runner::Libtest,
            command,
        }
    }

    /// A test program whose test `slow` fails unless it runs alone, and whose test `wrong` always fails.
    fn test_program(failed: &str) -> Job {
        let script = r#"
case "$*" in
    *--exact*wrong*) ;;
    *--exact*) exit 0 ;;
esac
printf '\nfailures:\n'; printf '    %s\n' $FAILED; exit 101"#;
        let mut tests = job("tests", Load::Waits, script);
        tests.command.arg("tests").env("FAILED", failed);
        tests
    }

    #[test]
    fn failed_tests_run_again_alone() {
        let results = run(vec![test_program("slow"), test_program("slow wrong")]);
        assert_eq!(results[0].failure, None);
        assert_eq!(results[0].unstable, ["slow"]);
        assert!(results[1].failure.as_ref().unwrap().contains("101"));
        assert!(results[1].unstable.is_empty());
    }

    #[test]
    fn all_programs_run_and_the_failed_ones_are_named() {
        let missing = Job {
            command: Command::new("/no/such/program"),
            ..job("missing", Load::Waits, "")
        };
        let results = run(vec![
            job("a", Load::Waits, "exit 3"),
            job("b", Load::Computes, "echo fine"),
            missing,
            job("c", Load::Waits, "true"),
        ]);
        let failed: Vec<_> = results
            .iter()
            .map(|result| (result.name.as_str(), result.failure.is_some()))
            .collect();
        let expected = [("a", true), ("b", false), ("missing", true), ("c", false)];
        assert_eq!(failed, expected);
        assert!(results[0].failure.as_ref().unwrap().contains('3'));
    }

    #[test]
    fn a_program_that_waits_runs_beside_one_that_computes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ready");
        let path = file.display();
        let results = run(vec![
            job(
                "first",
                Load::Computes,
                &format!(
                    "for i in $(seq 300); do test -e {path} && exit 0; sleep 0.1; done; exit 1"
                ),
            ),
            job("second", Load::Waits, &format!("touch {path}")),
        ]);
        assert!(results.iter().all(|result| result.failure.is_none()));
    }

    #[test]
    fn programs_compute_beside_each_other_when_none_waits() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ready");
        let path = file.display();
        let script =
            format!("for i in $(seq 300); do test -e {path} && exit 0; sleep 0.1; done; exit 1");
        let results = run(vec![
            job("first", Load::Computes, &script),
            job("second", Load::Computes, &format!("touch {path}")),
        ]);
        assert!(results.iter().all(|result| result.failure.is_none()));
    }

    #[test]
    fn the_output_of_a_program_is_kept() {
        let mut job = job("a", Load::Waits, "echo out; echo err >&2");
        let ended = run_one(&mut job.command).unwrap();
        assert_eq!(String::from_utf8(ended.output).unwrap(), "out\nerr\n");
        assert_eq!(ended.failure, None);
    }
}
