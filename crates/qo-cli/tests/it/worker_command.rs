//! `qo worker` and `qo dev` as processes, on an SQLite file.

use std::io::{BufRead, BufReader, Read};
use std::process::ChildStdout;
use std::time::Duration;

use qo_store::runtime::TokioRuntime;
use rustix::process::Signal;
use serde_json::Value;

use crate::schema;
use crate::workspace::{RunningCommand, Workspace};

/// Time limit for events that should happen at once. The machine may be busy.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Runs a command that must succeed, and returns its standard output.
fn printed(workspace: &Workspace, words: &[&str]) -> String {
    let result = workspace.qo(words);
    result.assert(0);
    result.stdout
}

fn status(workspace: &Workspace, id: &str) -> Value {
    workspace
        .qo(&["--json", "status", id])
        .assert(0)
        .json("task")
}

/// Starts a worker and waits until it claims tasks.
fn worker(workspace: &Workspace, words: &[&str]) -> RunningWorker {
    let mut process = workspace.start(&[&["--json", "worker"], words].concat());
    let lines = BufReader::new(process.stdout());
    let mut running = RunningWorker { process, lines };
    assert_eq!(running.next()["event"], "started");
    running
}

/// A running worker that prints JSON.
struct RunningWorker {
    process: RunningCommand,
    lines: BufReader<ChildStdout>,
}

impl RunningWorker {
    /// The next line.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut errors = String::new();
            self.process.signal(Signal::KILL);
            let _ = self.process.stderr().read_to_string(&mut errors);
            panic!("{line:?} is not JSON: {error}\n{errors}")
        });
        schema::check("worker-line", &value);
        value
    }

    /// The next line with this event.
    fn next_of(&mut self, event: &str) -> Value {
        loop {
            let line = self.next();
            if line["event"] == event {
                return line;
            }
        }
    }

    /// Its exit code.
    fn code(self) -> i32 {
        self.process.end().code
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let runtime = TokioRuntime::shared();
    let give_up = runtime.monotonic() + TIMEOUT;
    while !holds() {
        assert!(runtime.monotonic() < give_up, "{what}");
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim()));
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

#[test]
fn a_worker_without_handlers_is_an_error_with_a_hint() {
    let workspace = Workspace::new();
    let result = workspace.qo(&["worker"]);
    let errors = &result.assert(2).stderr;
    assert!(errors.contains("no handlers"), "{errors}");
    assert!(errors.contains("qo worker --exec hello=cat"), "{errors}");
    // The store was not opened.
    assert!(!workspace.path().join("queue.db").exists());
}

