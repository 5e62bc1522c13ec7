//! `qo logs`: what the handlers of a task's last attempts printed.

use qo::AttemptLog;

use crate::args::LogsArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::style::BOLD;
use crate::output::{sealed, text, time};
use crate::session::Session;

pub(super) async fn run(args: &LogsArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let task = queue.get(args.id).await?;
    let now = queue.now();
    queue.close().await;
    let is_wanted = |log: &&AttemptLog| args.attempt.is_none_or(|attempt| log.attempt == attempt);
    let logs: Vec<&AttemptLog> = task.logs().iter().filter(is_wanted).collect();
    if let Some(attempt) = args.attempt
        && logs.is_empty()
    {
        let message = format!("task {} has no log of attempt {attempt}", args.id);
        let kept = "a task keeps the logs of its last 3 attempts that printed anything and ended";
        return Err(Failure::new(FailureKind::NotFound, message).hint(kept));
    }
    let screen = &mut session.screen;
    if screen.json {
        for log in logs {
            screen.json(log)?;
        }
        return Ok(());
    }
    if logs.is_empty() {
        screen.note(
            "No logs. An attempt leaves one when it ends and its handler has printed something.",
        );
        return Ok(());
    }
    let mut shown = String::new();
    for log in &logs {
        if args.attempt.is_none() {
            let head = format!("attempt {}, {}", log.attempt, time::relative(log.at, now));
            shown.push_str(&screen.paint.paint(BOLD, &head));
            shown.push('\n');
        }
        shown.push_str(&text::clean_lines(&sealed::error(&log.text)));
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
    }
    Ok(screen.write(&shown)?)
}
