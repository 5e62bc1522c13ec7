//! `qo pause` and `qo resume`.

use qo::{PauseNote, PauseTarget};

use crate::args::{PauseArgs, PauseTargetArgs, ResumeArgs};
use crate::failure::Failure;
use crate::session::Session;

pub(super) async fn pause(args: &PauseArgs, session: &mut Session) -> Result<(), Failure> {
    let note = PauseNote {
        by: session.actor(),
        reason: args.reason.clone(),
    };
    set(&args.target, Some(note), session).await
}

pub(super) async fn resume(args: &ResumeArgs, session: &mut Session) -> Result<(), Failure> {
    set(&args.target, None, session).await
}

async fn set(
    args: &PauseTargetArgs,
    note: Option<PauseNote>,
    session: &mut Session,
) -> Result<(), Failure> {
    let target = args.target();
    let target = target.ok_or_else(|| Failure::bad_input("name a queue, or a type with --type"))?;
    let paused = note.is_some();
    let queue = session.connect().await?;
    queue.set_pause(&target, note).await?;
    queue.close().await;
    print(&target, paused, session)
}

fn print(target: &PauseTarget, paused: bool, session: &mut Session) -> Result<(), Failure> {
    let screen = &mut session.screen;
    let (kind, name, argument) = match target {
        PauseTarget::Queue(queue) => ("queue", queue.as_str(), queue.to_string()),
        PauseTarget::Type(name) => ("type", name.as_str(), format!("--type {name}")),
    };
    if screen.json {
        return screen.json(&serde_json::json!({ kind: name, "paused": paused }));
    }
    screen.note(if paused {
        format!(
            "Paused {target}. Workers stop claiming its tasks within a few seconds. Undo with `qo resume {argument}`."
        )
    } else {
        format!("Resumed {target}.")
    });
    Ok(())
}