#[test]
fn invalid_arguments_are_rejected_before_the_store_is_opened() {
    let workspace = Workspace::new();
    for (words, expected) in [
        (&["--exec", "a b=cat"][..], "not a task type"),
        (&["--http", "a=ftp://example.org/"], "use http or https"),
        (
            &["--http", "a=http://10.0.0.1/"],
            "--allow-private-addresses",
        ),
        (
            &["--http", "a=https://u:hunter2@example.org/"],
            "contains credentials",
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
        let result = workspace.qo(&[&["worker"], words].concat());
        let errors = &result.assert(2).stderr;
        assert!(errors.contains(expected), "{words:?}: {errors}");
        assert!(!errors.contains("hunter2"), "{errors}");
    }
    assert!(!workspace.path().join("queue.db").exists());
}

#[test]
fn a_worker_runs_tasks_and_prints_each_attempt() {
    let workspace = Workspace::new();
    let good = workspace.submit("good");
    let bad = workspace.submit("bad");
    let words = [
        "worker",
        "--exec",
        "good=cat",
        "--exec",
        "bad=echo why >&2; exit 65",
    ];
    let text = printed(
        &workspace,
        &[&words[..], &["--exit-when-idle", "1s", "--id", "w1"]].concat(),
    );
    assert!(text.contains("worker w1 on sqlite:"), "{text}");
    assert!(
        text.contains(&format!("completed good {good} attempt 1")),
        "{text}"
    );
    let failed = format!("failed    bad {bad} attempt 1");
    assert!(text.contains(&failed), "{text}");
    assert!(text.contains("exit code 65 (bad input): why"), "{text}");
    assert!(text.contains("stopping: idle"), "{text}");
    assert!(
        text.contains("stopped after 2 attempts: 1 completed, 1 failed"),
        "{text}"
    );
    assert_eq!(status(&workspace, &good)["output"]["n"], 1);
    assert_eq!(status(&workspace, &good)["status"], "completed");
    assert_eq!(status(&workspace, &bad)["status"], "failed");
}

#[test]
fn the_settings_file_can_define_handlers() {
    let workspace = Workspace::new();
    std::fs::write(
        workspace.path().join("qo.toml"),
        "[worker]\nconcurrency = 3\n[worker.exec.\"demo.words\"]\ncommand = [\"printf\", \"%s\", \"a  b\"]\n",
    )
    .unwrap();
    let id = workspace.submit("demo.words");
    let mut running = worker(&workspace, &["--max-tasks", "1"]);
    let line = running.next_of("attempt");
    assert_eq!(line["id"], id.as_str());
    assert_eq!(line["outcome"], "completed");
    assert_eq!(running.next_of("stopping")["reason"], "--max-tasks reached");
    let stopped = running.next_of("stopped");
    assert_eq!(stopped["completed"], 1);
    assert_eq!(running.code(), 0);
    assert_eq!(status(&workspace, &id)["output"], "a  b");
}

#[test]
fn commands_do_not_see_the_workers_credentials() {
    let workspace = Workspace::new();
    let line = "show=echo \"$AWS_SECRET_ACCESS_KEY,$QO_STORE,$API_TOKEN,$COLOUR\"";
    for (pass, expected) in [
        (&[][..], "\",,,red\""),
        (&["--pass-env", "AWS_*,API_TOKEN"], "\"hidden,,token,red\""),
    ] {
        let id = workspace.submit("show");
        let header = ["--http-header", "Authorization: ${API_TOKEN}"];
        let words = ["worker", "--exec", line, "--exit-when-idle", "1s"];
        let words = [&words[..], &header, pass].concat();
        let output = workspace
            .command(&words)
            .env("AWS_SECRET_ACCESS_KEY", "hidden")
            .env("API_TOKEN", "token")
            .env("COLOUR", "red")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("hidden"));
        assert_eq!(status(&workspace, &id)["output"].to_string(), expected);
    }
}

#[tokio::test]
async fn a_signal_lets_running_tasks_finish() {
    let workspace = Workspace::new();
    let line = "slow=touch started; while [ ! -e go ]; do sleep 0.05; done; echo finished";
    let id = workspace.submit("slow");
    let mut running = worker(&workspace, &["--exec", line]);
    eventually("the task runs", || {
        workspace.path().join("started").exists()
    })
    .await;
    running.process.signal(Signal::TERM);
    let stopping = running.next_of("stopping");
    assert_eq!(stopping["reason"], "received a stop signal");
    assert_eq!(stopping["running"], 1);
    // The worker claims no more tasks.
    let late = workspace.submit("slow");
    std::fs::write(workspace.path().join("go"), "").unwrap();
    assert_eq!(running.next_of("attempt")["outcome"], "completed");
    assert_eq!(running.next_of("stopped")["completed"], 1);
    assert_eq!(running.code(), 0);
    assert_eq!(status(&workspace, &id)["output"], "finished");
    assert_eq!(status(&workspace, &late)["status"], "pending");
}

#[tokio::test]
async fn the_commands_of_a_killed_worker_end() {
    let workspace = Workspace::new();
    let line =
        "stubborn=trap '' TERM INT HUP; sleep 600 & echo $! > child; echo $$ > leader; wait; wait";
    workspace.submit("stubborn");
    let running = worker(&workspace, &["--exec", line]);
    let read =
        |name: &str| std::fs::read_to_string(workspace.path().join(name)).unwrap_or_default();
    eventually("the task runs", || {
        read("leader").ends_with('\n') && read("child").ends_with('\n')
    })
    .await;
    let (leader, child) = (read("leader"), read("child"));
    assert!(is_alive(&leader) && is_alive(&child));
    running.process.signal(Signal::KILL);
    eventually("both processes are gone", || {
        !is_alive(&leader) && !is_alive(&child)
    })
    .await;
}

#[tokio::test]
async fn a_second_signal_stops_at_once_and_leaves_no_process_behind() {
    let workspace = Workspace::new();
    let line =
        "stubborn=trap '' TERM INT; sleep 600 & echo $! > child; echo $$ > leader; wait; wait";
    workspace.submit("stubborn");
    let mut running = worker(&workspace, &["--exec", line]);
    let read =
        |name: &str| std::fs::read_to_string(workspace.path().join(name)).unwrap_or_default();
    eventually("the task runs", || {
        read("leader").ends_with('\n') && read("child").ends_with('\n')
    })
    .await;
    running.process.signal(Signal::INT);
    running.next_of("stopping");
    // A signal that follows at once counts as the same one.
    std::thread::sleep(Duration::from_millis(400));
    running.process.signal(Signal::INT);
    assert_eq!(running.code(), 130);
    let (leader, child) = (read("leader"), read("child"));
    eventually("both processes are gone", || {
        !is_alive(&leader) && !is_alive(&child)
    })
    .await;
}

