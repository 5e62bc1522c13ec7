//! What can be typed. Raw words become validated values here; commands never see a text that could be wrong.

mod archive;
mod cancel;
mod completions;
mod config;
mod dev;
mod doctor;
mod filter;
mod history;
mod init;
mod list;
mod monitor;
mod pause;
mod purge;
mod replay;
mod serve;
mod stats;
mod status;
pub mod submit;
mod token;
mod ui;
pub mod values;
mod wait;
mod watch;
pub mod worker;
mod workers;

use std::path::PathBuf;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

pub use self::archive::{ArchiveArgs, UnarchiveArgs};
pub use self::cancel::CancelArgs;
pub use self::completions::CompletionsArgs;
pub use self::config::ConfigArgs;
pub use self::dev::DevArgs;
pub use self::doctor::DoctorArgs;
pub use self::filter::{BulkArgs, FilterArgs};
pub use self::history::HistoryArgs;
pub use self::init::InitArgs;
pub use self::list::ListArgs;
pub use self::monitor::MonitorArgs;
pub use self::pause::{PauseArgs, ResumeArgs};
pub use self::purge::PurgeArgs;
pub use self::replay::ReplayArgs;
pub use self::serve::ServeArgs;
pub use self::stats::StatsArgs;
pub use self::status::StatusArgs;
pub use self::submit::{ManyArgs, PolicyArgs, SubmitArgs, TaskArgs};
pub use self::token::{TokenArgs, TokenCommand, TokenCreateArgs, TokenRevokeArgs};
pub use self::ui::{UiArgs, UiCommand, UiDeployArgs, UiLinkArgs};
pub use self::wait::WaitArgs;
pub use self::watch::WatchArgs;
pub use self::worker::WorkerArgs;
pub use self::workers::WorkersArgs;

use crate::failure::EXIT_CODES;
use crate::output::style::ColourChoice;

/// The whole command line.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "qo",
    version,
    about = "A task queue whose only required infrastructure is an object store",
    long_about = "A task queue whose only required infrastructure is an object store.\n\nTasks wait in a bucket (S3, Google Cloud Storage, Azure) or, with nothing configured, in an SQLite file in your data directory. Workers claim them, run them and report; nothing else has to be operated.",
    before_help = BEFORE_HELP,
    after_help = "`qo help COMMAND` explains a command, with examples. `qo help` explains exit codes and settings.",
    after_long_help = after_long_help(),
    disable_help_subcommand = false,
    max_term_width = 100,
)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

const BEFORE_HELP: &str = "\
New here? Start with

    qo dev                                    a queue, a worker and sample tasks, live
    qo submit --type hello --input '{\"n\":1}'  add a task
    qo worker --exec hello=cat                run a command for each task of a type
    qo list                                   see what became of them";

fn after_long_help() -> String {
    format!(
        "\
Settings, the strongest first: a flag, the environment (QO_STORE, QO_PROFILE, QO_CONFIG), a profile of qo.toml, qo.toml itself, the default. \
`qo config` shows what holds and where it was said.

    # qo.toml, here, in a directory above, or in ~/.config/qo/
    store = \"sqlite:queue.db\"
    [profiles.production]
    store = \"s3://bucket/prefix\"

Exit codes:
{EXIT_CODES}"
    )
}

