//! Command-line arguments. Text is parsed into validated values here, so commands never see an invalid one.

mod archive;
mod blob;
mod cancel;
mod cluster;
mod completions;
mod config;
mod dev;
mod discover;
mod doctor;
mod errors;
mod filter;
mod history;
mod init;
mod key;
mod limit;
mod list;
mod logs;
mod monitor;
mod pause;
mod purge;
pub mod queue;
mod redrive;
mod replay;
mod run;
mod run_now;
pub mod schedule;
mod serve;
mod stats;
mod status;
pub mod submit;
mod token;
mod top;
mod ui;
pub mod values;
mod wait;
mod watch;
mod webhook;
pub mod worker;
pub mod worker_wasi;
mod workers;

use std::path::PathBuf;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

pub use self::archive::{ArchiveArgs, UnarchiveArgs};
pub use self::blob::{
    BlobArgs, BlobCommand, BlobDeleteArgs, BlobGcArgs, BlobGetArgs, BlobListArgs, BlobPutArgs,
};
pub use self::cancel::CancelArgs;
pub use self::cluster::{
    ClusterAddArgs, ClusterArgs, ClusterCommand, ClusterLogArgs, ClusterNodeArgs, MemberArg,
    NodeArgs,
};
pub use self::completions::CompletionsArgs;
pub use self::config::ConfigArgs;
pub use self::dev::DevArgs;
pub use self::discover::DiscoverArgs;
pub use self::doctor::DoctorArgs;
pub use self::errors::ErrorsArgs;
pub use self::filter::{BulkArgs, FilterArgs};
pub use self::history::HistoryArgs;
pub use self::init::InitArgs;
pub use self::key::{KeyArgs, KeyCommand, KeyGenerateArgs};
pub use self::limit::{LimitArgs, LimitCommand, LimitSetArgs};
pub use self::list::ListArgs;
pub use self::logs::LogsArgs;
pub use self::monitor::MonitorArgs;
pub use self::pause::{PauseArgs, PauseTargetArgs, ResumeArgs};
pub use self::purge::PurgeArgs;
pub use self::queue::{QueueArgs, QueueCommand, QueueSetArgs};
pub use self::redrive::RedriveArgs;
pub use self::replay::ReplayArgs;
pub use self::run::RunArgs;
pub use self::run_now::RunNowArgs;
pub use self::schedule::{ScheduleAddArgs, ScheduleArgs, ScheduleCommand};
pub use self::serve::ServeArgs;
pub use self::stats::StatsArgs;
pub use self::status::StatusArgs;
pub use self::submit::{ManyArgs, PolicyArgs, SubmitArgs, TaskArgs, WasiJobArgs};
pub use self::token::{TokenArgs, TokenCommand, TokenCreateArgs, TokenRevokeArgs};
pub use self::top::TopArgs;
pub use self::ui::{UiArgs, UiCommand, UiDeployArgs, UiLinkArgs};
pub use self::wait::WaitArgs;
pub use self::watch::WatchArgs;
pub use self::webhook::{WebhookAddArgs, WebhookArgs, WebhookCommand};
pub use self::worker::WorkerArgs;
pub use self::workers::{WorkerNames, WorkersArgs, WorkersCommand};

use crate::failure::EXIT_CODES;
use crate::output::style::ColourChoice;

/// The whole command line.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "qo",
    version,
    about = "A task queue whose only required infrastructure is an object store",
    long_about = "A task queue whose only required infrastructure is an object store.\n\nTasks are stored in a bucket (S3, Google Cloud Storage, Azure) or, with nothing configured, in an SQLite file in your data directory. Workers claim tasks, run them and store the results. You operate nothing else.",
    before_help = BEFORE_HELP,
    after_help = "Run `qo help COMMAND` for details and examples, `qo help` for settings and exit codes.",
    after_long_help = after_long_help(),
    disable_help_subcommand = false,
    max_term_width = 100,
)]
pub struct Cli {
    /// Global options.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Option<Command>,
}

const BEFORE_HELP: &str = "\
New here? Start with

    qo dev                                    a queue, a worker and sample tasks, live
    qo submit --type hello --input '{\"n\":1}'  add a task
    qo worker --exec hello=cat                run a command for each task of a type
    qo list                                   see the tasks and their statuses";

fn after_long_help() -> String {
    format!(
        "\
Settings, highest precedence first: flags, environment variables (QO_STORE, QO_PROFILE, QO_CONFIG), a profile in qo.toml, qo.toml itself, defaults. \
`qo config` shows the settings in effect and where each comes from.

    # qo.toml, in this directory, in a parent directory, or in ~/.config/qo/
    store = \"sqlite:queue.db\"
    [profiles.production]
    store = \"s3://bucket/prefix\"

Exit codes:
{EXIT_CODES}"
    )
}

