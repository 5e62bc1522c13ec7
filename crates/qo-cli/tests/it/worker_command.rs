//! `qo worker` and `qo dev` as processes: the real binary, on an SQLite file.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use qo_store::world::TokioWorld;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long a test waits for what should come at once: the machine may be busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// A directory with a queue in it.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qo"));
        command
            .args(words)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("HOME", self.path())
            .env("QO_STORE", "sqlite:queue.db")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What a command printed that must go well.
    fn good(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let (text, errors) = (lossy(&output.stdout), lossy(&output.stderr));
        assert!(output.status.success(), "{words:?}: {text}\n{errors}");
        text
    }

    fn submit(&self, task_type: &str) -> String {
        let id = self.good(&["submit", "--type", task_type, "--input", "{\"n\": 1}"]);
        id.trim().to_owned()
    }

    fn status(&self, id: &str) -> Value {
        serde_json::from_str(&self.good(&["--json", "status", id])).unwrap()
    }

    /// Starts a worker and waits until it takes tasks.
    fn worker(&self, words: &[&str]) -> Running {
        let words = [&["--json", "worker"], words].concat();
        let mut child = self.command(&words).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut running = Running { child, lines };
        assert_eq!(running.next()["event"], "started");
        running
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A worker that runs. It is killed if the test fails.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// The next line that it prints.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut errors = String::new();
            let _ = self.child.kill();
            let _ = self
                .child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut errors);
            panic!("{line:?} is not JSON: {error}\n{errors}")
        })
    }

    /// The next line that tells of this.
    fn next_of(&mut self, event: &str) -> Value {
        loop {
            let line = self.next();
            if line["event"] == event {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit code.
    fn code(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let world = TokioWorld::shared();
    let give_up = world.monotonic() + PATIENCE;
    while !holds() {
        assert!(world.monotonic() < give_up, "{what}");
        world.sleep(Duration::from_millis(20)).await;
    }
}

fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim()));
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

#[test]
fn a_worker_without_handlers_says_what_to_do() {
    let home = Home::new();
    let output = home.run(&["worker"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = lossy(&output.stderr);
    assert!(errors.contains("no handlers"), "{errors}");
    assert!(errors.contains("qo worker --exec hello=cat"), "{errors}");
    // It was refused before anything was opened.
    assert!(!home.path().join("queue.db").exists());
}

#[test]
fn mistakes_are_refused_before_anything_is_opened() {
    let home = Home::new();
    for (words, expected) in [
        (&["--exec", "a b=cat"][..], "not a task type"),
        (
            &["--http", "a=ftp://example.org/"],
            "use http:// or https://",
        ),
        (
            &["--http", "a=http://10.0.0.1/"],
            "--allow-private-addresses",
        ),
        (
            &["--http", "a=https://u:hunter2@example.org/"],
            "holds credentials",
        ),
        (
            &[
                "--http",
                "a=https://example.org/",
                "--http-header",
                "X: ${NO}",
            ],
            "NO, which is not set",
        ),
        (&["--exec", "a=cat", "--exec", "a=cat"], "two handlers"),
        (&["--exec", "a=cat", "--shards", "g"], "g"),
        (&["--exec", "a=cat", "--concurrency", "0"], "from 1 to"),
    ] {
        let output = home.run(&[&["worker"], words].concat());
        let errors = lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.contains(expected), "{words:?}: {errors}");
        assert!(!errors.contains("hunter2"), "{errors}");
    }
    assert!(!home.path().join("queue.db").exists());
}

#[test]
fn tasks_are_worked_off_and_each_attempt_is_a_line() {
    let home = Home::new();
    let good = home.submit("good");
    let bad = home.submit("bad");
    let words = [
        "worker",
        "--exec",
        "good=cat",
        "--exec",
        "bad=echo why >&2; exit 65",
    ];
    let text = home.good(&[&words[..], &["--exit-when-idle", "1s", "--id", "w1"]].concat());
    assert!(text.contains("worker w1 on sqlite:"), "{text}");
    assert!(
        text.contains(&format!("completed good {good} attempt 1")),
        "{text}"
    );
    let failed = format!("failed    bad {bad} attempt 1");
    assert!(text.contains(&failed), "{text}");
    assert!(text.contains("exit code 65 (bad input): why"), "{text}");
    assert!(text.contains("stopping: there is nothing to do"), "{text}");
    assert!(
        text.contains("stopped after 2 attempts: 1 completed, 1 failed"),
        "{text}"
    );
    assert_eq!(home.status(&good)["output"]["n"], 1);
    assert_eq!(home.status(&good)["status"], "completed");
    assert_eq!(home.status(&bad)["status"], "failed");
}

#[test]
fn the_settings_file_can_name_handlers() {
    let home = Home::new();
    std::fs::write(
        home.path().join("qo.toml"),
        "[worker]\nconcurrency = 3\n[worker.exec.\"demo.words\"]\ncommand = [\"printf\", \"%s\", \"a  b\"]\n",
    )
    .unwrap();
    let id = home.submit("demo.words");
    let mut worker = home.worker(&["--max-tasks", "1"]);
    let line = worker.next_of("attempt");
    assert_eq!(line["id"], id.as_str());
    assert_eq!(line["outcome"], "completed");
    assert_eq!(
        worker.next_of("stopping")["reason"],
        "it has run as many tasks as it should"
    );
    let stopped = worker.next_of("stopped");
    assert_eq!(stopped["completed"], 1);
    assert_eq!(worker.code(), 0);
    assert_eq!(home.status(&id)["output"], "a  b");
}

#[test]
fn commands_do_not_see_the_workers_credentials() {
    let home = Home::new();
    let line = "show=echo \"$AWS_SECRET_ACCESS_KEY,$QO_STORE,$API_TOKEN,$COLOUR\"";
    for (pass, expected) in [
        (&[][..], "\",,,red\""),
        (&["--pass-env", "AWS_*,API_TOKEN"], "\"hidden,,token,red\""),
    ] {
        let id = home.submit("show");
        let header = ["--http-header", "Authorization: ${API_TOKEN}"];
        let words = ["worker", "--exec", line, "--exit-when-idle", "1s"];
        let words = [&words[..], &header, pass].concat();
        let output = home
            .command(&words)
            .env("AWS_SECRET_ACCESS_KEY", "hidden")
            .env("API_TOKEN", "token")
            .env("COLOUR", "red")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", lossy(&output.stderr));
        assert!(!lossy(&output.stdout).contains("hidden"));
        assert_eq!(home.status(&id)["output"].to_string(), expected);
    }
}

#[tokio::test]
async fn a_signal_lets_running_tasks_finish() {
    let home = Home::new();
    let line = "slow=touch began; while [ ! -e go ]; do sleep 0.05; done; echo finished";
    let id = home.submit("slow");
    let mut worker = home.worker(&["--exec", line]);
    eventually("the task runs", || home.path().join("began").exists()).await;
    worker.signal(Signal::TERM);
    let stopping = worker.next_of("stopping");
    assert_eq!(stopping["reason"], "asked to");
    assert_eq!(stopping["running"], 1);
    // Nothing is claimed any more.
    let late = home.submit("slow");
    std::fs::write(home.path().join("go"), "").unwrap();
    assert_eq!(worker.next_of("attempt")["outcome"], "completed");
    assert_eq!(worker.next_of("stopped")["completed"], 1);
    assert_eq!(worker.code(), 0);
    assert_eq!(home.status(&id)["output"], "finished");
    assert_eq!(home.status(&late)["status"], "pending");
}

#[tokio::test]
async fn a_second_signal_stops_at_once_and_leaves_no_process_behind() {
    let home = Home::new();
    let line =
        "stubborn=trap '' TERM INT; sleep 600 & echo $! > child; echo $$ > leader; wait; wait";
    home.submit("stubborn");
    let mut worker = home.worker(&["--exec", line]);
    let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap_or_default();
    eventually("the task runs", || {
        read("leader").ends_with('\n') && read("child").ends_with('\n')
    })
    .await;
    worker.signal(Signal::INT);
    worker.next_of("stopping");
    worker.signal(Signal::INT);
    assert_eq!(worker.code(), 130);
    let (leader, child) = (read("leader"), read("child"));
    eventually("both processes are gone", || {
        !is_alive(&leader) && !is_alive(&child)
    })
    .await;
}

#[test]
fn dev_works_off_its_samples_and_says_where_they_are() {
    let home = Home::new();
    let text = home.good(&["dev", "--for", "1s", "--tasks-per-second", "5"]);
    assert!(text.contains("demo.greet, demo.flaky"), "{text}");
    assert!(text.contains("completed demo."), "{text}");
    assert!(text.contains("qo dev ran for"), "{text}");
    assert!(text.contains("The queue is in sqlite:"), "{text}");
    assert!(text.contains("list --limit 10"), "{text}");
    let list = home.good(&["--json", "list", "--tag", "demo"]);
    let tasks: Vec<Value> = list
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(tasks.len() >= 4, "{list}");
    for task in tasks {
        let status = task["status"].as_str().unwrap();
        assert!(matches!(status, "completed" | "failed"), "{task}");
    }
}
