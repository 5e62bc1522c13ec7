//! The commands, one file each.

mod activity;
mod blob;
mod bulk;
mod cluster;
#[cfg(feature = "cluster")]
mod cluster_node;
mod completions;
mod config;
mod deliverer;
mod dev;
mod discover;
mod doctor;
mod error_pattern;
mod errors;
mod history;
mod init;
mod job;
mod key;
mod limit;
mod list;
mod logs;
mod monitor;
mod pause;
mod queue;
mod run;
mod schedule;
mod serve;
mod stats;
mod status;
mod submit;
mod submit_many;
mod token;
mod top;
mod top_keys;
mod ui;
mod wait;
mod webhook;
mod worker;
mod workers;

#[cfg(feature = "fuzzing")]
pub(crate) use submit_many::request as line_request;

use crate::args::Command;
use crate::failure::Failure;
use crate::session::Session;

/// Runs a command.
pub async fn run(command: Command, session: &mut Session) -> Result<(), Failure> {
    match command {
        Command::Dev(args) => dev::run(&args, session).await,
        Command::Submit(args) => match &args.many.many {
            Some(file) => submit_many::run(&args, file, session).await,
            None => submit::run(&args, session).await,
        },
        Command::Run(args) => run::run(&args, session).await,
        Command::Worker(args) => worker::run(&args, session).await,
        Command::List(args) => list::run(&args, session).await,
        Command::Status(args) => status::run(&args, session).await,
        Command::History(args) => history::run(&args, session).await,
        Command::Logs(args) => logs::run(&args, session).await,
        Command::Wait(args) => wait::run(&args, session).await,
        Command::Stats(args) => stats::run(&args, session).await,
        Command::Errors(args) => errors::run(&args, session).await,
        Command::Top(args) => top::run(&args, session).await,
        Command::Workers(args) => workers::run(&args, session).await,
        Command::Replay(args) => bulk::replay(&args, session).await,
        Command::Redrive(args) => bulk::redrive(&args, session).await,
        Command::RunNow(args) => bulk::run_now(&args, session).await,
        Command::Cancel(args) => bulk::cancel(&args, session).await,
        Command::Archive(args) => bulk::archive(&args, session).await,
        Command::Unarchive(args) => bulk::unarchive(&args, session).await,
        Command::Purge(args) => bulk::purge(&args, session).await,
        Command::Serve(args) => serve::run(&args, session).await,
        Command::Cluster(args) => cluster::run(&args, session).await,
        Command::Blob(args) => blob::run(&args, session).await,
        Command::Discover(args) => discover::run(&args, session).await,
        Command::Token(args) => token::run(&args, session).await,
        Command::Key(args) => key::run(&args, session).await,
        Command::Schedule(args) => schedule::run(&args, session).await,
        Command::Queue(args) => queue::run(&args, session).await,
        Command::Limit(args) => limit::run(&args, session).await,
        Command::Webhook(args) => webhook::run(&args, session).await,
        Command::Pause(args) => pause::pause(&args, session).await,
        Command::Resume(args) => pause::resume(&args, session).await,
        Command::Monitor(args) => monitor::run(&args, session).await,
        Command::Init(args) => init::run(&args, session).await,
        Command::Ui(args) => ui::run(&args, session).await,
        Command::Doctor(args) => doctor::run(&args, session).await,
        Command::Config(_) => config::run(session),
        Command::Completions(args) => completions::run(&args, session),
    }
}
