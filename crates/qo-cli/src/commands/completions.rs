//! `qo completions`.

use crate::args::{self, CompletionsArgs};
use crate::failure::Failure;
use crate::session::Session;

pub(super) fn run(args: &CompletionsArgs, session: &mut Session) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "qo", &mut script);
    Ok(session.screen.write(&String::from_utf8_lossy(&script))?)
}