/// What every command takes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct GlobalArgs {
    /// Where the queue is.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help = "Where the queue is: sqlite:PATH, s3://BUCKET[/PREFIX], gs://BUCKET, az://CONTAINER, http(s)://SERVER, memory: [env: QO_STORE]"
    )]
    pub store: Option<String>,
    /// A profile of the settings file.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        help = "A profile of qo.toml [env: QO_PROFILE]"
    )]
    pub profile: Option<String>,
    /// The settings file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "The settings file; else qo.toml here, in a directory above, or in the user's settings [env: QO_CONFIG]"
    )]
    pub config: Option<PathBuf>,
    /// Print results as JSON: one object, or one per line for lists; errors too, on standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colour.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        help = "When to use colour; NO_COLOR and CLICOLOR_FORCE are respected"
    )]
    pub color: ColourChoice,
    /// How much the log says.
    #[arg(
        short,
        long,
        global = true,
        action = ArgAction::Count,
        help = "Show each request to the store with its latency; -vv shows everything; RUST_LOG is above it"
    )]
    pub verbose: u8,
    /// Leave notes, progress and warnings out
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Show qo at work: a queue, a worker and sample tasks, live on this terminal
    ///
    /// The queue is an SQLite file in your data directory, unless --store names another one, and other `qo` commands see it
    /// while this runs. `demo.greet` always succeeds; `demo.flaky` fails now and then, is retried, and sometimes fails for
    /// good. Ctrl-C stops it. Where the output is not a terminal, it prints a line for each attempt and ends when the sample
    /// tasks are done.
    Dev(DevArgs),
    /// Add a task, or many
    ///
    /// The id is printed alone where the output is not a terminal. A second submit with the same --id or --idempotency-key
    /// adds nothing and gives the first task.
    Submit(Box<SubmitArgs>),
    /// Run tasks: a command or a request for each, chosen by its type
    ///
    /// It renews leases, ends what takes too long or was called off, and stops cleanly on Ctrl-C and SIGTERM: no new tasks, up
    /// to 30 seconds for the running ones, the rest is given back; a second one stops it at once. Unless told otherwise it
    /// also brings back the tasks of dead workers, as `qo monitor` does.
    Worker(Box<WorkerArgs>),
    /// List tasks
    ///
    /// All but archived ones are listed, if no status is given.
    List(ListArgs),
    /// Show one task
    ///
    /// Its state, its times, its last error, its input and its output.
    Status(StatusArgs),
    /// Show what happened to a task
    ///
    /// Oldest first. Each task carries its own history of its newest 64 events; where the store keeps versions, --versions
    /// shows every stored one.
    History(HistoryArgs),
    /// Wait for a task's end and print its output
    ///
    /// The exit code is 0 if it completed, 8 if it did not, and 7 if it took too long.
    Wait(WaitArgs),
    /// Count tasks by queue and status
    Stats(StatsArgs),
    /// List workers
    ///
    /// One that was heard of within the threshold is active, one that was not is stale, and one that was not heard of for
    /// five times as long is dead. The tasks of dead workers come back by themselves.
    Workers(WorkersArgs),
    /// Start over tasks that have come to their end
    ///
    /// They are pending again, due now, with all their retries. A filter that names no status means failed ones.
    Replay(ReplayArgs),
    /// Call tasks off
    ///
    /// A pending one at once, a running one by asking its worker to stop. A filter that names no status means both.
    Cancel(CancelArgs),
    /// Put away tasks that have come to their end
    ///
    /// They are kept, but listed only when archived ones are asked for. A filter that names no status means all that have
    /// come to their end.
    Archive(ArchiveArgs),
    /// Take archived tasks out again
    ///
    /// They are then as they were before, and can be replayed.
    Unarchive(UnarchiveArgs),
    /// Remove tasks for good
    ///
    /// Only tasks that have come to their end, with their payloads and their stored versions. A filter that names no status
    /// means all of these, archived ones too.
    Purge(PurgeArgs),
    /// Serve the queue over HTTP, with the dashboard
    ///
    /// Any store can be served: in direct mode, as one JSON object (`?engine=json`), or in broker mode (`?engine=slate`). There one process
    /// leads; every further one stands by, and takes over within seconds when the leader dies, at once when it stops. Clients use
    /// the server's address as their store, or, in broker mode, the store itself, which tells them where the leader is. It stops
    /// cleanly on Ctrl-C and SIGTERM.
    Serve(ServeArgs),
    /// Make, list and revoke tokens for `qo serve`
    Token(TokenArgs),
    /// Let workers pass a queue by
    ///
    /// Tasks can still be submitted to it, and running ones end as usual.
    Pause(PauseArgs),
    /// Let workers serve a queue again
    Resume(ResumeArgs),
    /// Bring back tasks of dead workers and repair the index, without running tasks
    ///
    /// Every worker does this beside its own work unless it is told not to; this command does it alone. It stops cleanly on
    /// Ctrl-C and SIGTERM.
    Monitor(MonitorArgs),
    /// Prepare a bucket
    ///
    /// Makes sure that it can be trusted, switches versioning on, lets browsers call it for the dashboard, and sets
    /// lifecycle rules. It can be run again, and changes only what is not so yet. Run it before workers are.
    Init(InitArgs),
    /// Put the dashboard into the bucket, and make links that open it
    Ui(UiArgs),
    /// Look a queue over and say what is wrong with it
    ///
    /// Whether the store answers, what it allows, how fast it is, its clock, its settings, the index, and whether its
    /// conditional writes can be trusted. No task is changed. The exit code is 0 unless something does not work.
    Doctor(DoctorArgs),
    /// Show the settings that hold, and where each was said
    ///
    /// No request is sent.
    Config(ConfigArgs),
    /// Print a script that completes commands in a shell
    Completions(CompletionsArgs),
}

impl Command {
    /// Whether it draws on the whole terminal, where a log would only be in the way.
    pub fn is_drawn(&self) -> bool {
        matches!(self, Self::Dev(_))
    }

    /// Whether it goes on until it is stopped, and so says in its log what it does.
    pub fn is_service(&self) -> bool {
        matches!(self, Self::Monitor(_) | Self::Worker(_) | Self::Serve(_))
    }
}

/// The command line as clap sees it, for completions and manual pages.
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        for subcommand in command().get_subcommands() {
            let help = subcommand.get_after_long_help();
            let help = help.map(ToString::to_string).unwrap_or_default();
            assert!(
                help.contains("Examples:") && help.contains("qo "),
                "{} has no examples",
                subcommand.get_name()
            );
        }
    }
}
