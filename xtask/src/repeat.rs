//! Runs the failed tests of a program once more, alone.
//!
//! The programs run beside each other on machines that are sometimes slow for seconds, and some of their tests run in real time. A test that
//! fails then and passes alone is reported as unstable, and does not fail the run. A test whose result follows from its input, such as a
//! seed of the simulator, fails again.

use std::process::Command;

/// More failures than this are not the machine's fault.
const MOST: usize = 8;

/// Which tests a program runs, and how it names those that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// The test runner of Rust.
    Libtest,
    /// The test runner of Node.js, which runs files. The tests of one file may build upon each other.
    Node,
}

impl Runner {
    /// The tests that the output of a program names as failed. Empty if it names none, or too many to run them again.
    pub(crate) fn failed(self, output: &str) -> Vec<String> {
        let mut failed: Vec<String> = match self {
            Self::Libtest => libtest_failures(output),
            Self::Node => node_failures(output),
        };
        failed.sort();
        failed.dedup();
        if failed.len() > MOST {
            failed.clear();
        }
        failed
    }

    /// The same program with these tests only, one at a time.
    pub(crate) fn only(self, command: &Command, tests: &[String]) -> Command {
        let mut only = Command::new(command.get_program());
        let replaced = |argument: &str| match self {
            Self::Libtest => argument.starts_with("--test-threads="),
            Self::Node => !argument.starts_with("--") || argument.starts_with("--test-concurrency"),
        };
        let kept = command.get_args();
        only.args(kept.filter(|argument| !argument.to_str().is_some_and(replaced)));
        match self {
            Self::Libtest => only.args(["--test-threads=1", "--exact"]),
            Self::Node => only.arg("--test-concurrency=1"),
        };
        only.args(tests);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => only.env(name, value),
                None => only.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            only.current_dir(folder);
        }
        only
    }
}

/// The names below the last line `failures:`.
fn libtest_failures(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else {
        return Vec::new();
    };
    list.lines()
        .map_while(|line| line.strip_prefix("    "))
        .map(|name| name.trim_end().to_owned())
        .collect()
}

/// The files that the list at the end names: `test at browser/views.test.js:12:3`.
fn node_failures(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("failing tests:") else {
        return Vec::new();
    };
    list.lines()
        .filter_map(|line| line.trim_start().strip_prefix("test at "))
        .filter_map(|place| place.split(':').next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBTEST: &str = "
test damage::torn ... FAILED
test fine ... ok

failures:

---- damage::torn stdout ----
failures:
    not a name

failures:
    damage::torn
    waits

test result: FAILED. 1 passed; 2 failed; 0 ignored
";

    const NODE: &str = "
✖ failing tests:

test at browser/views.test.js:12:3
✖ shows the counts (31ms)
  AssertionError: test at noon

test at browser/views.test.js:40:3
test at unit/json.test.js:4:1
";

    #[test]
    fn failed_tests_are_found_in_the_output() {
        assert_eq!(Runner::Libtest.failed(LIBTEST), ["damage::torn", "waits"]);
        let files = ["browser/views.test.js", "unit/json.test.js"];
        assert_eq!(Runner::Node.failed(NODE), files);
        for runner in [Runner::Libtest, Runner::Node] {
            assert_eq!(runner.failed("it was killed"), Vec::<String>::new());
        }
    }

    #[test]
    fn many_failures_are_not_repeated() {
        let names: Vec<_> = (0..=MOST).map(|name| format!("    a{name}")).collect();
        let output = format!("\nfailures:\n{}\n", names.join("\n"));
        assert_eq!(Runner::Libtest.failed(&output), Vec::<String>::new());
    }

    #[test]
    fn only_the_failed_tests_run_again_one_at_a_time() {
        let mut command = Command::new("nice");
        command.args(["/t/it", "--test-threads=6"]).env("A", "b");
        let again = Runner::Libtest.only(&command, &["waits".to_owned()]);
        let words: Vec<_> = again.get_args().collect();
        assert_eq!(words, ["/t/it", "--test-threads=1", "--exact", "waits"]);
        assert_eq!(again.get_envs().count(), 1);

        let mut command = Command::new("node");
        command.args(["--test", "--test-concurrency=2", "unit", "browser"]);
        let again = Runner::Node.only(&command, &["unit/json.test.js".to_owned()]);
        let words: Vec<_> = again.get_args().collect();
        assert_eq!(
            words,
            ["--test", "--test-concurrency=1", "unit/json.test.js"]
        );
    }
}
