//! `qo pause` and `qo resume`.

use qo::QueueName;

use crate::args::{PauseArgs, ResumeArgs};
use crate::failure::Failure;
use crate::session::Session;

pub(super) async fn pause(args: &PauseArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    queue.pause(&args.queue).await?;
    queue.close().await;
    print(&args.queue, true, session)
}

pub(super) async fn resume(args: &ResumeArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    queue.resume(&args.queue).await?;
    queue.close().await;
    print(&args.queue, false, session)
}

fn print(name: &QueueName, paused: bool, session: &mut Session) -> Result<(), Failure> {
    let screen = &mut session.screen;
    if screen.json {
        return screen.json(&serde_json::json!({ "queue": name, "paused": paused }));
    }
    screen.note(if paused {
        format!(
            "Paused {name}. Workers stop claiming its tasks within a few seconds. Undo with `qo resume {name}`."
        )
    } else {
        format!("Resumed {name}.")
    });
    Ok(())
}