/// Options that every command accepts.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
#[expect(clippy::doc_markdown, reason = "the comments are help texts")]
pub struct GlobalArgs {
    /// Store URL: sqlite:PATH, s3://BUCKET[/PREFIX], gs://BUCKET, az://CONTAINER, http(s)://SERVER, cluster://NODE,NODE,NODE, mdns:, memory: [env: QO_STORE]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// Profile in qo.toml [env: QO_PROFILE]
    #[arg(long, global = true, value_name = "NAME")]
    pub profile: Option<String>,
    /// Settings file [default: qo.toml in this directory, a parent directory or ~/.config/qo/] [env: QO_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// File with the keys that encrypt inputs, outputs, errors and logs [env: QO_ENCRYPTION_KEY_FILE, or QO_ENCRYPTION_KEYS with the keys themselves]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        conflicts_with = "encryption_key_command"
    )]
    pub encryption_key_file: Option<PathBuf>,
    /// Command that prints these keys, for example from a key management service [env: QO_ENCRYPTION_KEY_COMMAND]
    #[arg(long, global = true, value_name = "COMMAND")]
    pub encryption_key_command: Option<String>,
    /// Print results as JSON, one object per line; errors go to standard error, also as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colour; NO_COLOR and CLICOLOR_FORCE are honoured
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub color: ColourChoice,
    /// Log each store request with its latency; -vv logs everything; RUST_LOG takes precedence
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Suppress notes, progress and warnings
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// The subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Run a demo: a queue, a worker and sample tasks, live in this terminal
    ///
    /// The queue is an SQLite file in your data directory, unless --store names another store. Other `qo` commands can use it
    /// while this runs. Tasks of type `demo.greet` always succeed. Tasks of type `demo.flaky` fail at times and are retried;
    /// some of them fail permanently. Press Ctrl-C to stop. If the output is not a terminal, the command prints one line per
    /// attempt and exits when the sample tasks are finished.
    Dev(DevArgs),
    /// Submit one task, or many
    ///
    /// Prints the task's id. Submitting again with the same --id or --idempotency-key adds no task and returns the existing
    /// one.
    Submit(Box<SubmitArgs>),
    /// Run a WASI program on a worker and print its output
    ///
    /// Uploads the program and its standard input, submits a job that refers to both by content, waits until a worker has run it
    /// (`qo worker --wasi`), and prints what it wrote to standard output. Ctrl-C cancels the job.
    Run(RunArgs),
    /// Run tasks with a command, an HTTP request or a WASI program per task type
    ///
    /// The worker renews leases and stops attempts that time out or are cancelled. On Ctrl-C or SIGTERM it claims no more tasks,
    /// waits up to 30 seconds for the running ones and releases the rest; a second signal stops it at once. Unless --no-monitor
    /// is given, it also recovers the tasks of dead workers, as `qo monitor` does.
    Worker(Box<WorkerArgs>),
    /// List tasks
    ///
    /// Without --status, lists all tasks except archived ones.
    List(ListArgs),
    /// Show one task
    ///
    /// Prints its status, times, last error, input and output.
    Status(StatusArgs),
    /// Show the history of a task
    ///
    /// Prints the task's events, oldest first. A task keeps its newest 64 events. If the bucket is versioned, --versions shows
    /// every stored version of the task.
    History(HistoryArgs),
    /// Show what a task's last attempts printed
    ///
    /// Prints the end of the logs of the last three attempts: the standard error of commands and WASI programs, and what Rust handlers log
    /// with `Context::log`. A log is stored when its attempt ends.
    Logs(LogsArgs),
    /// Wait until a task finishes and print its output
    ///
    /// The exit code is 0 if the task completed, 8 if it failed or was cancelled, and 7 if the timeout passed first.
    Wait(WaitArgs),
    /// Count tasks by queue and status
    Stats(StatsArgs),
    /// Group failed tasks by their error
    ///
    /// Prints how often each error occurred, when it was first and last seen, and in which task types.
    Errors(ErrorsArgs),
    /// Watch queues, rates, workers and failures
    ///
    /// A live view, refreshed until Ctrl-C. --once prints it once.
    Top(TopArgs),
    /// List workers, or ask them to stop
    ///
    /// A worker is active if its last heartbeat is within the threshold, dead if it is older than five thresholds, and stale
    /// in between. The tasks of dead workers are recovered automatically.
    Workers(WorkersArgs),
    /// Run finished tasks again
    ///
    /// The tasks become pending and due now, with their full number of retries. A filter without --status selects failed
    /// tasks.
    Replay(ReplayArgs),
    /// Move waiting or failed tasks to another queue
    ///
    /// Waiting tasks keep their due time and their number of used retries. Failed tasks start over in the other queue. Tasks with
    /// an ordering key are not moved. A filter without --status selects waiting and failed tasks, and skips those that are already
    /// in the queue.
    Redrive(RedriveArgs),
    /// Make waiting tasks due now
    ///
    /// Applies to pending tasks that wait for a delay, a retry or a snooze to pass. A filter selects only such tasks.
    RunNow(RunNowArgs),
    /// Cancel tasks
    ///
    /// Pending tasks are cancelled at once. For running tasks, the worker is asked to stop. A filter without --status selects
    /// both.
    Cancel(CancelArgs),
    /// Archive finished tasks
    ///
    /// Archived tasks are kept, but listed only with --status archived. A filter without --status selects all finished tasks.
    Archive(ArchiveArgs),
    /// Restore archived tasks
    ///
    /// The tasks return to the status they had before and can be replayed.
    Unarchive(UnarchiveArgs),
    /// Delete finished tasks permanently
    ///
    /// Also deletes their payloads and stored versions. A filter without --status selects all finished tasks, including
    /// archived ones.
    Purge(PurgeArgs),
    /// Serve the queue over HTTP, with the dashboard
    ///
    /// Serves a queue in any mode. With `?engine=slate`, one process leads and the others stand by. A standby takes over within
    /// seconds if the leader dies, and at once if it stops. Clients use the server's URL as their store. With `?engine=slate`
    /// they can also use the store URL and find the leader through the store. Ctrl-C and SIGTERM stop the server cleanly.
    Serve(ServeArgs),
    /// Show and change the nodes of a cluster
    ///
    /// --store names the nodes: cluster://HOST:PORT,HOST:PORT,HOST:PORT. The command asks any of them for the leader.
    Cluster(ClusterArgs),
    /// Upload, download, list and collect blobs
    ///
    /// Blobs are stored by content, next to the tasks that refer to them. The address of a blob is the SHA-256 digest of its bytes.
    Blob(BlobArgs),
    /// List the servers that announce themselves on the local network
    ///
    /// `qo serve --mdns` and `qo dev` announce their servers. The store URL `mdns:` connects to the only server that responds, and
    /// `mdns:NAME` to one of several.
    Discover(DiscoverArgs),
    /// Create, list and revoke access tokens for `qo serve`
    ///
    /// The tokens are stored in the served store, as hashes.
    Token(TokenArgs),
    /// Create and list encryption keys
    ///
    /// With a key, `qo submit` and `qo worker` encrypt inputs, outputs, errors and logs, and other commands decrypt them. Stores,
    /// servers and dashboards see only the name of the key.
    Key(KeyArgs),
    /// Define, show and trigger schedules, which submit tasks repeatedly
    ///
    /// Workers and `qo serve` fire the schedules of their queue. Each tick makes exactly one task, however many processes there are.
    Schedule(ScheduleArgs),
    /// Show and change the settings of queues
    ///
    /// A queue can have defaults for its tasks, a retention for finished tasks, a maximum wait, and a maximum number of waiting tasks.
    Queue(QueueArgs),
    /// Limit how many tasks run at once, and how many start within a time window
    ///
    /// A limit applies to a queue, to a task type, or to tasks submitted with a limit key, such as a tenant or an API account.
    Limit(LimitArgs),
    /// Notify other systems when tasks end
    ///
    /// A webhook is a URL that gets a signed request when a task completes, fails or is cancelled. Each notification is a task, so it is
    /// retried and listed like any other.
    Webhook(WebhookArgs),
    /// Pause a queue or a task type
    ///
    /// Workers claim no tasks of a paused queue, or of a paused type in any queue. Tasks can still be submitted, and running tasks finish
    /// as usual. `qo stats` shows what is paused, since when, by whom and why.
    Pause(PauseArgs),
    /// Resume a paused queue or task type
    Resume(ResumeArgs),
    /// Recover tasks of dead workers and repair the index, without running tasks
    ///
    /// Workers do this too, unless started with --no-monitor. Ctrl-C and SIGTERM stop the command cleanly.
    Monitor(MonitorArgs),
    /// Prepare a bucket
    ///
    /// Verifies the bucket's conditional writes, enables versioning, allows browser access for the dashboard and sets lifecycle
    /// rules. Running it again changes only what is missing. Run it before starting workers.
    Init(InitArgs),
    /// Upload the dashboard to the bucket and create links to it
    ///
    /// The dashboard is a static page that reads the bucket directly from the browser, so it needs no server.
    Ui(UiArgs),
    /// Diagnose a queue and its store
    ///
    /// Checks the store's reachability, permissions, latency, clock, settings and conditional writes, and the queue's index.
    /// Changes no task. The exit code is 0 unless a check fails.
    Doctor(DoctorArgs),
    /// Show the settings in effect and where each comes from
    ///
    /// Sends no request.
    Config(ConfigArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
}

impl Command {
    /// Whether the command draws on the whole terminal, which log lines would disturb.
    pub fn is_drawn(&self) -> bool {
        matches!(self, Self::Dev(_))
    }

    /// Whether the command runs until it is stopped, and so logs what it does.
    pub fn is_service(&self) -> bool {
        matches!(self, Self::Monitor(_) | Self::Worker(_) | Self::Serve(_))
    }
}

/// The clap definition, for completions and manual pages.
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clap_definition_is_valid() {
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