#[test]
fn dev_prints_json_for_programs() {
    let workspace = Workspace::new();
    let result = workspace.qo(&["--json", "dev", "--for", "1s", "--tasks-per-second", "1"]);
    let lines = result.assert(0).lines("worker-line");
    assert_eq!(lines.first().unwrap()["event"], "started");
    assert_eq!(lines.last().unwrap()["event"], "stopped");
    assert!(lines.iter().any(|line| line["outcome"] == "completed"));
}

#[test]
fn dev_runs_its_samples_and_prints_a_summary() {
    let workspace = Workspace::new();
    let text = printed(
        &workspace,
        &["dev", "--for", "1s", "--tasks-per-second", "5"],
    );
    assert!(text.contains("demo.greet, demo.flaky"), "{text}");
    assert!(text.contains("completed demo."), "{text}");
    assert!(text.contains("qo dev ran for"), "{text}");
    assert!(text.contains("The queue is in sqlite:"), "{text}");
    assert!(text.contains("list --limit 10"), "{text}");
    let result = workspace.qo(&["--json", "list", "--tag", "demo"]);
    let tasks = result.assert(0).lines("task");
    assert!(tasks.len() >= 4, "{result:?}");
    for task in tasks {
        let status = task["status"].as_str().unwrap();
        assert!(matches!(status, "completed" | "failed"), "{task}");
    }
}

#[tokio::test]
async fn a_hangup_stops_the_worker_cleanly() {
    let workspace = Workspace::new();
    let mut running = worker(&workspace, &["--exec", "a=cat"]);
    running.process.signal(Signal::HUP);
    assert_eq!(
        running.next_of("stopping")["reason"],
        "received a stop signal"
    );
    running.next_of("stopped");
    assert_eq!(running.code(), 0);
}

/// Starts a command on a pseudo-terminal, and returns the other end of the terminal.
fn start_on_terminal(workspace: &Workspace, words: &[&str]) -> (RunningCommand, std::fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&pty).unwrap();
    unlockpt(&pty).unwrap();
    let name = ptsname(&pty, Vec::new()).unwrap();
    let terminal_handle = || {
        let mut options = std::fs::OpenOptions::new();
        let options = options.read(true).write(true);
        options.open(name.to_str().unwrap()).unwrap()
    };
    let size = rustix::termios::Winsize {
        ws_row: 30,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&pty, size).unwrap();
    let mut command = workspace.command(words);
    command
        .env("TERM", "xterm")
        .stdin(terminal_handle())
        .stdout(terminal_handle())
        .stderr(terminal_handle());
    let process = RunningCommand::spawn(&mut command);
    // Only the command may keep the pseudo-terminal open, so that reading ends when it exits.
    drop(command);
    (process, std::fs::File::from(pty))
}

/// Keys select a queue and a failure, and act on them.
#[test]
fn top_acts_on_keys() {
    let workspace = Workspace::new();
    workspace.submit("waiting");
    let failed = workspace.submit("bad");
    let words = ["worker", "--exec", "bad=exit 65", "--max-tasks", "1"];
    workspace.qo(&words).assert(0);
    let (process, mut terminal) =
        start_on_terminal(&workspace, &["top", "--interval", "1", "--color=never"]);
    let mut seen = String::new();
    let mut chunk = [0; 4096];
    let mut steps = [
        ("▸ default", "p"),
        ("Paused queue default.", "\u{1b}[B"),
        ("▸ ", "r"),
        ("Replayed", "q"),
    ]
    .into_iter()
    .peekable();
    // Reading fails when the last handle of the other end is closed.
    while let Ok(read @ 1..) = terminal.read(&mut chunk) {
        seen.push_str(&String::from_utf8_lossy(&chunk[..read]));
        let is_shown = |(text, _): &(&str, &str)| match *text {
            "▸ " => seen.contains(&format!("▸ {failed}")),
            text => seen.contains(text),
        };
        if let Some((_, keys)) = steps.next_if(is_shown) {
            std::io::Write::write_all(&mut terminal, keys.as_bytes()).unwrap();
        }
    }
    assert!(steps.peek().is_none(), "{seen}");
    assert_eq!(process.end().code, 0, "{seen}");
    assert!(seen.ends_with("\u{1b}[?1049l"), "the screen is restored");
    assert_eq!(status(&workspace, &failed)["status"], "pending");
    let history = workspace.qo(&["history", &failed, "--json"]);
    let events = history.assert(0).lines("event");
    assert!(events.last().unwrap()["by"].is_string(), "{events:?}");
    let stats = workspace.qo(&["stats", "--json"]);
    assert!(
        stats.assert(0).stdout.contains("\"paused\":true"),
        "{stats:?}"
    );
}

