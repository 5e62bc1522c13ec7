//! What a person sees and is asked on a terminal: the library's own entry, with streams that say that they are terminals.

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use qo::{ClaimRequest, Failure, FailureKind};
use qo_cli::environment::Environment;
use qo_cli::output::{Io, Terminals};

use crate::place::{Place, Ran};

/// A stream that keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Runs a command line as if on a terminal of 90 columns, where somebody types `answer`.
fn on_terminal(place: &Place, words: &[&str], answer: &'static str) -> Ran {
    let (stdout, stderr) = (Kept::default(), Kept::default());
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
            ("QO_STORE".to_owned(), place.store()),
            ("COLUMNS".to_owned(), "90".to_owned()),
        ]
        .into(),
        directory: place.path().to_owned(),
    };
    let words = ["qo"].iter().chain(words).map(Into::into);
    let code = qo_cli::run(words, environment, io);
    Ran {
        code: code.into(),
        stdout: stdout.text(),
        stderr: stderr.text(),
    }
}

#[test]
fn a_submit_says_what_to_try_next() {
    let place = Place::new();
    let ran = on_terminal(&place, &["submit", "--type", "t"], "");
    assert!(ran.assert(0).stdout.contains("Next: "), "{ran:#?}");
    assert!(ran.stdout.contains("qo status"), "{ran:#?}");
    assert!(ran.stdout.contains('\u{1b}'), "{ran:#?}");
    let plain = on_terminal(&place, &["list", "--color=never"], "");
    assert!(!plain.assert(0).stdout.contains('\u{1b}'), "{plain:#?}");
}

#[test]
fn many_tasks_are_changed_only_after_a_yes() {
    let place = Place::new();
    place.submit("t");
    place.submit("t");
    for no in ["n\n", "\n", "", "nonsense\n"] {
        let ran = on_terminal(&place, &["cancel", "--all"], no);
        assert!(
            ran.assert(130)
                .stderr
                .contains("2 tasks match: 2 pending. Cancel them? [y/N]"),
            "{ran:#?}"
        );
    }
    assert_eq!(
        place
            .qo(&["list", "--status", "pending", "--json"])
            .lines("task")
            .len(),
        2
    );
    let ran = on_terminal(&place, &["cancel", "--all"], "y\n");
    assert!(
        ran.assert(0).stderr.contains("2 tasks cancelled"),
        "{ran:#?}"
    );
    assert_eq!(
        place
            .qo(&["list", "--status", "pending", "--json"])
            .lines("task")
            .len(),
        0
    );
    // A program is never asked.
    let ran = on_terminal(
        &place,
        &["replay", "--status", "cancelled", "--json"],
        "y\n",
    );
    ran.assert(2);
}

#[tokio::test]
async fn a_list_fits_the_terminal_and_keeps_its_ids() {
    let place = Place::new();
    let id = place.submit("mail");
    let queue = place.queue().await;
    let wish = ClaimRequest::new("w".parse().unwrap(), vec!["mail".parse().unwrap()]);
    let task = queue.claim(&wish).await.unwrap().pop().unwrap();
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
        let ran = on_terminal(&place, &["list", "--color=never"], "");
        (ran, place)
    });
    let (ran, _place) = shown.await.unwrap();
    let line = ran.assert(0).stdout.lines().nth(1).unwrap();
    assert!(line.starts_with(&id) && line.ends_with('…'), "{ran:#?}");
    assert!(line.chars().count() <= 90, "{ran:#?}");
}

#[test]
fn nothing_to_show_is_said() {
    let place = Place::new();
    assert_eq!(
        on_terminal(&place, &["list"], "").assert(0).stdout,
        "No tasks.\n"
    );
    let ran = on_terminal(&place, &["workers"], "");
    assert!(ran.assert(0).stdout.starts_with("No workers."), "{ran:#?}");
}
