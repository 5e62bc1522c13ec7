//! Output and questions on a terminal. The tests call the library with streams marked as terminals.

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use qo::{ClaimRequest, Failure, FailureKind};
use qo_cli::environment::Environment;
use qo_cli::output::{Io, Terminals};

use crate::workspace::{CommandResult, Workspace};

/// A stream that records its contents.
#[derive(Clone, Default)]
struct RecordedStream(Arc<Mutex<Vec<u8>>>);

impl Write for RecordedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RecordedStream {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Runs a command line on a simulated terminal of 90 columns, with `answer` as its input.
fn on_terminal(workspace: &Workspace, words: &[&str], answer: &'static str) -> CommandResult {
    let (stdout, stderr) = (RecordedStream::default(), RecordedStream::default());
    let io = Io {
        stdin: Box::new(Cursor::new(answer)),
        stdout: Box::new(stdout.clone()),
        stderr: Box::new(stderr.clone()),
        terminals: Terminals {
            stdin: true,
            stdout: true,
            stderr: true,
        },
    };
    let environment = Environment {
        variables: [
            ("QO_STORE".to_owned(), workspace.store()),
            ("COLUMNS".to_owned(), "90".to_owned()),
        ]
        .into(),
        directory: workspace.path().to_owned(),
    };
    let words = ["qo"].iter().chain(words).map(Into::into);
    let code = qo_cli::run(words, environment, io);
    CommandResult {
        code: code.into(),
        stdout: stdout.text(),
        stderr: stderr.text(),
    }
}

#[test]
fn submit_suggests_the_next_command() {
    let workspace = Workspace::new();
    let result = on_terminal(&workspace, &["submit", "--type", "t"], "");
    assert!(result.assert(0).stdout.contains("Next: "), "{result:#?}");
    assert!(result.stdout.contains("qo status"), "{result:#?}");
    assert!(result.stdout.contains('\u{1b}'), "{result:#?}");
    let plain = on_terminal(&workspace, &["list", "--color=never"], "");
    assert!(!plain.assert(0).stdout.contains('\u{1b}'), "{plain:#?}");
}

#[test]
fn a_filter_changes_tasks_only_after_confirmation() {
    let workspace = Workspace::new();
    workspace.submit("t");
    workspace.submit("t");
    for no in ["n\n", "\n", "", "nonsense\n"] {
        let result = on_terminal(&workspace, &["cancel", "--all"], no);
        assert!(
            result
                .assert(130)
                .stderr
                .contains("2 tasks match: 2 pending. Cancel them? [y/N]"),
            "{result:#?}"
        );
    }
    assert_eq!(pending(&workspace), 2);
    let result = on_terminal(&workspace, &["cancel", "--all"], "y\n");
    assert!(
        result.assert(0).stderr.contains("2 tasks cancelled"),
        "{result:#?}"
    );
    assert_eq!(pending(&workspace), 0);
    // With --json there is no question.
    let result = on_terminal(
        &workspace,
        &["replay", "--status", "cancelled", "--json"],
        "y\n",
    );
    result.assert(2);
}

#[tokio::test]
async fn a_list_fits_the_terminal_and_shows_full_ids() {
    let workspace = Workspace::new();
    let id = workspace.submit("mail");
    let queue = workspace.queue().await;
    let request = ClaimRequest::new("w".parse().unwrap(), vec!["mail".parse().unwrap()]);
    let task = queue.claim(&request).await.unwrap().pop().unwrap();
    let failure = Failure {
        kind: FailureKind::Permanent,
        error: "something went wrong, and it takes many words to say what it was".into(),
    };
    queue
        .fail(task.id, task.lease_id.unwrap(), failure)
        .await
        .unwrap();
    queue.close().await;
    let shown = tokio::task::spawn_blocking(move || {
        let result = on_terminal(&workspace, &["list", "--color=never"], "");
        (result, workspace)
    });
    let (result, _place) = shown.await.unwrap();
    let line = result.assert(0).stdout.lines().nth(1).unwrap();
    assert!(line.starts_with(&id) && line.ends_with('…'), "{result:#?}");
    assert!(line.chars().count() <= 90, "{result:#?}");
}

#[test]
fn an_empty_list_says_so() {
    let workspace = Workspace::new();
    assert_eq!(
        on_terminal(&workspace, &["list"], "").assert(0).stdout,
        "No tasks.\n"
    );
    let result = on_terminal(&workspace, &["workers"], "");
    assert!(
        result.assert(0).stdout.starts_with("No workers."),
        "{result:#?}"
    );
}

/// The number of pending tasks.
fn pending(workspace: &Workspace) -> usize {
    let listed = workspace.qo(&["list", "--status", "pending", "--json"]);
    listed.lines("task").len()
}