/// The live view, on a pseudo-terminal.
#[test]
fn dev_draws_on_a_terminal_and_restores_it() {
    let workspace = Workspace::new();
    let (process, mut terminal) = start_on_terminal(&workspace, &["dev", "--for", "30s"]);
    let mut seen = String::new();
    let mut chunk = [0; 4096];
    let mut is_stopped = false;
    // Reading fails when the last handle of the other end is closed.
    while let Ok(read @ 1..) = terminal.read(&mut chunk) {
        seen.push_str(&String::from_utf8_lossy(&chunk[..read]));
        let is_drawn = [
            "demo.greet",
            "COMPLETED",
            "Try in another terminal",
            "completed",
        ];
        if !is_stopped && is_drawn.iter().all(|part| seen.contains(part)) {
            process.signal(Signal::INT);
            is_stopped = true;
        }
    }
    assert!(is_stopped, "{seen}");
    assert_eq!(process.end().code, 0, "{seen}");
    let (drawn, after) = seen
        .split_once("\u{1b}[?1049l")
        .expect("the previous screen is restored");
    assert!(drawn.contains("\u{1b}[?1049h\u{1b}[?25l"), "{drawn}");
    assert!(drawn.ends_with("\u{1b}[?25h"), "the cursor is restored");
    assert!(after.contains("qo dev ran for"), "{after}");
    assert!(after.contains("The queue is in sqlite:"), "{after}");
}

#[cfg(not(feature = "cluster"))]
#[test]
fn a_build_without_cluster_mode_says_how_to_get_it() {
    let result = Workspace::new().qo(&["serve", "--cluster=c", "--node=1", "--data=node"]);
    let errors = &result.assert(9).stderr;
    assert!(errors.contains("--features cluster"), "{errors}");
}

#[cfg(not(feature = "wasi"))]
#[test]
fn a_build_without_wasi_says_how_to_get_it() {
    let result = Workspace::new().qo(&["worker", "--wasi"]);
    let errors = &result.assert(9).stderr;
    assert!(errors.contains("--features wasi"), "{errors}");
}

/// The worker learns of a request with its next heartbeat, so this takes about half a minute.
#[test]
fn workers_are_asked_to_be_quiet_and_to_stop() {
    let workspace = Workspace::new();
    let mut running = worker(&workspace, &["--exec", "t=cat", "--id", "w1"]);
    let ask = |action: &str| workspace.qo(&["workers", action, "w1", "--json"]);
    let state = ask("quiet").assert(0).json("worker");
    assert_eq!(state["request"]["action"], "quiet");
    assert!(state["request"]["by"].is_string(), "{state}");
    #[cfg(target_os = "linux")]
    assert!(
        state["memory_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 1_048_576),
        "{state}"
    );
    let listed = workspace.qo(&["workers"]);
    assert!(listed.assert(0).stdout.contains("quiet"), "{listed:#?}");
    workspace.qo(&["workers", "stop", "nobody"]).assert(3);
    workspace.qo(&["workers", "stop"]).assert(2);

    // At the latest after two heartbeats, it claims nothing.
    let mut waiting = String::new();
    let claims_nothing = qo_testkit::wait_until(TIMEOUT, || {
        waiting = workspace.submit("t");
        let is_claimed = || status(&workspace, &waiting)["status"] != "pending";
        !qo_testkit::wait_until(Duration::from_secs(3), is_claimed)
    });
    assert!(claims_nothing, "the worker still claims tasks");
    ask("resume").assert(0);
    printed(&workspace, &["wait", &waiting, "--timeout", "60s"]);
    ask("stop").assert(0);
    let stopping = running.next_of("stopping");
    assert_eq!(stopping["reason"], "asked by an operator", "{stopping}");
    running.next_of("stopped");
    assert_eq!(running.code(), 0);
    assert_eq!(printed(&workspace, &["workers"]), "");
}
